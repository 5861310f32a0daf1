#include "runtime/cpu/cpu_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/quant/q8a.h"
#include "kernels/quant/x16.h"
#include "runtime/cpu/plan_reader.h"
#include "runtime/cpu/read_arrange.h"
#include "support/error.h"

namespace forge::runtime {
namespace {

using plan::TileOpKind;

constexpr std::size_t kRowsMax = 1 << 20;      // with kNumberMax: no product of sizes leaves 64 bits
constexpr std::int64_t kColumnsMax = 1 << 28;  // nor of a weight's bytes: rows of 1 << 24 elements

class Decoder : PlanReader {
 public:
  Decoder(const plan::VariantT& variant, const plan::ProgramT& program, const Blocks& blocks, const StepIo& io,
          const cpu::Kernels& kernels)
      : PlanReader(variant, program, blocks, io), kernels_(kernels) {}

  CpuVariant run() {
    out_.name = in_.name;
    out_.tokens = number(in_.bounds.tokens(), 1, 1 << 20);
    out_.rows = number(in_.bounds.rows(), 1, 1 << 20);
    out_.sequences = number(in_.bounds.sequences(), 1, 1 << 20);
    out_.table_blocks = number(in_.bounds.table_blocks(), 1, 1 << 24);
    out_.hidden_width = number(in_.hidden_width, 0, 1 << 24);
    for (const auto& step : in_.steps) {
      if (step == nullptr) fail("a step is missing");
      step_ = step.get();
      out_.steps.push_back(decode(*step));
    }
    return std::move(out_);
  }

 private:
  CpuStep decode(const plan::StepT& step) {
    CpuStep out{.label = step.label,
                .layer = step.layer,
                .weight_bytes = step.weight_bytes,
                .activation_bytes = step.activation_bytes,
                .flops = step.flops};
    if (step.kernel == "tile" || step.kernel == "experts") {
      out.kind = step.kernel == "tile" ? StepKind::kTile : StepKind::kExperts;
      decode_tile(step, out);
    } else if (step.kernel == "route") {
      out.kind = StepKind::kRoute;
      decode_route(step, out);
    } else if (step.kernel == "attention") {
      out.kind = StepKind::kAttention;
      decode_attention(step, out.attention);
    } else if (step.kernel == "rms_norm") {
      out.kind = StepKind::kRmsNorm;
      decode_rms_norm(step, out);
    } else if (step.kernel == "rope_freqs") {
      out.kind = StepKind::kRopeFreqs;
      decode_rope_freqs(step, out.row);
    } else if (const bool tempered = step.kernel == "rope_table_tempered"; tempered || step.kernel == "rope_table") {
      out.kind = StepKind::kRopeTable;
      auto& row = out.row;
      row.dim = int_at(step.ints, 0, 2, 1 << 16);
      row.magnitude = {.base = float_at(step.floats, 0)};
      if (tempered) row.magnitude.temperature = float_at(step.floats, 1);
      if (tempered) row.magnitude.length = static_cast<std::int32_t>(int_at(step.ints, 1, 1, INT32_MAX));
      row.a = resolve(ref_at(step.refs, 0), row.dim / 2 * sizeof(float), false);
      row.out = resolve_rows(ref_at(step.refs, 1), out_.tokens, row.dim, row.dim, true);
    } else if (step.kernel == "arrange") {
      read_arrange(*this, step, out_, out);
    } else if (step.kernel == "split_interleaved") {
      out.kind = StepKind::kSplit;
      decode_split(step, out);
    } else {
      fail("kernel '" + printable(step.kernel) + "' is unknown");
    }
    return out;
  }

  std::size_t tokens_of(const CpuStep& step) const { return step.rows_are_logits ? out_.rows : out_.tokens; }
  std::size_t rows_of(const CpuStep& step) const { return tokens_of(step) * step.slots; }
  void decode_slots(const plan::StepT& step, std::size_t i, CpuStep& out) const {
    out.slots = int_at(step.ints, i, 1, cpu::kExpertsMax);
    if (rows_of(out) > kRowsMax) fail("it has too many rows");
  }

