// Reads steps that work on whole rows: norms, MoE routing, RoPE tables, splits and arrangements.

#include <limits>

#include "runtime/cpu/read_steps.h"

namespace forge::runtime {
namespace {

constexpr std::int64_t kRotaryMax = 1 << 16, kHeadsMax = 1 << 16;
constexpr std::int64_t kRowFloatsMax = 1 << 24;

class RowsReader : PlanReader {
 public:
  explicit RowsReader(const PlanReader& reader) : PlanReader(reader) {}

  void norm(const plan::NormRowsT& norm, CpuStep& out) const {
    out.kind = StepKind::kRmsNorm;
    take_rows(norm.rows, out);
    auto& row = out.row;
    row.cols = number(norm.cols, 1);
    row.dim = number(norm.dim, 1);
    if (row.cols % row.dim != 0) fail("the norm's size does not divide its row");
    row.eps = norm.eps;
    const auto x = read_rows(norm.x, rows_of(out), row.cols), y = writable_rows(norm.out, rows_of(out), row.cols);
    row.a = x.data, row.a_stride = x.stride;
    row.b = read(norm.weight, row.dim * sizeof(float));
    row.out = y.data, row.out_stride = y.stride;
  }

  void match_rms(const plan::MatchRmsT& match, CpuStep& out) const {
    out.kind = StepKind::kMatchRms;
    take_rows(match.rows, out);
    auto& row = out.row;
    row.cols = number(match.cols, 1);
    const auto x = read_rows(match.x, rows_of(out), row.cols), like = read_rows(match.like, rows_of(out), row.cols),
               y = writable_rows(match.out, rows_of(out), row.cols);
    row.a = x.data, row.a_stride = x.stride;
    row.b = like.data, row.b_stride = like.stride;
    row.out = y.data, row.out_stride = y.stride;
  }

  void gaussian_topk(const plan::GaussianTopkT& topk, CpuStep& out) const {
    out.kind = StepKind::kGaussianTopk;
    take_rows(topk.rows, out);
    auto& row = out.row;
    row.cols = number(topk.cols, 2);
    row.cutoff = topk.cutoff;
    const auto x = read_rows(topk.x, rows_of(out), row.cols), y = writable_rows(topk.out, rows_of(out), row.cols);
    row.a = x.data, row.a_stride = x.stride;
    row.out = y.data, row.out_stride = y.stride;
  }

  void route(const plan::RouteT& route, CpuStep& out) const {
    constexpr bool kIsSigmoid[] = {false, true}, kNormalizesTopK[] = {false, true};
    constexpr auto kMost = static_cast<std::int64_t>(cpu::kExpertsMax);
    out.kind = StepKind::kRoute;
    take_rows(route.rows, out);
    auto& p = out.route.params;
    p.experts = number(route.experts, 1, kMost);
    p.used = number(route.used, 1, kMost);
    p.groups = number(route.groups, 1, kMost);
    p.groups_used = number(route.groups_used, 1, kMost);
    p.group_top = number(route.group_top, 1, kMost);
    p.experts_per_adjugate = number(route.experts_per_adjugate, 1, kMost);
    p.sigmoid = member(route.gate, kIsSigmoid);
    p.over_chosen = member(route.share, kNormalizesTopK);
    p.scale = route.scale;
    if (p.experts % p.groups != 0 || p.groups_used > p.groups || p.group_top > p.experts / p.groups ||
        p.used > p.experts / p.groups * p.groups_used)
      fail("the numbers of experts and groups do not fit together");
    const std::size_t rows = rows_of(out);
    const auto logits = read_rows(route.logits, rows, p.experts);
    out.route.logits = floats(logits.data);
    out.route.stride = logits.stride;
    out.route.experts = ints(writable(route.chosen, rows * p.used * sizeof(std::int32_t)));
    out.route.shares = floats(writable(route.shares, rows * p.used * sizeof(float)));
    if (has_operand(route.bias)) p.bias = floats(read(route.bias, p.experts * sizeof(float)));
    if (has_operand(route.factors)) p.factors = floats(read(route.factors, p.experts * sizeof(float)));
  }

  void rope_frequencies(const plan::RopeFrequenciesT& from, CpuStep& out) const {
    constexpr cpu::RopeScaling kScalings[] = {cpu::RopeScaling::kNone, cpu::RopeScaling::kLinear,
                                              cpu::RopeScaling::kYarn};
    out.kind = StepKind::kRopeFreqs;
    auto& rope = out.row.rope;
    rope.dims = number(from.dims, 2, kRotaryMax);
    rope.scaling = member(from.scaling, kScalings);
    rope.original_context = number(from.original_context, 0);
    rope.base = from.base;
    rope.factor = from.factor;
    rope.ext_factor = from.ext_factor;
    rope.beta_fast = from.beta_fast;
    rope.beta_slow = from.beta_slow;
    const std::size_t bytes = rope.dims / 2 * sizeof(float);
    out.row.out = writable(from.out, bytes);
    if (has_operand(from.factors)) rope.freq_factors = floats(read(from.factors, bytes));
  }

