// The shape rules: each op gives the right result types, and refuses wrong operands with a message that names the op,
// the operand and the shapes.

#include <catch2/catch.hpp>

#include "ir/op.h"
#include "support/error.h"

using namespace forge;
using namespace forge::ir;

namespace {

constexpr Symbol T = Symbol::kTokens;
constexpr Symbol R = Symbol::kRows;
constexpr Symbol B = Symbol::kSequences;
constexpr Symbol P = Symbol::kTableBlocks;

TensorType f32(Shape shape) {
  return {DType::kF32, std::move(shape)};
}
TensorType i32(Shape shape) {
  return {DType::kI32, std::move(shape)};
}
TensorType q8a(Shape shape) {
  return {DType::kQ8A_32, std::move(shape)};
}
const TensorType kState{DType::kState, {}};

/// The result types as text, or the error line.
std::string infer(Op op, const Attrs& attrs, std::vector<TensorType> operands) {
  try {
    std::string out;
    for (const TensorType& type : infer_types(op, attrs, operands)) out += (out.empty() ? "" : ", ") + type.text();
    return out;
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kInternal);
    return error.line();
  }
}

}  // namespace

TEST_CASE("the op table is complete, and ops are found by name") {
  for (std::size_t i = 0; i < static_cast<std::size_t>(Op::kCount_); ++i) {
    const OpDef& def = op_def(static_cast<Op>(i));
    CHECK(def.op == static_cast<Op>(i));
    CHECK(find_op(def.name) == &def);
    CHECK(def.infer != nullptr);
    CHECK(def.cost != nullptr);
    CHECK((def.reference != nullptr || def.operands_max == 0));
    CHECK(def.in_place_operand < def.operands_max);
  }
  CHECK(find_op("nonsense") == nullptr);
}

TEST_CASE("every op refuses another op's attributes and a wrong number of operands") {
  for (std::size_t i = 0; i < static_cast<std::size_t>(Op::kCount_); ++i) {
    const OpDef& def = op_def(static_cast<Op>(i));
    const Attrs wrong = def.attrs_index == 0 ? Attrs{GluAttrs{}} : Attrs{};
    CHECK_THAT(infer(def.op, wrong, {}), Catch::Contains(std::string(def.name) + ": wrong kind of attributes"));
  }
  CHECK_THAT(infer(Op::kAdd, {}, {f32({T, 4})}), Catch::Contains("add: 1 operands: takes 2 to 2"));
  CHECK_THAT(infer(Op::kConcatRows, PartsAttrs{}, {}), Catch::Contains("takes at least 1"));
}

TEST_CASE("shapes of experts' ops") {
  const TensorType logits = f32({T, 8}), chosen = i32({T, 2}), weight{DType::kQ4_0, {8, 40, 64}};
  const auto route = [&](RouteAttrs attrs) { return infer(Op::kRoute, attrs, {logits}); };
  CHECK(route({.used = 2}) == "i32[T,2], f32[T,2]");
  CHECK(infer(Op::kRoute, RouteAttrs{.used = 8}, {logits, f32({8})}) == "i32[T,8], f32[T,8]");
  CHECK_THAT(infer(Op::kRoute, RouteAttrs{}, {logits, f32({7})}),
             Catch::Contains("operand 1 is f32[7]: must be f32[8]"));
  CHECK(infer(Op::kRoute, RouteAttrs{}, {logits, f32({8}), f32({8})}) == "i32[T,1], f32[T,1]");
  CHECK_THAT(infer(Op::kRoute, RouteAttrs{}, {logits, f32({8}), f32({2})}),
             Catch::Contains("operand 2 is f32[2]: must be f32[8]"));
  CHECK_THAT(route({.used = 9}), Catch::Contains("used = 9"));
  CHECK_THAT(route({.used = 2, .groups = 3}), Catch::Contains("a divisor of 8 experts"));
  CHECK_THAT(route({.used = 2, .groups = 4, .groups_used = 5}), Catch::Contains("groups_used = 5"));
  CHECK_THAT(route({.used = 3, .groups = 4}), Catch::Contains("at most the experts of 1 groups"));
  CHECK_THAT(route({.used = 2, .groups = 4, .group_top = 3}), Catch::Contains("group_top = 3"));
  CHECK_THAT(route({.scale = NAN}), Catch::Contains("scale"));
  CHECK_THAT(route({.experts_per_adjugate = 0}), Catch::Contains("experts_per_adjugate = 0"));
  CHECK_THAT(route({.experts_per_adjugate = 3}), Catch::Contains("a divisor of 8 experts"));

  CHECK(infer(Op::kExpertMatmul, {}, {f32({T, 64}), weight, chosen}) == "f32[T,2,40]");
  CHECK(infer(Op::kExpertMatmul, {}, {q8a({T, 2, 64}), weight, chosen}) == "f32[T,2,40]");
  CHECK_THAT(infer(Op::kExpertMatmul, {}, {f32({T, 3, 64}), weight, chosen}), Catch::Contains("operand 2 is i32[T,2]"));
  CHECK_THAT(infer(Op::kExpertMatmul, {}, {f32({R, 64}), weight, chosen}), Catch::Contains("operand 2 is i32[T,2]"));
  CHECK_THAT(infer(Op::kExpertMatmul, {}, {f32({T, 32}), weight, chosen}), Catch::Contains("a weight [E,N,32]"));
  CHECK_THAT(infer(Op::kExpertMatmul, {}, {f32({T, 64}), f32({40, 64}), chosen}),
             Catch::Contains("operand 1 is f32[40,64]"));
  CHECK_THAT(infer(Op::kExpertMatmul, {}, {i32({T, 64}), weight, chosen}), Catch::Contains("operand 0 is i32[T,64]"));
  const TensorType slots = f32({T, 2, 40});
  CHECK(infer(Op::kExpertAdd, {}, {slots, f32({8, 40, 1}), chosen}) == "f32[T,2,40]");
  CHECK_THAT(infer(Op::kExpertAdd, {}, {slots, f32({8, 40}), chosen}), Catch::Contains("f32 [E,40,1]"));
  CHECK(infer(Op::kExpertScale, {}, {slots, f32({8}), chosen}) == "f32[T,2,40]");
  CHECK_THAT(infer(Op::kExpertScale, {}, {slots, f32({8, 1}), chosen}), Catch::Contains("f32 [E] of constant E"));
  CHECK(infer(Op::kExpertSum, {}, {slots, f32({T, 2})}) == "f32[T,40]");
  CHECK_THAT(infer(Op::kExpertSum, {}, {slots, f32({T, 3})}), Catch::Contains("must be f32[T,2]"));
  CHECK(infer(Op::kInvRmsScale, NormAttrs{1e-5F, 32}, {slots, f32({T, 2})}) == "f32[T,2,40]");
  CHECK(infer(Op::kSplit, PartsAttrs{{20, 20}, 4}, {slots}) == "f32[T,2,20], f32[T,2,20]");
  CHECK(infer(Op::kConcatRows, PartsAttrs{{40, 40}, 4}, {weight, weight}) == "q4_0[8,80,64]");
  CHECK(infer(Op::kQuantize, QuantizeAttrs{}, {f32({T, 2, 64})}) == "q8a_32[T,2,64]");

  const Bounds one{1, 1, 1, 1}, many{16, 1, 1, 1};
  const std::vector<TensorType> operands{f32({T, 64}), weight, chosen}, results{slots};
  const auto& def = op_def(Op::kExpertMatmul);
  CHECK(def.cost({}, operands, results, one).weight_bytes == 2 * 40 * 36);   // one token reads two experts
  CHECK(def.cost({}, operands, results, many).weight_bytes == 8 * 40 * 36);  // many tokens read each expert once
  CHECK(def.cost({}, operands, results, one).flops == 2 * 2 * 40 * 64);
}