  void decode_route(const plan::StepT& step, CpuStep& out) {
    auto& route = out.route;
    auto& p = route.params;
    out.rows_are_logits = int_at(step.ints, 0, 0, 1) == 1;
    p.experts = int_at(step.ints, 1, 1, cpu::kExpertsMax);
    route.stride = int_at(step.ints, 2, 1);
    p.used = int_at(step.ints, 3, 1, cpu::kExpertsMax);
    p.sigmoid = int_at(step.ints, 4, 0, 1) == 1;
    p.over_chosen = int_at(step.ints, 5, 0, 1) == 1;
    p.groups = int_at(step.ints, 6, 1, cpu::kExpertsMax);
    p.groups_used = int_at(step.ints, 7, 1, cpu::kExpertsMax);
    p.group_top = int_at(step.ints, 8, 1, cpu::kExpertsMax);
    if (p.experts % p.groups != 0 || p.groups_used > p.groups || p.group_top > p.experts / p.groups ||
        p.used > p.experts / p.groups * p.groups_used)
      fail("its experts and groups do not fit together");
    p.scale = float_at(step.floats, 0);
    const std::size_t rows = rows_of(out);
    route.logits = floats(resolve_rows(ref_at(step.refs, 0), rows, p.experts, route.stride, false));
    route.experts = ints(resolve(ref_at(step.refs, 1), rows * p.used * sizeof(std::int32_t), true));
    route.shares = floats(resolve_rows(ref_at(step.refs, 2), rows, p.used, p.used, true));
    if (step.refs.size() > 3) p.bias = floats(resolve(step.refs[3], p.experts * sizeof(float), false));
  }

  void decode_rms_norm(const plan::StepT& step, CpuStep& out) {
    auto& row = out.row;
    out.rows_are_logits = int_at(step.ints, 0, 0, 1) == 1;
    row.cols = int_at(step.ints, 1, 1);
    row.dim = int_at(step.ints, 2, 1);
    if (row.cols % row.dim != 0) fail("the norm does not divide its row");
    row.a_stride = int_at(step.ints, 3, 1);
    row.out_stride = int_at(step.ints, 4, 1);
    row.eps = float_at(step.floats, 0);
    row.a = resolve_rows(ref_at(step.refs, 0), rows_of(out), row.cols, row.a_stride, false);
    row.b = resolve(ref_at(step.refs, 1), row.dim * sizeof(float), false);
    row.out = resolve_rows(ref_at(step.refs, 2), rows_of(out), row.cols, row.out_stride, true);
  }

  void decode_rope_freqs(const plan::StepT& step, RowStep& row) {
    auto& rope = row.rope;
    rope.dims = int_at(step.ints, 0, 2, 1 << 16);
    rope.scaling = static_cast<cpu::RopeScaling>(int_at(step.ints, 1, 0, 2));
    rope.original_context = int_at(step.ints, 2, 0);
    rope.base = float_at(step.floats, 0);
    rope.factor = float_at(step.floats, 1);
    rope.ext_factor = float_at(step.floats, 2);
    rope.beta_fast = float_at(step.floats, 3);
    rope.beta_slow = float_at(step.floats, 4);
    row.out = resolve(ref_at(step.refs, 0), rope.dims / 2 * sizeof(float), true);
    if (step.refs.size() > 1)
      rope.freq_factors = reinterpret_cast<const float*>(resolve(step.refs[1], rope.dims / 2 * sizeof(float), false));
  }

  void decode_split(const plan::StepT& step, CpuStep& out) {
    auto& row = out.row;
    out.rows_are_logits = int_at(step.ints, 0, 0, 1) == 1;
    row.unit = int_at(step.ints, 1, 1);
    row.cols = int_at(step.ints, 2, 1);
    if (row.cols % row.unit != 0 || step.refs.size() != 3) fail("an interleaved split of other than two equal parts");
    decode_slots(step, 6, out);
    row.a_stride = int_at(step.ints, 3, 1);
    row.out_stride = int_at(step.ints, 4, 1);
    row.out2_stride = int_at(step.ints, 5, 1);
    row.a = resolve_rows(step.refs[0], rows_of(out), 2 * row.cols, row.a_stride, false);
    row.out = resolve_rows(step.refs[1], rows_of(out), row.cols, row.out_stride, true);
    row.out2 = resolve_rows(step.refs[2], rows_of(out), row.cols, row.out2_stride, true);
  }