  void rope_angles(const plan::RopeAnglesT& rope, CpuStep& out) const {
    out.kind = StepKind::kRopeTable;
    auto& row = out.row;
    row.dim = number(rope.dims, 2, kRotaryMax);
    row.magnitude = {.base = rope.magnitude};
    if (rope.temperature != 0) {
      row.magnitude.temperature = rope.temperature;
      row.magnitude.length =
          static_cast<std::int32_t>(number(rope.temperature_length, 1, std::numeric_limits<std::int32_t>::max()));
      row.magnitude.offset = static_cast<std::int32_t>(number(rope.temperature_offset, 0, row.magnitude.length));
    }
    row.a = read(rope.frequencies, row.dim / 2 * sizeof(float));
    row.out = writable(rope.out, tokens_of(out) * row.dim * sizeof(float));
  }

  void split_pairs(const plan::SplitPairsT& split, CpuStep& out) const {
    out.kind = StepKind::kSplit;
    take_rows(split.rows, out);
    take_slots(split.slots, out);
    auto& row = out.row;
    row.unit = number(split.unit, 1);
    row.cols = number(split.cols, 1);
    if (row.cols % row.unit != 0) fail("its columns are not a multiple of its unit");
    const auto x = read_rows(split.x, rows_of(out), 2 * row.cols);
    const auto first = writable_rows(split.first, rows_of(out), row.cols),
               second = writable_rows(split.second, rows_of(out), row.cols);
    row.a = x.data, row.a_stride = x.stride;
    row.out = first.data, row.out_stride = first.stride;
    row.out2 = second.data, row.out2_stride = second.stride;
  }

  void arrange(const plan::ArrangeT& arrange, CpuStep& out) const {
    out.kind = StepKind::kArrange;
    take_rows(arrange.rows, out);
    auto& to = out.arrange;
    to.heads = number(arrange.heads, 1, kHeadsMax);
    std::size_t width = 0;
    for (const auto& piece : arrange.pieces) {
      if (piece == nullptr) fail("a piece is missing");
      to.pieces.push_back(arranged(*piece, to.heads, rows_of(out)));
      width += to.pieces.back().width;
      if (width > static_cast<std::size_t>(kRowFloatsMax)) fail("the row is too wide");
    }
    const auto rows = writable_rows(arrange.out, rows_of(out), to.heads * width);
    to.out = floats(rows.data);
    to.out_stride = rows.stride;
  }

 private:
  /// One column range of an arrange step, checked for its last head.
  ArrangeStep::Piece arranged(const plan::ArrangedPieceT& from, std::size_t heads, std::size_t rows) const {
    ArrangeStep::Piece piece{.row_floats = 1,
                             .head_floats = number(from.stride, 0, kRowFloatsMax),
                             .width = number(from.width, 1, kRowFloatsMax)};
    const std::size_t begin = number(from.begin, 0, kRowFloatsMax);
    if (!has_operand(from.from)) return piece;
    const auto x = read_rows(from.from, rows, begin + (heads - 1) * piece.head_floats + piece.width);
    piece.row_floats = x.stride;
    piece.from = floats(x.data) + begin;
    return piece;
  }
};

}  // namespace

void read_norm_rows(const PlanReader& reader, const plan::NormRowsT& norm, CpuStep& out) {
  RowsReader(reader).norm(norm, out);
}
void read_match_rms(const PlanReader& reader, const plan::MatchRmsT& match, CpuStep& out) {
  RowsReader(reader).match_rms(match, out);
}
void read_gaussian_topk(const PlanReader& reader, const plan::GaussianTopkT& topk, CpuStep& out) {
  RowsReader(reader).gaussian_topk(topk, out);
}
void read_route(const PlanReader& reader, const plan::RouteT& route, CpuStep& out) {
  RowsReader(reader).route(route, out);
}
void read_rope_frequencies(const PlanReader& reader, const plan::RopeFrequenciesT& rope, CpuStep& out) {
  RowsReader(reader).rope_frequencies(rope, out);
}
void read_rope_angles(const PlanReader& reader, const plan::RopeAnglesT& rope, CpuStep& out) {
  RowsReader(reader).rope_angles(rope, out);
}
void read_split_pairs(const PlanReader& reader, const plan::SplitPairsT& split, CpuStep& out) {
  RowsReader(reader).split_pairs(split, out);
}
void read_arrange(const PlanReader& reader, const plan::ArrangeT& arrange, CpuStep& out) {
  RowsReader(reader).arrange(arrange, out);
}

}  // namespace forge::runtime