TEST_CASE("shapes of batched matmuls") {
  const TensorType weight{DType::kQ4_0, {8, 40, 64}};
  CHECK(infer(Op::kBatchedMatmul, {}, {f32({T, 8, 64}), weight}) == "f32[T,320]");
  CHECK(infer(Op::kBatchedMatmul, {}, {q8a({R, 8, 64}), weight}) == "f32[R,320]");
  CHECK_THAT(infer(Op::kBatchedMatmul, {}, {f32({T, 512}), weight}), Catch::Contains("operand 0 is f32[T,512]"));
  CHECK_THAT(infer(Op::kBatchedMatmul, {}, {i32({T, 8, 64}), weight}), Catch::Contains("operand 0 is i32[T,8,64]"));
  CHECK_THAT(infer(Op::kBatchedMatmul, {}, {f32({T, 7, 64}), weight}), Catch::Contains("a weight [7,N,64]"));
  CHECK_THAT(infer(Op::kBatchedMatmul, {}, {f32({T, 8, 32}), weight}), Catch::Contains("a weight [8,N,32]"));
  CHECK_THAT(infer(Op::kBatchedMatmul, {}, {f32({T, 8, 64}), q8a({8, 40, 64})}), Catch::Contains("operand 1 is q8a"));
  const Bounds bounds{16, 1, 1, 1};
  const std::vector<TensorType> operands{f32({T, 8, 64}), weight}, results{f32({T, 320})};
  const auto cost = op_def(Op::kBatchedMatmul).cost({}, operands, results, bounds);
  CHECK((cost.weight_bytes == 8 * 40 * 36 && cost.flops == 2 * 16 * 8 * 40 * 64));
}

TEST_CASE("shapes of arrange") {
  const std::vector<TensorType> operands{f32({T, 24}), f32({T, 2, 8})};
  const auto arrange = [&](ArrangeAttrs attrs) { return infer(Op::kArrange, std::move(attrs), operands); };
  // 8 + 4 columns of each of 2 heads, and one column of zeros
  const ArrangeAttrs good{
      .heads = 2, .slots = 0, .sources = {0, 1, -1}, .begins = {4, 0, 0}, .strides = {12, 8, 0}, .widths = {8, 4, 1}};
  const auto with = [&](auto change) {
    auto attrs = good;
    change(attrs);
    return arrange(attrs);
  };
  CHECK(arrange(good) == "f32[T,26]");
  CHECK(with([](auto& a) { a.slots = 1; }) == "f32[T,2,13]");
  CHECK(with([](auto& a) { a.strides[0] = 0; }) == "f32[T,26]");
  CHECK_THAT(with([](auto& a) { a.begins[0] = 5; }),
             Catch::Contains("operand 0 is f32[T,24]: must be at least 25 columns wide"));
  CHECK_THAT(with([](auto& a) { a.widths[1] = 9; }),
             Catch::Contains("operand 1 is f32[T,2,8]: must be at least 17 columns wide"));
  CHECK_THAT(with([](auto& a) { a.sources[1] = 2; }), Catch::Contains("attribute sources"));
  CHECK_THAT(with([](auto& a) { a.widths.pop_back(); }), Catch::Contains("as many as begins"));
  CHECK_THAT(with([](auto& a) { a.heads = 0; }), Catch::Contains("attribute heads"));
  CHECK_THAT(with([](auto& a) { a.widths[2] = 0; }), Catch::Contains("attribute widths"));
  CHECK_THAT(infer(Op::kArrange, good, {f32({T, 24}), f32({R, 16})}),
             Catch::Contains("operand 1 is f32[R,16]: must be as many"));
}