  // ---- tile programs ----

  void decode_tile(const plan::StepT& step, CpuStep& out) {
    out.rows_are_logits = int_at(step.ints, 0, 0, 1) == 1;
    const auto cols = int_at(step.ints, 1, 1, kColumnsMax);
    decode_slots(step, 2, out);
    for (std::size_t i = 0; i < step.ops.size();) {
      TileSection section;
      const auto& source = op_at(step, i);
      section.begin = number(source.column_begin, 0);
      section.end = number(source.column_end, 1);
      if (section.begin >= section.end || section.end > cols) fail("a section is no range of columns");
      std::size_t width = section.end - section.begin, rows = rows_of(out);
      const std::size_t unit = decode_source(source, section, rows);
      check_source(out, section.ops[0]);
      check_inputs(source, out.rows_are_logits, out.slots);
      // tokens' own rows alone are a prompt's or not: experts' and logits' all meet one matmul
      if (out.rows_are_logits || out.slots > 1) section.ops[0].prompt_matmul = section.ops[0].matmul;
      bool halved = false;
      for (++i; i < step.ops.size() && !is_source(op_at(step, i)); ++i) {
        const auto& op = op_at(step, i);
        if (number(op.column_begin, 0) != section.begin || number(op.column_end, 1) != section.end)
          fail("an op's columns are not its section's");
        section.ops.push_back(decode_op(op, rows, width, unit, halved));
        check_inputs(op, out.rows_are_logits, out.slots);
        if (section.ops.back().kind == TileOpKind::kGlu) {
          width /= 2;
          halved = true;
        }
        if (section.ops.back().kind == TileOpKind::kSumExperts) {
          if (out.kind != StepKind::kExperts || section.sum_at != 0 || halved) fail("a sum of no experts");
          section.sum_at = section.ops.size() - 1;
          rows = tokens_of(out);
        }
      }
      choose_tile(section, unit);
      out.sections.push_back(std::move(section));
    }
    if (out.sections.empty()) fail("a tile program without a source");
    for (const auto& section : out.sections)
      if ((section.sum_at == 0) != (out.sections[0].sum_at == 0)) fail("only some sections sum their experts");
  }

  /// An experts step has experts' matmuls for sources, all of the same experts, and sums all of them or none.
  void check_source(const CpuStep& out, const TileInstr& source) const {
    if ((source.kind == TileOpKind::kExpertMatmul) != (out.kind == StepKind::kExperts))
      fail("its source is another kernel's");
    if (out.kind != StepKind::kExperts) return;
    const auto& first = out.sections.empty() ? source : out.sections[0].ops[0];
    if (source.slots != out.slots || source.chosen != first.chosen || source.experts != first.experts ||
        source.shared_x != first.shared_x)
      fail("its sections are of different experts");
  }

  const plan::TileOpT& op_at(const plan::StepT& step, std::size_t i) const {
    if (step.ops[i] == nullptr) fail("an op is missing");
    return *step.ops[i];
  }
  static bool is_source(const plan::TileOpT& op) { return op.kind < static_cast<std::uint16_t>(TileOpKind::kInvRms); }

  /// Equal tiles of at most the class's columns, in whole units, and as many tokens as the scratch holds.
  void choose_tile(TileSection& section, std::size_t unit) const {
    const auto [columns, tokens] = tile_size(kernels_.cpu_class);
    const std::size_t width = section.end - section.begin, tiles = (width + columns - 1) / columns;
    section.unit = unit;
    section.tile_width = std::min(((width + tiles - 1) / tiles + unit - 1) / unit * unit, (width + 15) / 16 * 16);
    if (section.tile_width > kTileFloats) fail("a tile is too wide");
    section.tile_tokens = tile_rows(section.tile_width, tokens);
  }

