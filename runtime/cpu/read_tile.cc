// Reads tile steps: a source (matmul, embedding, load, ...) that fills tiles, and per section the ops that follow it.

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/quant/q8a.h"
#include "kernels/quant/x16.h"
#include "runtime/cpu/read_steps.h"
#include "runtime/cpu/tile_op_reader.h"

namespace forge::runtime {
namespace {

using plan::Source;
using plan::TileOpKind;

constexpr std::int64_t kWeightColumnsMax = 1 << 24;

/// Fills in the sections of a tile step.
class TileReader : PlanReader {
 public:
  explicit TileReader(const PlanReader& reader) : PlanReader(reader), ops_(reader) {}

  void run(const plan::TileT& tile, CpuStep& out) const {
    if (tile.source.value == nullptr) fail("a tile program without a source");
    const bool experts = tile.source.type == Source::ExpertMatmulRows;
    out.kind = experts ? StepKind::kExperts : StepKind::kTile;
    take_rows(tile.rows, out);
    const auto cols = number(tile.cols, 1, kColumnsMax);
    take_slots(tile.slots, out);
    for (const auto& section : tile.sections) {
      if (section == nullptr) fail("a section is missing");
      out.sections.push_back(read_section(tile, *section, cols, out));
    }
    if (out.sections.empty()) fail("a tile program without a section");
    for (const auto& section : out.sections)
      if ((section.sum_at == 0) != (out.sections[0].sum_at == 0)) fail("only some sections sum their experts");
  }

 private:
  /// One section. `shape` follows the ops: pairs of columns halve the width, a sum over experts turns slots into
  /// tokens.
  TileSection read_section(const plan::TileT& tile, const plan::SectionT& in, std::size_t cols,
                           const CpuStep& out) const {
    TileSection section;
    section.begin = number(in.begin, 0);
    section.end = number(in.end, 1);
    if (section.begin >= section.end || section.end > cols) fail("a section is not a range of the step's columns");
    TileShape shape{.rows = rows_of(out),
                    .width = section.end - section.begin,
                    .unit = number(in.unit, 1, 1 << 20),
                    .rows_are_tokens = !out.rows_are_logits && out.slots == 1};
    section.ops.push_back(read_source(tile, section, operand(in.from), shape, out));
    // Only rows that are tokens can be of a long prompt. Rows of experts and logits always use the general matmul.
    if (!shape.rows_are_tokens) section.ops[0].prompt_matmul = section.ops[0].matmul;
    // Ops that halve the tile change `shape`; the tile itself keeps the source's unit.
    const std::size_t unit = shape.unit;
    bool halved = false;
    for (const auto& op : in.ops) {
      if (op == nullptr) fail("an op is missing");
      section.ops.push_back(ops_.op(op->body, shape));
      if (section.ops.back().kind == TileOpKind::kPairs) {
        if (halved) fail("pairs of columns do not fit their tile");
        shape.width /= 2;
        shape.unit /= 2;
        halved = true;
      }
      if (section.ops.back().kind == TileOpKind::kSumExperts) {
        if (out.kind != StepKind::kExperts || section.sum_at != 0 || halved)
          fail("a sum over experts is not allowed here");
        section.sum_at = section.ops.size() - 1;
        shape.rows = tokens_of(out);
      }
    }
    choose_tile(section, unit);
    return section;
  }

  /// Chooses tiles of equal width, in whole units and at most the class's columns, and as many tokens as the scratch
  /// holds.
  void choose_tile(TileSection& section, std::size_t unit) const {
    const auto [columns, tokens] = tile_size(kernels_.cpu_class);
    const std::size_t width = section.end - section.begin, tiles = (width + columns - 1) / columns;
    section.unit = unit;
    section.tile_width = std::min(((width + tiles - 1) / tiles + unit - 1) / unit * unit, (width + 15) / 16 * 16);
    if (section.tile_width > kTileFloats) fail("a tile is too wide");
    section.tile_tokens = tile_rows(section.tile_width, tokens);
  }