TEST_CASE("shapes of inputs, weights, constants and states") {
  CHECK(infer(Op::kInput, InputAttrs{InputKind::kIds}, {}) == "i32[T]");
  CHECK(infer(Op::kInput, InputAttrs{InputKind::kRows}, {}) == "i32[R]");
  CHECK(infer(Op::kInput, InputAttrs{InputKind::kKvLength}, {}) == "i32[B]");
  CHECK(infer(Op::kInput, InputAttrs{InputKind::kBlockTable}, {}) == "i32[B,P]");
  CHECK_THAT(infer(Op::kInput, InputAttrs{static_cast<InputKind>(9)}, {}), Catch::Contains("input: attribute kind"));
  CHECK(infer(Op::kInput, InputAttrs{InputKind::kEmbeddings, 48}, {}) == "f32[T,48]");
  for (const std::int64_t width : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 40})
    CHECK_THAT(infer(Op::kInput, InputAttrs{InputKind::kEmbeddings, width}, {}),
               Catch::Contains("input: attribute width"));
  CHECK(infer(Op::kWeight, WeightAttrs{"w", {DType::kQ4_K, {3, 256}}}, {}) == "q4_k[3,256]");
  CHECK_THAT(infer(Op::kWeight, WeightAttrs{"w", {DType::kQ4_K, {3, 128}}}, {}), Catch::Contains("whole blocks"));
  CHECK_THAT(infer(Op::kWeight, WeightAttrs{"w", f32({T, 4})}, {}), Catch::Contains("constant dimensions"));
  CHECK_THAT(infer(Op::kWeight, WeightAttrs{"w", q8a({4, 32})}, {}), Catch::Contains("model files"));
  CHECK_THAT(infer(Op::kWeight, WeightAttrs{"", f32({4})}, {}), Catch::Contains("name"));
  CHECK_THAT(infer(Op::kWeight, WeightAttrs{"w", f32({-4})}, {}), Catch::Contains("positive"));
  CHECK_THAT(infer(Op::kWeight, WeightAttrs{"w", f32({1, 1, 1, 1, 1})}, {}), Catch::Contains("4 dimensions"));
  CHECK(infer(Op::kConstant, ConstantAttrs{{1, 2, 3, 4, 5, 6}, f32({2, 3})}, {}) == "f32[2,3]");
  CHECK_THAT(infer(Op::kConstant, ConstantAttrs{{1, 2, 3}, f32({2, 3})}, {}),
             Catch::Contains("one value for each element"));
  CHECK_THAT(infer(Op::kConstant, ConstantAttrs{{1, 2}, f32({0})}, {}), Catch::Contains("one value for each element"));
  CHECK(infer(Op::kKvState, KvStateAttrs{0, 2, 2, 16, 0}, {}) == "state");
  CHECK_THAT(infer(Op::kKvState, KvStateAttrs{0, 2, 0, 16, 0}, {}), Catch::Contains("kv_heads = 0"));
  CHECK_THAT(infer(Op::kKvState, KvStateAttrs{0, 2, 1, 16, -1}, {}), Catch::Contains("window = -1"));
  CHECK(infer(Op::kKvState,
              KvStateAttrs{.layers = 1, .kv_heads = 1, .head_dim = 576, .value_dim = 512, .shared_row = 1},
              {}) == "state");
  CHECK_THAT(infer(Op::kKvState,
                   KvStateAttrs{.layers = 1, .kv_heads = 1, .head_dim = 16, .value_dim = 17, .shared_row = 1}, {}),
             Catch::Contains("value_dim = 17"));
  CHECK_THAT(infer(Op::kKvState, KvStateAttrs{.layers = 1, .kv_heads = 1, .head_dim = 16, .shared_row = 2}, {}),
             Catch::Contains("shared_row = 2"));
  CHECK(infer(Op::kRecurrentState, RecurrentStateAttrs{0, 2, 64}, {}) == "state");
  CHECK_THAT(infer(Op::kRecurrentState, RecurrentStateAttrs{0, 2, 0}, {}), Catch::Contains("floats = 0"));
}

TEST_CASE("shapes of embed and gather_rows") {
  CHECK(infer(Op::kEmbed, {}, {{DType::kQ8_0, {10, 32}}, i32({T})}) == "f32[T,32]");
  CHECK_THAT(infer(Op::kEmbed, {}, {f32({T, 32}), i32({T})}), Catch::Contains("embed: operand 0 is f32[T,32]"));
  CHECK_THAT(infer(Op::kEmbed, {}, {i32({4, 32}), i32({T})}), Catch::Contains("operand 0 is i32[4,32]"));
  CHECK_THAT(infer(Op::kEmbed, {}, {f32({4, 32}), f32({T})}), Catch::Contains("operand 1 is f32[T]"));
  CHECK(infer(Op::kGatherRows, {}, {f32({T, 8}), i32({R})}) == "f32[R,8]");
  CHECK_THAT(infer(Op::kGatherRows, {}, {q8a({T, 32}), i32({R})}), Catch::Contains("operand 0 is q8a_32[T,32]"));
  CHECK_THAT(infer(Op::kGatherRows, {}, {f32({T, 8}), i32({B, P})}), Catch::Contains("operand 1 is i32[B,P]"));
}