  /// Appends the source's instruction; returns the unit of the section's tile widths.
  std::size_t decode_source(const plan::TileOpT& op, TileSection& section, std::size_t rows) {
    TileInstr in{.kind = static_cast<TileOpKind>(op.kind)};
    const std::size_t width = section.end - section.begin;
    std::size_t unit = 1;
    switch (in.kind) {
      case TileOpKind::kMatmul:
      case TileOpKind::kExpertMatmul: {
        const bool experts = in.kind == TileOpKind::kExpertMatmul;
        std::size_t x_rows = rows;
        if (experts) {
          in.experts = int_at(op.ints, 4, 1, cpu::kExpertsMax);
          in.slots = int_at(op.ints, 5, 1, cpu::kExpertsMax);
          in.expert_bytes = int_at(op.ints, 6, 1);
          in.shared_x = int_at(op.ints, 7, 0, 1) == 1;
          in.chosen = ints(resolve(ref_at(op.refs, 2), rows * sizeof(std::int32_t), false));
          if (in.shared_x) x_rows = rows / in.slots;
        }
        in.dtype = static_cast<DType>(int_at(op.ints, 0, 0, 255));
        in.matmul = kernels_.matmul(in.dtype);
        if (in.matmul == nullptr) fail("no matmul for this weight type");
        in.prompt_matmul = kernels_.prompt_matmul(in.dtype);
        in.k = int_at(op.ints, 1, 1, 1 << 24);
        if (in.k % dtype_info(in.dtype).block_elems != 0) fail("a row is no whole blocks");
        in.x_row_bytes = int_at(op.ints, 2, 1);
        unit = std::max<std::size_t>(int_at(op.ints, 3, 1, 1 << 20), 1);
        unit = std::lcm(unit, quant::kX16Rows);
        const std::size_t x_bytes = is_float(in.dtype) ? in.k * sizeof(float) : quant::q8a_row_bytes(in.k);
        if (in.x_row_bytes < x_bytes) fail("rows of x overlap");
        in.a = resolve(ref_at(op.refs, 0), (x_rows - 1) * in.x_row_bytes + x_bytes, false);
        const std::size_t expert_bytes = quant::x16_bytes(in.dtype, width, in.k);
        in.b = resolve(ref_at(op.refs, 1), experts ? (in.experts - 1) * in.expert_bytes + expert_bytes : expert_bytes,
                       false);
        in.group_bytes = quant::x16_group_bytes(in.dtype, in.k);
        break;
      }
      case TileOpKind::kEmbed: {
        in.dtype = static_cast<DType>(int_at(op.ints, 0, 0, 255));
        if (kernels_.matmul(in.dtype) == nullptr) fail("no embedding for this weight type");
        in.packed = int_at(op.ints, 1, 0, 1) == 1;
        in.k = int_at(op.ints, 2, 1, 1 << 24);
        if (in.k != width || in.k % dtype_info(in.dtype).block_elems != 0) fail("an embedding row is cut");
        in.table_rows = int_at(op.ints, 3, 1, kColumnsMax);
        const std::size_t table =
            in.packed ? quant::x16_bytes(in.dtype, in.table_rows, in.k) : in.table_rows * row_bytes(in.dtype, in.k);
        in.b = resolve(ref_at(op.refs, 0), table, false);
        in.a = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(input(ref_at(op.refs, 1))));
        unit = (width + 15) / 16 * 16;
        break;
      }
      case TileOpKind::kExpertRows:
        in.stride = int_at(op.ints, 0, 1);
        in.slots = int_at(op.ints, 1, 1, cpu::kExpertsMax);
        if (rows * in.slots > kRowsMax) fail("it has too many rows");
        in.a = resolve_rows(ref_at(op.refs, 0), rows * in.slots, width, in.stride, false);
        in.shares = floats(resolve_rows(ref_at(op.refs, 1), rows, in.slots, in.slots, false));
        break;
      case TileOpKind::kLoad:
      case TileOpKind::kGather:
        in.stride = int_at(op.ints, 0, 1);
        unit = int_at(op.ints, 1, 1, 1 << 20);
        in.a = resolve_rows(ref_at(op.refs, 0), in.kind == TileOpKind::kGather ? out_.tokens : rows, width, in.stride,
                            false);
        if (in.kind == TileOpKind::kGather) in.b = reinterpret_cast<const std::byte*>(input(ref_at(op.refs, 1)));
        break;
      default:
        fail("a tile program starts with something else than a source");
    }
    section.ops.push_back(in);
    return unit;
  }

