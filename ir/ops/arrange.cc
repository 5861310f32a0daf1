// arrange: builds the heads of attention operands from columns of several values. Multi-head latent attention (arXiv
// 2405.04434) needs it: its projections compute the parts of a head with and without RoPE separately, and attention
// takes them side by side. ArrangeAttrs describes the pieces.

#include <algorithm>
#include <array>
#include <numeric>

#include "ir/ops.h"

namespace forge::ir::ops {
namespace {

constexpr std::int64_t kHeadsMax = 1 << 16;
constexpr std::size_t kPiecesMax = 64;

/// Columns of a row of [M,N] or [M,U,N].
std::int64_t row_width(const TensorType& type) {
  return type.cols() * (type.shape.size() == 3 ? type.shape[1].value : 1);
}

void check_piece(const ArrangeAttrs& attrs, std::size_t piece, Types operands) {
  const auto source = attrs.sources[piece], begin = attrs.begins[piece], stride = attrs.strides[piece];
  attr_between("arrange", "sources", source, -1, static_cast<std::int64_t>(operands.size()) - 1);
  attr_between("arrange", "widths", attrs.widths[piece], 1, kCountMax);
  attr_between("arrange", "begins", begin, 0, kCountMax);
  attr_between("arrange", "strides", stride, 0, kCountMax);
  if (source < 0) return;
  const auto& type = operands[static_cast<std::size_t>(source)];
  const std::int64_t end = begin + (attrs.heads - 1) * stride + attrs.widths[piece];
  if (end > row_width(type))
    refuse_operand("arrange", static_cast<std::size_t>(source), type,
                   fmt::format("at least {} columns wide, the end of piece {}", end, piece));
}

std::vector<TensorType> infer_arrange(const Attrs& attrs, Types operands) {
  const auto& arrange = std::get<ArrangeAttrs>(attrs);
  attr_between("arrange", "heads", arrange.heads, 1, kHeadsMax);
  attr_between("arrange", "slots", arrange.slots, 0, 1);
  const std::size_t pieces = arrange.sources.size();
  if (pieces == 0 || pieces > kPiecesMax || arrange.begins.size() != pieces || arrange.strides.size() != pieces ||
      arrange.widths.size() != pieces)
    refuse_attr("arrange", "sources", fmt::format("has {} entries", pieces),
                fmt::format("1 to {}, as many as begins, strides and widths", kPiecesMax));
  for (std::size_t i = 0; i < operands.size(); ++i) {
    require_rows("arrange", operands, i);
    if (operands[i].shape[0] != operands[0].shape[0])
      refuse_operand("arrange", i, operands[i], "as many rows as operand 0, " + operands[0].text());
  }
  for (std::size_t i = 0; i < pieces; ++i) check_piece(arrange, i, operands);
  const auto width = std::accumulate(arrange.widths.begin(), arrange.widths.end(), std::int64_t{0});
  attr_between("arrange", "widths", width, 1, kCountMax / arrange.heads);
  if (arrange.slots == 1) return {{DType::kF32, {operands[0].shape[0], arrange.heads, width}}};
  return {{DType::kF32, {operands[0].shape[0], arrange.heads * width}}};
}

Cost arrange_cost(const Attrs&, Types, Types results, const Bounds& bounds) {
  return {.activation_bytes = 2 * results[0].bytes(bounds)};
}

/// Writes the result from front to back; the order row, head, piece is its memory order with and without slots.
void run_arrange(const Attrs& attrs, Operands operands, Results results, EvalContext&) {
  const auto& arrange = std::get<ArrangeAttrs>(attrs);
  const auto width = std::accumulate(arrange.widths.begin(), arrange.widths.end(), std::int64_t{0});
  auto& out = results[0].f32;
  const auto rows = static_cast<std::int64_t>(out.size()) / (arrange.heads * width);
  auto to = out.begin();
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t head = 0; head < arrange.heads; ++head)
      for (std::size_t piece = 0; piece < arrange.sources.size(); ++piece) {
        if (arrange.sources[piece] < 0) {
          to = std::fill_n(to, arrange.widths[piece], 0.0F);
          continue;
        }
        const auto& from = operands[static_cast<std::size_t>(arrange.sources[piece])]->f32;
        const auto columns = static_cast<std::int64_t>(from.size()) / rows;
        to = std::copy_n(from.begin() + row * columns + arrange.begins[piece] + head * arrange.strides[piece],
                         arrange.widths[piece], to);
      }
}

}  // namespace

std::span<const OpDef> arrange_defs() {
  static constexpr std::array kDefs{
      OpDef{.op = Op::kArrange,
            .name = "arrange",
            .operands_min = 1,
            .operands_max = 255,
            .attrs_index = attrs_index<ArrangeAttrs>(),
            .infer = infer_arrange,
            .cost = arrange_cost,
            .reference = run_arrange},
  };
  return kDefs;
}

}  // namespace forge::ir::ops