TEST_CASE("shapes of norms") {
  const NormAttrs norm{1e-5f, 64};
  CHECK(infer(Op::kRmsNorm, norm, {f32({T, 64}), f32({64})}) == "f32[T,64]");
  CHECK(infer(Op::kRmsNorm, NormAttrs{1e-5f, 16}, {f32({T, 64}), f32({16})}) == "f32[T,64]");
  CHECK_THAT(infer(Op::kRmsNorm, norm, {f32({T, 64}), f32({32})}),
             Catch::Contains("operand 1 is f32[32]: must be f32[64]"));
  CHECK_THAT(infer(Op::kRmsNorm, NormAttrs{1e-5f, 48}, {f32({T, 64}), f32({48})}), Catch::Contains("multiple of"));
  CHECK_THAT(infer(Op::kRmsNorm, NormAttrs{1e-5f, 0}, {f32({T, 64}), f32({64})}), Catch::Contains("dim = 0"));
  CHECK_THAT(infer(Op::kRmsNorm, NormAttrs{-1, 64}, {f32({T, 64}), f32({64})}), Catch::Contains("eps = -1"));
  CHECK_THAT(infer(Op::kRmsNorm, norm, {f32({T, 8, 64}), f32({64})}), Catch::Contains("2 dimensions"));
  CHECK_THAT(infer(Op::kRmsNorm, norm, {f32({64, T}), f32({64})}), Catch::Contains("last one a constant"));
  CHECK(infer(Op::kSumSquares, {}, {f32({T, 64})}) == "f32[T,4]");
  CHECK(infer(Op::kSumSquares, {}, {f32({T, 65})}) == "f32[T,5]");
  CHECK_THAT(infer(Op::kSumSquares, {}, {q8a({T, 64})}), Catch::Contains("sum_squares: operand 0"));
  CHECK(infer(Op::kInvRmsScale, norm, {f32({T, 200}), f32({T, 4})}) == "f32[T,200]");
  CHECK_THAT(infer(Op::kInvRmsScale, norm, {f32({R, 200}), f32({T, 2})}), Catch::Contains("operand 1 is f32[T,2]"));
  CHECK_THAT(infer(Op::kInvRmsScale, norm, {f32({T, 200}), f32({T, 3})}), Catch::Contains("ceil(dim/16)"));
}

TEST_CASE("shapes of LayerNorm: one gain for all heads, or one per head") {
  const NormAttrs norm{1e-5f, 16};
  CHECK(infer(Op::kLayerNorm, norm, {f32({T, 64}), f32({16})}) == "f32[T,64]");
  CHECK(infer(Op::kLayerNorm, norm, {f32({T, 64}), f32({16}), f32({16})}) == "f32[T,64]");
  CHECK(infer(Op::kLayerNorm, norm, {f32({T, 64}), f32({4, 16}), f32({4, 16})}) == "f32[T,64]");
  CHECK_THAT(infer(Op::kLayerNorm, norm, {f32({T, 64}), f32({2, 16})}),
             Catch::Contains("must be f32[16] or f32[4,16]"));
  CHECK_THAT(infer(Op::kLayerNorm, norm, {f32({T, 64}), f32({16}), f32({4, 16})}),
             Catch::Contains("operand 2 is f32[4,16]"));
  CHECK_THAT(infer(Op::kLayerNorm, norm, {f32({T, 72}), f32({16})}), Catch::Contains("multiple of"));
  CHECK_THAT(infer(Op::kLayerNorm, NormAttrs{-1, 16}, {f32({T, 64}), f32({16})}), Catch::Contains("eps = -1"));
}

TEST_CASE("shapes of activations and soft-caps") {
  CHECK(infer(Op::kActivate, GluAttrs{}, {f32({T, 7})}) == "f32[T,7]");
  CHECK_THAT(infer(Op::kActivate, GluAttrs{}, {q8a({T, 32})}), Catch::Contains("activate: operand 0"));
  CHECK_THAT(infer(Op::kGlu, GluAttrs{Activation::kReluSquared}, {f32({T, 32}), f32({T, 32})}),
             Catch::Contains("relu_squared"));
  CHECK_THAT(infer(Op::kGlu, GluAttrs{Activation::kXielu}, {f32({T, 32}), f32({T, 32})}),
             Catch::Contains("must be a function of gate and up"));
  CHECK_THAT(infer(Op::kActivate, GluAttrs{Activation::kSilu, {0, 1}}, {f32({T, 32})}),
             Catch::Contains("silu has 0 parameters"));
  CHECK(infer(Op::kSoftcap, SoftcapAttrs{30}, {f32({R, 7})}) == "f32[R,7]");
  CHECK_THAT(infer(Op::kSoftcap, SoftcapAttrs{0}, {f32({R, 7})}), Catch::Contains("cap = 0"));
  CHECK_THAT(infer(Op::kSoftcap, SoftcapAttrs{INFINITY}, {f32({R, 7})}), Catch::Contains("cap = inf"));
}

TEST_CASE("shapes of match_rms and gaussian_topk") {
  CHECK(infer(Op::kMatchRms, {}, {f32({T, 48}), f32({T, 48})}) == "f32[T,48]");
  CHECK_THAT(infer(Op::kMatchRms, {}, {f32({T, 48}), f32({R, 48})}), Catch::Contains("operand 1 is f32[R,48]"));
  CHECK_THAT(infer(Op::kMatchRms, {}, {f32({48}), f32({48})}), Catch::Contains("operand 0 is f32[48]"));
  CHECK(infer(Op::kGaussianTopk, GaussianTopkAttrs{1.6F}, {f32({T, 48})}) == "f32[T,48]");
  CHECK_THAT(infer(Op::kGaussianTopk, GaussianTopkAttrs{1.6F}, {f32({T, 1})}), Catch::Contains("at least 2 columns"));
  CHECK_THAT(infer(Op::kGaussianTopk, GaussianTopkAttrs{NAN}, {f32({T, 48})}), Catch::Contains("cutoff"));
}