  TileInstr decode_op(const plan::TileOpT& op, std::size_t rows, std::size_t width, std::size_t unit, bool halved) {
    TileInstr in{.kind = static_cast<TileOpKind>(op.kind)};
    const std::size_t unit_now = halved ? unit / 2 : unit;
    switch (in.kind) {
      case TileOpKind::kInvRms:
        in.count = int_at(op.ints, 0, 1, 1 << 20);
        in.k = int_at(op.ints, 1, 1, 1 << 24);
        in.eps = float_at(op.floats, 0);
        in.slots = int_at(op.ints, 2, 1, cpu::kExpertsMax);
        if (rows % in.slots != 0) fail("its slots are no whole tokens");
        in.a = resolve_rows(ref_at(op.refs, 0), rows / in.slots, in.count, in.count, false);
        break;
      case TileOpKind::kAddExpertVector:
        in.stride = int_at(op.ints, 0, 1);
        in.experts = int_at(op.ints, 1, 1, cpu::kExpertsMax);
        in.a = resolve_rows(ref_at(op.refs, 0), in.experts, width, in.stride, false);
        in.chosen = ints(resolve(ref_at(op.refs, 1), rows * sizeof(std::int32_t), false));
        break;
      case TileOpKind::kSumExperts:
        in.shares = floats(resolve(ref_at(op.refs, 0), rows * sizeof(float), false));
        break;
      case TileOpKind::kAddVector:
      case TileOpKind::kMulVector:
        in.a = resolve(ref_at(op.refs, 0), width * sizeof(float), false);
        break;
      case TileOpKind::kAddTensor:
      case TileOpKind::kMulTensor:
        in.stride = int_at(op.ints, 0, 1);
        in.a = resolve_rows(ref_at(op.refs, 0), rows, width, in.stride, false);
        break;
      case TileOpKind::kStore:
        in.stride = int_at(op.ints, 0, 1);
        in.a = resolve_rows(ref_at(op.refs, 0), rows, width, in.stride, true);
        break;
      case TileOpKind::kScale:
        in.factor = float_at(op.floats, 0);
        break;
      case TileOpKind::kGlu:
        in.gated = gated_kernel(op);
        in.count = int_at(op.ints, 1, 1, 1 << 16);
        if (halved || unit % (2 * in.count) != 0 || width % (2 * in.count) != 0)
          fail("a GLU's pairs do not fit its tile");
        break;
      case TileOpKind::kGluTensor:
        in.gated = gated_kernel(op);
        in.stride = int_at(op.ints, 1, 1);
        in.a = resolve_rows(ref_at(op.refs, 0), rows, width, in.stride, false);
        break;
      case TileOpKind::kActivate:
        in.activate = activation_kernel(op);
        break;
      case TileOpKind::kSoftcap:
        in.factor = float_at(op.floats, 0);
        break;
      case TileOpKind::kRmsNorm:
      case TileOpKind::kLayerNorm:
        decode_norm(op, in, width, unit_now);
        break;
      case TileOpKind::kRope:
        in.head_dim = int_at(op.ints, 0, 2, 1 << 16);
        in.rotary = int_at(op.ints, 1, 2, 1 << 16);
        in.rope_mode = static_cast<cpu::RopeMode>(int_at(op.ints, 2, 0, 1));
        if (in.rotary % 2 != 0 || in.rotary > in.head_dim || width % in.head_dim != 0 || unit_now % in.head_dim != 0)
          fail("RoPE does not fit its heads");
        in.a = resolve_rows(ref_at(op.refs, 0), rows, in.rotary, in.rotary, false);
        break;
      case TileOpKind::kSumSquares:
        in.stride = int_at(op.ints, 0, 1);
        if (unit_now % 16 != 0) fail("sums of squares cut their blocks");
        in.a = resolve_rows(ref_at(op.refs, 0), rows, (width + 15) / 16, in.stride, true);
        break;
      case TileOpKind::kQuantize:
        in.k = int_at(op.ints, 0, 32, 1 << 24);
        in.block = int_at(op.ints, 1, 0, 1 << 20);
        if (unit_now % 32 != 0 || width % 32 != 0 || in.k % 32 != 0 || in.block * 32 + width > in.k)
          fail("a quantised row is cut");
        in.x_row_bytes = quant::q8a_row_bytes(in.k);
        in.a = resolve(ref_at(op.refs, 0), rows * in.x_row_bytes, true);
        break;
      case TileOpKind::kStoreK:
      case TileOpKind::kStoreV:
        decode_kv_store(op, in, width, unit_now);
        break;
      default:
        fail(fmt::format("tile op {} is unknown", op.kind));
    }
    return in;
  }