  /// The source op of one section; `from` is the section's packed weights or rows. Updates the unit of its tiles.
  TileInstr read_source(const plan::TileT& tile, const TileSection& section, const plan::Operand& from,
                        TileShape& shape, const CpuStep& out) const {
    const auto& source = tile.source;
    switch (source.type) {
      case Source::MatmulRows:
        return matmul(*source.AsMatmulRows(), from, shape);
      case Source::ExpertMatmulRows:
        return expert_matmul(*source.AsExpertMatmulRows(), from, shape, out);
      case Source::BatchedMatmulRows:
        return batched_matmul(*source.AsBatchedMatmulRows(), section, number(tile.cols, 1, kColumnsMax), from, shape);
      case Source::EmbeddedRows:
        return embedded(*source.AsEmbeddedRows(), from, shape);
      case Source::LoadedRows: {
        const auto x = rows_at(from, shape.rows, shape.width, false);
        return {.kind = TileOpKind::kLoad, .a = x.data, .stride = x.stride};
      }
      case Source::GatheredRows:
        return gathered(*source.AsGatheredRows(), from, shape, out);
      case Source::ExpertSumRows:
        return expert_sum(*source.AsExpertSumRows(), from, shape);
      default:
        fail("an unknown source");
    }
  }

  /// What all matmuls share: the kernels of the weight type, the length of a row, and the distance of rows of x.
  TileInstr product(TileOpKind kind, const plan::Operand& weights, std::uint16_t x, std::int64_t k,
                    TileShape& shape) const {
    TileInstr in{.kind = kind};
    const auto* type = find_dtype(weights.dtype());
    in.matmul = type == nullptr ? nullptr : kernels_.matmul(type->type);
    if (in.matmul == nullptr) fail("no matmul for this weight type");
    in.dtype = type->type;
    in.prompt_matmul = kernels_.prompt_matmul(in.dtype);
    in.k = number(k, 1, kWeightColumnsMax);
    if (in.k % dtype_info(in.dtype).block_elems != 0) fail("a row is not a whole number of blocks");
    in.group_bytes = quant::x16_group_bytes(in.dtype, in.k);
    in.x_row_bytes = operand(x).row_bytes();
    shape.unit = std::lcm(shape.unit, quant::kX16Rows);
    return in;
  }
  /// Bytes of a row of x: f32, or q8a_32 for quantised weights.
  static std::size_t x_bytes_of(const TileInstr& in) {
    return is_float(in.dtype) ? in.k * sizeof(float) : quant::q8a_row_bytes(in.k);
  }
  /// Resolves x (`rows` rows) and the weights.
  void take_operands(TileInstr& in, const plan::Operand& weights, std::uint16_t x, std::size_t rows,
                     std::size_t weight_bytes) const {
    const std::size_t x_bytes = x_bytes_of(in);
    require_type(x, is_float(in.dtype) ? DType::kF32 : DType::kQ8A_32);
    if (in.x_row_bytes < x_bytes) fail("rows of x overlap");
    in.a = read(x, (rows - 1) * in.x_row_bytes + x_bytes);
    in.b = resolve(weights, weight_bytes, false);
  }

  TileInstr matmul(const plan::MatmulRowsT& source, const plan::Operand& weights, TileShape& shape) const {
    auto in = product(TileOpKind::kMatmul, weights, source.x, source.k, shape);
    take_operands(in, weights, source.x, shape.rows, quant::x16_bytes(in.dtype, shape.width, in.k));
    return in;
  }

  /// A batched matmul: a token has one row of x per batch, [T, batches, k]. A section belongs to one batch, so it is a
  /// plain matmul whose x starts at its batch's row and skips the rows of the other batches.
  TileInstr batched_matmul(const plan::BatchedMatmulRowsT& source, const TileSection& section, std::size_t cols,
                           const plan::Operand& weights, TileShape& shape) const {
    const std::size_t batches = number(source.batches, 1, 1 << 16);
    if (cols % batches != 0) fail("its columns do not divide into equal batches");
    const std::size_t batch = section.begin / (cols / batches);
    if (section.end > (batch + 1) * (cols / batches)) fail("a section spans two batches");
    auto in = product(TileOpKind::kMatmul, weights, source.x, source.k, shape);
    const std::size_t batch_row = in.x_row_bytes;
    take_operands(in, weights, source.x, shape.rows * batches, quant::x16_bytes(in.dtype, shape.width, in.k));
    // x starts at this batch's row of the first token and skips the other batches' rows from token to token.
    in.a += batch * batch_row;
    in.x_row_bytes = batches * batch_row;
    return in;
  }