TEST_CASE("shapes of slice_rows") {
  const TensorType q4{DType::kQ4_0, {12, 32}};
  CHECK(infer(Op::kSliceRows, SliceAttrs{4, 8}, {q4}) == "q4_0[8,32]");
  CHECK(infer(Op::kSliceRows, SliceAttrs{0, 3}, {f32({12})}) == "f32[3]");
  CHECK_THAT(infer(Op::kSliceRows, SliceAttrs{4, 9}, {q4}), Catch::Contains("rows = 9"));
  CHECK_THAT(infer(Op::kSliceRows, SliceAttrs{12, 1}, {q4}), Catch::Contains("begin = 12"));
  CHECK_THAT(infer(Op::kSliceRows, SliceAttrs{-1, 1}, {q4}), Catch::Contains("begin = -1"));
  CHECK_THAT(infer(Op::kSliceRows, SliceAttrs{0, 0}, {q4}), Catch::Contains("rows = 0"));
  CHECK_THAT(infer(Op::kSliceRows, SliceAttrs{0, 1}, {f32({T, 4})}), Catch::Contains("constant dimensions"));
}

TEST_CASE("shapes of matmuls and their weights") {
  CHECK(infer(Op::kMatmul, {}, {f32({T, 64}), {DType::kQ4_0, {10, 64}}}) == "f32[T,10]");
  CHECK(infer(Op::kMatmul, {}, {q8a({T, 64}), {DType::kF16, {10, 64}}}) == "f32[T,10]");
  CHECK_THAT(infer(Op::kMatmul, {}, {f32({T, 64}), f32({10, 32})}),
             Catch::Contains("matmul: operand 1 is f32[10,32]") && Catch::Contains("f32[T,64]"));
  CHECK_THAT(infer(Op::kMatmul, {}, {i32({T, 64}), f32({10, 64})}), Catch::Contains("operand 0 is i32[T,64]"));
  CHECK_THAT(infer(Op::kMatmul, {}, {f32({T, 64}), q8a({10, 64})}), Catch::Contains("operand 1 is q8a_32[10,64]"));
  CHECK_THAT(infer(Op::kMatmul, {}, {f32({T, 64}), f32({T, 64})}), Catch::Contains("operand 1 is f32[T,64]"));
  CHECK(infer(Op::kQuantize, QuantizeAttrs{}, {f32({T, 64})}) == "q8a_32[T,64]");
  CHECK_THAT(infer(Op::kQuantize, QuantizeAttrs{}, {f32({T, 48})}), Catch::Contains("multiple of 32"));
  CHECK(infer(Op::kQuantize, QuantizeAttrs{DType::kQ8A_16}, {f32({T, 48})}) == "q8a_16[T,48]");
  CHECK_THAT(infer(Op::kQuantize, QuantizeAttrs{DType::kQ8A_16}, {f32({T, 40})}), Catch::Contains("multiple of 16"));
  CHECK(infer(Op::kQuantize, QuantizeAttrs{DType::kQ16A_16}, {f32({T, 48})}) == "q16a_16[T,48]");
  CHECK_THAT(infer(Op::kQuantize, QuantizeAttrs{DType::kI8}, {f32({T, 64})}),
             Catch::Contains("q8a_32, q8a_16 or q16a_16"));
  CHECK(infer(Op::kMatmul, {}, {{DType::kQ8A_16, {T, 64}}, {DType::kF16, {10, 64}}}) == "f32[T,10]");
  CHECK_THAT(infer(Op::kQuantize, QuantizeAttrs{}, {q8a({T, 64})}), Catch::Contains("quantize: operand 0"));

  const auto q4 = [](std::int64_t rows, std::int64_t cols) { return TensorType{DType::kQ4_0, {rows, cols}}; };
  CHECK(infer(Op::kConcatRows, PartsAttrs{{8, 4}, 0}, {q4(8, 32), q4(4, 32)}) == "q4_0[12,32]");
  CHECK(infer(Op::kConcatRows, PartsAttrs{{8, 8}, 4}, {q4(8, 32), q4(8, 32)}) == "q4_0[16,32]");
  CHECK(infer(Op::kConcatRows, PartsAttrs{{8, 4}, 0}, {f32({8}), f32({4})}) == "f32[12]");
  CHECK_THAT(infer(Op::kConcatRows, PartsAttrs{{8, 4}, 4}, {q4(8, 32), q4(4, 32)}),
             Catch::Contains("equal and multiples"));
  CHECK_THAT(infer(Op::kConcatRows, PartsAttrs{{6, 6}, 4}, {q4(6, 32), q4(6, 32)}),
             Catch::Contains("equal and multiples"));
  CHECK_THAT(infer(Op::kConcatRows, PartsAttrs{{8, 4}, 0}, {q4(8, 32), q4(4, 64)}),
             Catch::Contains("operand 1 is q4_0[4,64]"));
  CHECK_THAT(infer(Op::kConcatRows, PartsAttrs{{8, 4}, 0}, {q4(8, 32), f32({4, 32})}), Catch::Contains("operand 1"));
  CHECK_THAT(infer(Op::kConcatRows, PartsAttrs{{8}, 0}, {q4(8, 32), q4(4, 32)}), Catch::Contains("one size a part"));
  CHECK_THAT(infer(Op::kConcatRows, PartsAttrs{{8, 4}, -1}, {q4(8, 32), q4(4, 32)}), Catch::Contains("unit = -1"));
}