  void decode_norm(const plan::TileOpT& op, TileInstr& in, std::size_t width, std::size_t unit) const {
    in.head_dim = int_at(op.ints, 0, 1, kTileFloats);
    in.shared = int_at(op.ints, 1, 0, 1) == 1;
    in.eps = float_at(op.floats, 0);
    const bool whole_rows = unit >= width;
    if (width % in.head_dim != 0 || (unit % in.head_dim != 0 && !whole_rows)) fail("a norm does not fit its tile");
    if (in.kind == TileOpKind::kRmsNorm && !in.shared) fail("an RMS norm's heads share their weight");
    const std::size_t bytes = (in.shared ? in.head_dim : width) * sizeof(float);
    in.a = resolve(ref_at(op.refs, 0), bytes, false);
    if (op.refs.size() > 1) in.b = resolve(op.refs[1], bytes, false);
  }

  auto gated_kernel(const plan::TileOpT& op) const -> decltype(TileInstr::gated) {
    const std::array kernels{kernels_.swiglu, kernels_.geglu, kernels_.clamped_swiglu};
    return kernels.at(static_cast<std::size_t>(int_at(op.ints, 0, 0, 2)));
  }
  auto activation_kernel(const plan::TileOpT& op) const -> decltype(TileInstr::activate) {
    const auto number = int_at(op.ints, 0, 0, 3);
    if (number == 2) fail("its activation is a GLU's");
    return number == 0 ? kernels_.silu : number == 1 ? kernels_.gelu : kernels_.relu_squared;
  }

  void decode_kv_store(const plan::TileOpT& op, TileInstr& in, std::size_t width, std::size_t unit) {
    const auto& ref = ref_at(op.refs, 0);
    const auto& group = kv_group(ref);
    in.dtype = kv_type_of(group);
    in.head_dim = number(group.head_dim(), 1);
    in.kv_heads = number(group.kv_heads(), 1);
    const std::size_t first = int_at(op.ints, 0, 0);
    if (first % in.head_dim != 0 || width % in.head_dim != 0 || unit % in.head_dim != 0 ||
        first + width > in.head_dim * in.kv_heads)
      fail("a KV store is no whole heads");
    in.first_head = first / in.head_dim;
    in.kv_group = ref.index();
    in.kv_offset = layer_offset(ref);
  }

  /// Where a layer's block begins inside one block over all layers of its group.
  std::size_t layer_offset(const plan::Ref& ref) const {
    return ref.offset() * static_cast<std::size_t>(program_.kv_groups[ref.index()].block_bytes());
  }

