#include "runtime/cpu/read_arrange.h"

namespace forge::runtime {
namespace {

constexpr std::int64_t kFloatsMax = 1 << 24;  // of a row
constexpr std::size_t kPiecesBegin = 3, kPieceInts = 5;

class ArrangeReader : PlanReader {
 public:
  explicit ArrangeReader(const PlanReader& reader) : PlanReader(reader) {}

  void run(const plan::StepT& step, const CpuVariant& variant, CpuStep& to) const {
    to.kind = StepKind::kArrange;
    to.rows_are_logits = int_at(step.ints, 0, 0, 1) == 1;
    const std::size_t rows = to.rows_are_logits ? variant.rows : variant.tokens;
    ArrangeStep out{.heads = int_at(step.ints, 1, 1, 1 << 16), .out_stride = int_at(step.ints, 2, 1, kFloatsMax)};
    std::size_t width = 0;
    for (std::size_t at = kPiecesBegin; at < step.ints.size(); at += kPieceInts) {
      out.pieces.push_back(piece(step, at, out.heads, rows));
      width += out.pieces.back().width;
      if (width > static_cast<std::size_t>(kFloatsMax)) fail("its row is too wide");
    }
    auto* address = resolve_rows(ref_at(step.refs, 0), rows, out.heads * width, out.out_stride, true);
    out.out = reinterpret_cast<float*>(address);
    to.arrange = std::move(out);
  }

 private:
  ArrangeStep::Piece piece(const plan::StepT& step, std::size_t at, std::size_t heads, std::size_t rows) const {
    ArrangeStep::Piece piece{.row_floats = int_at(step.ints, at + 1, 1, kFloatsMax),
                             .head_floats = int_at(step.ints, at + 3, 0, kFloatsMax),
                             .width = int_at(step.ints, at + 4, 1, kFloatsMax)};
    const std::size_t operand = int_at(step.ints, at, 0, 1 << 16), begin = int_at(step.ints, at + 2, 0, kFloatsMax);
    if (operand == 0) return piece;
    const std::size_t end = begin + (heads - 1) * piece.head_floats + piece.width;
    const auto* address = resolve_rows(ref_at(step.refs, operand), rows, end, piece.row_floats, false);
    piece.from = reinterpret_cast<const float*>(address) + begin;
    return piece;
  }
};

}  // namespace

void read_arrange(const PlanReader& reader, const plan::StepT& step, const CpuVariant& variant, CpuStep& out) {
  ArrangeReader(reader).run(step, variant, out);
}

}  // namespace forge::runtime