TEST_CASE("shapes of elementwise ops and split") {
  for (const Op op : {Op::kAdd, Op::kMul}) {
    CHECK(infer(op, {}, {f32({T, 8}), f32({T, 8})}) == "f32[T,8]");
    CHECK(infer(op, {}, {f32({T, 8}), f32({8})}) == "f32[T,8]");
    CHECK_THAT(infer(op, {}, {f32({T, 8}), f32({T, 1})}),
               Catch::Contains("operand 1 is f32[T,1]: must be f32[T,8], f32[8] or f32[1]"));
    CHECK(infer(op, {}, {f32({T, 8}), f32({1})}) == "f32[T,8]");
    CHECK_THAT(infer(op, {}, {f32({8}), f32({T, 8})}), Catch::Contains("operand 1"));
    CHECK_THAT(infer(op, {}, {f32({}), f32({})}), Catch::Contains("operand 0"));
    CHECK_THAT(infer(op, {}, {{DType::kF16, {T, 8}}, {DType::kF16, {T, 8}}}), Catch::Contains("operand 0 is f16"));
  }
  CHECK(infer(Op::kScale, ScaleAttrs{2}, {f32({T, 4, 2})}) == "f32[T,4,2]");
  CHECK_THAT(infer(Op::kScale, ScaleAttrs{INFINITY}, {f32({T, 4})}), Catch::Contains("finite"));
  CHECK_THAT(infer(Op::kScale, ScaleAttrs{2}, {kState}), Catch::Contains("scale: operand 0 is state"));
  CHECK(infer(Op::kGlu, GluAttrs{}, {f32({T, 8}), f32({T, 8})}) == "f32[T,8]");
  CHECK_THAT(infer(Op::kGlu, GluAttrs{}, {f32({T, 8}), f32({8})}), Catch::Contains("glu: operand 1 is f32[8]"));
  CHECK(infer(Op::kSplit, PartsAttrs{{4, 8, 4}, 0}, {f32({T, 16})}) == "f32[T,4], f32[T,8], f32[T,4]");
  CHECK(infer(Op::kSplit, PartsAttrs{{8, 8}, 4}, {f32({T, 16})}) == "f32[T,8], f32[T,8]");
  CHECK_THAT(infer(Op::kSplit, PartsAttrs{{4, 8}, 0}, {f32({T, 16})}),
             Catch::Contains("split: operand 0 is f32[T,16]"));
  CHECK_THAT(infer(Op::kSplit, PartsAttrs{{0, 16}, 0}, {f32({T, 16})}), Catch::Contains("sizes = 0"));
  CHECK_THAT(infer(Op::kSplit, PartsAttrs{{}, 0}, {f32({T, 16})}), Catch::Contains("sizes"));
  CHECK_THAT(infer(Op::kSplit, PartsAttrs{{12, 4}, 4}, {f32({T, 16})}), Catch::Contains("equal and multiples"));
  CHECK_THAT(infer(Op::kSplit, PartsAttrs{std::vector<std::int64_t>(5000, 1), 0}, {f32({T, 5000})}),
             Catch::Contains("at most"));
}

TEST_CASE("shapes of RoPE") {
  CHECK(infer(Op::kRopeFreqs, RopeFreqsAttrs{.dims = 16}, {}) == "f32[8]");
  CHECK(infer(Op::kRopeFreqs, RopeFreqsAttrs{.dims = 16}, {f32({8})}) == "f32[8]");
  CHECK_THAT(infer(Op::kRopeFreqs, RopeFreqsAttrs{.dims = 16}, {f32({16})}), Catch::Contains("operand 0 is f32[16]"));
  CHECK_THAT(infer(Op::kRopeFreqs, RopeFreqsAttrs{.dims = 15}, {}), Catch::Contains("even"));
  CHECK_THAT(infer(Op::kRopeFreqs, RopeFreqsAttrs{.dims = 1LL << 40}, {}), Catch::Contains("dims"));
  CHECK_THAT(infer(Op::kRopeFreqs, RopeFreqsAttrs{.dims = 16, .base = 0}, {}), Catch::Contains("base"));
  CHECK_THAT(infer(Op::kRopeFreqs, RopeFreqsAttrs{.dims = 16, .scaling = RopeScaling::kYarn}, {}),
             Catch::Contains("original_context = 0"));
  CHECK(infer(Op::kRopeTable, RopeTableAttrs{1}, {i32({T}), f32({8})}) == "f32[T,8,2]");
  CHECK_THAT(infer(Op::kRopeTable, RopeTableAttrs{1}, {f32({T}), f32({8})}), Catch::Contains("operand 0 is f32[T]"));
  CHECK_THAT(infer(Op::kRopeTable, RopeTableAttrs{0}, {i32({T}), f32({8})}), Catch::Contains("magnitude"));
  const auto table = [&](RopeTableAttrs attrs) { return infer(Op::kRopeTable, attrs, {i32({T}), f32({8})}); };
  CHECK(table({1, 0.1f, 64, 1}) == "f32[T,8,2]");
  CHECK_THAT(table({1, 0.1f, 0}), Catch::Contains("temperature_length = 0"));
  CHECK_THAT(table({1, 0, 64}), Catch::Contains("temperature_length = 64"));
  CHECK_THAT(table({1, 0.1f, 64, 65}), Catch::Contains("temperature_offset = 65"));
  CHECK_THAT(table({1, 0, 0, 1}), Catch::Contains("temperature_offset = 1"));
  CHECK(infer(Op::kHadamard, {}, {f32({T, 64})}) == "f32[T,64]");
  CHECK_THAT(infer(Op::kHadamard, {}, {f32({T, 48})}),
             Catch::Contains("operand 0 is f32[T,48]: must be a multiple of 32"));
  CHECK_THAT(infer(Op::kHadamard, {}, {f32({T, 2, 32})}), Catch::Contains("operand 0"));
  const RopeAttrs rope{16, 8, RopeMode::kHalves};
  CHECK(infer(Op::kRope, rope, {f32({T, 64}), f32({T, 4, 2})}) == "f32[T,64]");
  CHECK_THAT(infer(Op::kRope, rope, {f32({T, 60}), f32({T, 4, 2})}), Catch::Contains("whole heads of 16"));
  CHECK_THAT(infer(Op::kRope, rope, {f32({T, 64}), f32({T, 8, 2})}), Catch::Contains("operand 1 is f32[T,8,2]"));
  CHECK_THAT(infer(Op::kRope, rope, {f32({R, 64}), f32({T, 4, 2})}), Catch::Contains("operand 1 is f32[T,4,2]"));
  CHECK_THAT(infer(Op::kRope, RopeAttrs{16, 32, {}}, {f32({T, 64}), f32({T, 16, 2})}),
             Catch::Contains("rotary_dims = 32"));
  CHECK_THAT(infer(Op::kRope, RopeAttrs{16, 7, {}}, {f32({T, 64}), f32({T, 3, 2})}), Catch::Contains("even"));
}