  void decode_attention(const plan::StepT& step, AttentionStep& out) {
    const auto& kv = ref_at(step.refs, 1);
    const auto& group = kv_group(kv);
    const std::size_t heads = int_at(step.ints, 0, 1, 1 << 16);
    auto& params = out.params;
    params.kv_heads = int_at(step.ints, 1, 1, 1 << 16);
    params.head_dim = int_at(step.ints, 2, 1, cpu::kHeadDimMax);
    if (heads % params.kv_heads != 0 || params.kv_heads != static_cast<std::size_t>(group.kv_heads()) ||
        params.head_dim != static_cast<std::size_t>(group.head_dim()))
      fail("the attention's heads are not its KV group's");
    params.group = heads / params.kv_heads;
    params.window = static_cast<std::int32_t>(int_at(step.ints, 3, 0, std::numeric_limits<std::int32_t>::max()));
    params.scale = float_at(step.floats, 0);
    params.softcap = float_at(step.floats, 1);
    params.kv_type = kv_type_of(group);
    if (group.window() > 0 && (params.window == 0 || params.window > group.window()))
      fail("the attention sees further back than its KV group keeps");
    out.kv_group = kv.index();
    params.pool = blocks_.kv[kv.index()].data + layer_offset(kv);
    params.block_stride = blocks_.kv[kv.index()].block_stride;
    out.q_stride = int_at(step.ints, 4, 1);
    out.q = reinterpret_cast<const float*>(
        resolve_rows(step.refs[0], out_.tokens, heads * params.head_dim, out.q_stride, false));
    const std::size_t scratch = int_at(step.ints, 5, 0);
    out.split_tokens = int_at(step.ints, 6, 0, 64);
    out.chunks_max = cpu::attention_chunks(out_.table_blocks * cpu::kKvBlockTokens);
    const std::size_t needed =
        out.split_tokens * heads * out.chunks_max * cpu::attention_partial_floats(params.head_dim) * sizeof(float);
    if (scratch < needed) fail("the attention's scratch is too small");
    if (scratch > 0) out.partials = reinterpret_cast<float*>(resolve(ref_at(step.refs, 2), scratch, true));
    if (step.refs.size() > 3) out.sinks = floats(resolve(step.refs[3], heads * sizeof(float), false));
    const std::size_t width = heads * params.head_dim;
    for (std::size_t i = 0; i < step.ops.size(); ++i) {
      const auto& op = op_at(step, i);
      const auto kind = static_cast<TileOpKind>(op.kind);
      if (kind != TileOpKind::kStore && kind != TileOpKind::kQuantize) fail("attention can only store or quantise");
      out.ops.push_back(decode_op(op, out_.tokens, width, params.group * params.head_dim, false));
    }
  }

  const cpu::Kernels& kernels_;
  CpuVariant out_;
};

}  // namespace

DType kv_type_of(const plan::KvGroup& group) {
  if (group.layers() >= 1 && group.layers() <= 1 << 16 && group.kv_heads() >= 1 && group.kv_heads() <= 1 << 16 &&
      group.head_dim() >= 1 && group.head_dim() <= static_cast<std::int32_t>(cpu::kHeadDimMax) &&
      group.block_tokens() == static_cast<std::int32_t>(cpu::kKvBlockTokens)) {
    const auto heads = static_cast<std::size_t>(group.kv_heads()),
               head_dim = static_cast<std::size_t>(group.head_dim());
    for (const DType type : {DType::kF16, DType::kQ8_0})
      if (cpu::kv_type_fits(type, head_dim) &&
          static_cast<std::size_t>(group.block_bytes()) == cpu::kv_block_bytes({type, heads, head_dim}))
        return type;
  }
  throw Error(ErrorCode::kPlan, "the plan's KV geometry is broken", {}, "compile the plan again");
}

CpuVariant decode_variant(const plan::VariantT& variant, const plan::ProgramT& program, const Blocks& blocks,
                          StepIo& io, const cpu::Kernels& kernels) {
  return Decoder(variant, program, blocks, io, kernels).run();
}

}  // namespace forge::runtime