  /// An expert matmul: rows are slots (a token and one of its experts); `expert_bytes` is the distance of experts'
  /// weights.
  TileInstr expert_matmul(const plan::ExpertMatmulRowsT& source, const plan::Operand& weights, TileShape& shape,
                          const CpuStep& out) const {
    auto in = product(TileOpKind::kExpertMatmul, weights, source.x, source.k, shape);
    in.experts = number(source.experts, 1, static_cast<std::int64_t>(cpu::kExpertsMax));
    in.slots = out.slots;
    in.expert_bytes = number(source.expert_bytes, 1);
    in.shared_x = source.shared_x;
    in.chosen = ints(read(source.chosen, shape.rows * sizeof(std::int32_t)));
    const std::size_t bytes = quant::x16_bytes(in.dtype, shape.width, in.k);
    take_operands(in, weights, source.x, in.shared_x ? shape.rows / in.slots : shape.rows,
                  (in.experts - 1) * in.expert_bytes + bytes);
    return in;
  }

  /// Embedding lookup from a native or packed table. Tiles are whole rows.
  TileInstr embedded(const plan::EmbeddedRowsT& source, const plan::Operand& table, TileShape& shape) const {
    if (!shape.rows_are_tokens || operand(source.ids).index() == kRowsInput)
      fail("the embedded rows are not the step's tokens");
    TileInstr in{.kind = TileOpKind::kEmbed};
    const auto* type = find_dtype(table.dtype());
    if (type == nullptr || kernels_.matmul(type->type) == nullptr) fail("no embedding for this weight type");
    in.dtype = type->type;
    const auto layout = static_cast<quant::Layout>(table.layout());
    if (layout != quant::Layout::kNative && layout != quant::Layout::kX16) fail("no embedding from this layout");
    in.packed = layout == quant::Layout::kX16;
    in.k = number(source.k, 1, kWeightColumnsMax);
    if (in.k != shape.width || in.k % dtype_info(in.dtype).block_elems != 0)
      fail("an embedding row is not read as a whole");
    in.table_rows = number(source.table_rows, 1, kColumnsMax);
    const std::size_t bytes =
        in.packed ? quant::x16_bytes(in.dtype, in.table_rows, in.k) : in.table_rows * row_bytes(in.dtype, in.k);
    in.b = resolve(table, bytes, false);
    in.a = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(input(operand(source.ids))));
    shape.unit = (shape.width + 15) / 16 * 16;
    return in;
  }

  /// Gathers the rows whose logits are wanted.
  TileInstr gathered(const plan::GatheredRowsT& source, const plan::Operand& from, const TileShape& shape,
                     const CpuStep& out) const {
    const auto& indices = operand(source.indices);
    if (!out.rows_are_logits || out.slots != 1 || indices.index() != kRowsInput)
      fail("the gather's indices are not the logit rows");
    const auto x = rows_at(from, number(in_.bounds.tokens(), 1, kRowsMax), shape.width, false);
    return {.kind = TileOpKind::kGather,
            .a = x.data,
            .b = reinterpret_cast<const std::byte*>(input(indices)),
            .stride = x.stride};
  }

  /// Weighted sum of the rows of a token's slots.
  TileInstr expert_sum(const plan::ExpertSumRowsT& source, const plan::Operand& from, const TileShape& shape) const {
    const std::size_t slots = number(source.slots, 1, static_cast<std::int64_t>(cpu::kExpertsMax));
    if (shape.rows * slots > kRowsMax) fail("the step has too many rows");
    const auto x = rows_at(from, shape.rows * slots, shape.width, false);
    const auto shares = read_rows(source.shares, shape.rows, slots);  // may be columns of a wider value
    return {.kind = TileOpKind::kExpertRows,
            .a = x.data,
            .stride = x.stride,
            .slots = slots,
            .shares = floats(shares.data),
            .share_stride = shares.stride};
  }

  TileOpReader ops_;
};

}  // namespace

void read_tile(const PlanReader& reader, const plan::TileT& tile, CpuStep& out) {
  TileReader(reader).run(tile, out);
}

}  // namespace forge::runtime