TEST_CASE("shapes of the KV store and attention") {
  const KvStoreAttrs store{0};
  const std::vector<TensorType> stored{kState, f32({T, 32}), f32({T, 32}), i32({T}), i32({T}), i32({B, P})};
  CHECK(infer(Op::kKvStore, store, stored) == "state");
  const auto with = [](std::vector<TensorType> types, std::size_t i, TensorType type) {
    types[i] = std::move(type);
    return types;
  };
  CHECK_THAT(infer(Op::kKvStore, store, with(stored, 0, f32({4}))),
             Catch::Contains("operand 0 is f32[4]: must be state"));
  CHECK(infer(Op::kKvStore, store, with(stored, 2, f32({T, 16}))) ==
        "state");  // the state's attributes give the row width, so a wrong one is IR-010
  CHECK_THAT(infer(Op::kKvStore, store, with(stored, 2, f32({R, 32}))), Catch::Contains("kv_store: operand 2"));
  auto shared = stored;
  shared.erase(shared.begin() + 2);
  CHECK(infer(Op::kKvStore, store, shared) == "state");
  for (const auto half : {KvHalf::kKeys, KvHalf::kValues}) {
    CHECK(infer(Op::kKvStore, KvStoreAttrs{0, half}, shared) == "state");
    CHECK_THAT(infer(Op::kKvStore, KvStoreAttrs{0, half}, stored),
               Catch::Contains("operand 2 is f32[T,32]: must be positions, as it stores one half"));
  }
  CHECK_THAT(infer(Op::kKvStore, KvStoreAttrs{0, static_cast<KvHalf>(3)}, shared), Catch::Contains("half = 3"));
  CHECK_THAT(infer(Op::kKvStore, store, with(shared, 2, i32({R}))), Catch::Contains("operand 2 is i32[R]"));
  CHECK_THAT(infer(Op::kKvStore, store, with(stored, 3, i32({R}))),
             Catch::Contains("operand 3 is i32[R]: must be i32[T]"));
  CHECK_THAT(infer(Op::kKvStore, store, with(stored, 5, i32({B}))), Catch::Contains("operand 5"));
  CHECK_THAT(infer(Op::kKvStore, KvStoreAttrs{-1}, stored), Catch::Contains("layer = -1"));

  const AttentionAttrs attention{0, 4, 2, 16, 0.25f, 0, 0};
  const std::vector<TensorType> read{f32({T, 64}), kState, i32({T}), i32({T}), i32({B, P}), i32({B})};
  CHECK(infer(Op::kAttention, attention, read) == "f32[T,64]");
  CHECK_THAT(infer(Op::kAttention, attention, with(read, 0, f32({T, 32}))),
             Catch::Contains("heads * head_dim = 4 * 16"));
  const AttentionAttrs narrow{.heads = 4, .kv_heads = 2, .head_dim = 16, .value_dim = 8};
  CHECK(infer(Op::kAttention, narrow, read) == "f32[T,32]");
  auto sunk = read;
  sunk.push_back(f32({4}));
  CHECK(infer(Op::kAttention, attention, sunk) == "f32[T,64]");
  CHECK_THAT(infer(Op::kAttention, attention, with(sunk, 6, f32({5}))),
             Catch::Contains("operand 6 is f32[5]: must be f32[4]"));
  AttentionAttrs sparse{.heads = 4, .kv_heads = 2, .head_dim = 16, .selected = 3, .selected_block = 1};
  CHECK_THAT(infer(Op::kAttention, sparse, read), Catch::Contains("selected = 3"));
  CHECK_THAT(infer(Op::kAttention, sparse, sunk),
             Catch::Contains("operand 6 is f32[4]: must be i32, with one list of 3"));
  sunk.push_back(i32({T, 3}));
  CHECK(infer(Op::kAttention, sparse, sunk) == "f32[T,64]");
  CHECK(infer(Op::kAttention, sparse, with(sunk, 7, i32({T, 6}))) == "f32[T,64]");
  CHECK_THAT(infer(Op::kAttention, sparse, with(sunk, 7, i32({T, 12}))), Catch::Contains("operand 7 is i32[T,12]"));
  CHECK_THAT(infer(Op::kAttention, sparse, with(sunk, 7, i32({R, 3}))), Catch::Contains("operand 7 is i32[R,3]"));
  CHECK_THAT(infer(Op::kAttention, attention, sunk), Catch::Contains("selected = 0"));
  sparse.selected_block = 0;
  CHECK_THAT(infer(Op::kAttention, sparse, sunk), Catch::Contains("selected_block = 0"));
  CHECK_THAT(infer(Op::kAttention, attention, with(read, 1, f32({T, 64}))), Catch::Contains("operand 1"));
  CHECK_THAT(infer(Op::kAttention, attention, with(read, 5, i32({T}))),
             Catch::Contains("operand 5 is i32[T]: must be i32[B]"));
  CHECK_THAT(infer(Op::kAttention, AttentionAttrs{0, 4, 3, 16, 1, 0, 0}, read),
             Catch::Contains("multiple of kv_heads"));
  CHECK_THAT(infer(Op::kAttention, AttentionAttrs{0, 4, 0, 16, 1, 0, 0}, read), Catch::Contains("kv_heads = 0"));
  CHECK_THAT(infer(Op::kAttention, AttentionAttrs{0, 4, 2, 16, 1, -2, 0}, read), Catch::Contains("window = -2"));
  CHECK_THAT(infer(Op::kAttention, AttentionAttrs{0, 4, 2, 16, 1, 0, -1}, read), Catch::Contains("softcap = -1"));
  CHECK_THAT(infer(Op::kAttention, AttentionAttrs{0, 4, 2, 16, NAN, 0, 0}, read), Catch::Contains("scale"));
  CHECK_THAT(infer(Op::kAttention, AttentionAttrs{.heads = 4, .kv_heads = 2, .head_dim = 16, .chunk = -1}, read),
             Catch::Contains("chunk = -1"));
}

TEST_CASE("shapes of select_keys") {
  const SelectKeysAttrs good{.heads = 4, .head_dim = 16, .top_k = 5, .block = 2, .local = 1};
  const std::vector<TensorType> read{f32({T, 64}), kState, i32({T}), i32({T}), i32({B, P}), i32({B})};
  CHECK(infer(Op::kSelectKeys, good, read) == "i32[T,20]");
  auto weighted = read;
  weighted.push_back(f32({T, 4}));
  CHECK(infer(Op::kSelectKeys, good, weighted) == "i32[T,5]");
  weighted[6] = f32({T, 5});
  CHECK_THAT(infer(Op::kSelectKeys, good, weighted), Catch::Contains("operand 6 is f32[T,5]: must be f32[T,4]"));
  const auto says = [&](auto change, const char* words) {
    auto attrs = good;
    change(attrs);
    CHECK_THAT(infer(Op::kSelectKeys, attrs, read), Catch::Contains(words));
  };
  says([](auto& a) { a.head_dim = 8; }, "heads * head_dim = 4 * 8");
  says([](auto& a) { a.layer = -1; }, "layer = -1");
  says([](auto& a) { a.heads = 0; }, "heads = 0");
  says([](auto& a) { a.top_k = 0; }, "top_k = 0");
  says([](auto& a) { a.block = 0; }, "block = 0");
  says([](auto& a) { a.local = 6; }, "local = 6");
}

TEST_CASE("sizes under bounds, and the cost of a step") {
  const Bounds bounds{.tokens = 3, .rows = 2, .sequences = 2, .table_blocks = 5};
  CHECK(f32({T, 8}).bytes(bounds) == 96);
  CHECK(f32({}).bytes(bounds) == 4);
  CHECK(i32({T}).bytes(bounds) == 12);
  CHECK(i32({B, P}).elements(bounds) == 10);
  CHECK(f32({T, 4, 2}).rows(bounds) == 12);
  CHECK(q8a({T, 32}).bytes(bounds) == 3 * 64);
  CHECK(q8a({T, 64}).bytes(bounds) == 3 * 128);
  for (const std::int64_t cols : {32, 64, 576, 4096})
    CHECK(stored_row_bytes(DType::kQ8A_16, cols) == stored_row_bytes(DType::kQ8A_32, cols));
  CHECK(stored_row_bytes(DType::kQ8A_16, 48) == 64);
  CHECK(kState.bytes(bounds) == 0);
  CHECK(stored_row_bytes(DType::kQ4_0, 64) == 36);
  const auto cost = [&](Op op, const Attrs& attrs, const std::vector<TensorType>& operands) {
    return op_def(op).cost(attrs, operands, infer_types(op, attrs, operands), bounds);
  };
  const Cost product = cost(Op::kMatmul, {}, {q8a({T, 64}), {DType::kQ4_0, {10, 64}}});
  CHECK(product.weight_bytes == 360);
  CHECK(product.activation_bytes == 3 * 128 + 3 * 10 * 4);
  CHECK(product.flops == 2 * 3 * 10 * 64);
  const Cost embed = cost(Op::kEmbed, {}, {{DType::kQ8_0, {1000, 64}}, i32({T})});
  CHECK(embed.weight_bytes == 3 * 68);
  CHECK(embed.activation_bytes == 12 + 3 * 256);
  const Cost bias = cost(Op::kAdd, {}, {f32({T, 8}), f32({8})});
  CHECK(bias.weight_bytes == 32);
  CHECK(bias.activation_bytes == 2 * 96);
  const Cost concat = cost(Op::kConcatRows, PartsAttrs{{8, 4}, 0}, {f32({8}), f32({4})});
  CHECK(concat.weight_bytes + concat.activation_bytes + concat.flops == 0);
}
