#include "ir/builder.h"

#include <algorithm>

#include "ir/text/attrs_io.h"
#include "support/error.h"

namespace forge::ir {
namespace {

/// Visitor that assigns a list of parameters to the float members of an elementwise op's attributes, in their order.
struct ParameterWriter {
  const float* next;
  const float* end;
  template <class T>
  void operator()(std::string_view, T& value) {
    if constexpr (std::is_same_v<T, float>) {
      invariant(next != end, "IR-000", "fewer parameters than the op has");
      value = *next++;
    }
  }
};

}  // namespace

Value Builder::add_node(Op op, std::vector<Value> operands, Attrs attrs) {
  return {graph_.add(op, std::move(operands), std::move(attrs), layer_), 0};
}

/// A graph has one node for each kind of input. The cached node may be stale, since passes remove and renumber nodes,
/// so it is checked before use; otherwise the graph is searched, and only then is a node added.
Value Builder::input(InputKind kind, std::int64_t width) {
  const auto is_it = [&](NodeId node) {
    return node < graph_.id_bound() && graph_.alive(node) && graph_.op(node) == Op::kInput &&
           graph_.attrs_as<InputAttrs>(node).kind == kind;
  };
  Value& known = inputs_[static_cast<std::size_t>(kind)];
  if (is_it(known.node)) return known;
  for (NodeId node = 0; node < graph_.id_bound(); ++node)
    if (is_it(node)) return known = {node, 0};
  return known = {graph_.add(Op::kInput, {}, InputAttrs{kind, width}), 0};  // inputs belong to no layer
}

Value Builder::weight(std::string name, DType dtype, Shape shape) {
  return add_node(Op::kWeight, {}, WeightAttrs{std::move(name), {dtype, std::move(shape)}});
}
Value Builder::constant(std::vector<float> values, Shape shape) {
  return add_node(Op::kConstant, {}, ConstantAttrs{std::move(values), {DType::kF32, std::move(shape)}});
}
Value Builder::kv_state(const KvStateAttrs& attrs) {
  return add_node(Op::kKvState, {}, attrs);
}
Value Builder::recurrent_state(const RecurrentStateAttrs& attrs) {
  return add_node(Op::kRecurrentState, {}, attrs);
}
Value Builder::embed(Value table, Value ids) {
  return add_node(Op::kEmbed, {table, ids});
}
Value Builder::rms_norm(Value x, Value weight, float eps) {
  const TensorType& type = graph_.type(weight);
  return add_node(Op::kRmsNorm, {x, weight}, NormAttrs{eps, type.shape.empty() ? 0 : type.cols()});
}
std::vector<Value> Builder::split(Value x, std::vector<std::int64_t> sizes) {
  std::vector<Value> parts(sizes.size());
  const Value first = add_node(Op::kSplit, {x}, PartsAttrs{.sizes = std::move(sizes), .unit = 0});
  for (std::uint32_t i = 0; i < parts.size(); ++i) parts[i] = {first.node, i};
  return parts;
}
Value Builder::slice_rows(Value weight, std::int64_t begin, std::int64_t rows) {
  return add_node(Op::kSliceRows, {weight}, SliceAttrs{begin, rows});
}
Value Builder::layer_norm(Value x, Value weight, Value bias, float eps) {
  const TensorType& type = graph_.type(weight);
  std::vector<Value> operands{x, weight};
  if (bias.node != kNoNode) operands.push_back(bias);
  return add_node(Op::kLayerNorm, std::move(operands), NormAttrs{eps, type.shape.empty() ? 0 : type.cols()});
}
Value Builder::match_rms(Value x, Value like) {
  return add_node(Op::kMatchRms, {x, like});
}
Value Builder::gaussian_topk(Value x, float cutoff) {
  return add_node(Op::kGaussianTopk, {x}, GaussianTopkAttrs{cutoff});
}
Value Builder::matmul(Value x, Value weight) {
  return add_node(Op::kMatmul, {x, weight});
}
Value Builder::batched_matmul(Value x, Value weight) {
  return add_node(Op::kBatchedMatmul, {x, weight});
}
Value Builder::function(Op op, std::vector<Value> operands, const std::vector<float>& parameters) {
  Attrs attrs = default_attrs(op_def(op).attrs_index);
  ParameterWriter writer{parameters.data(), parameters.data() + parameters.size()};
  std::visit([&](auto& fields) { fields.fields(writer); }, attrs);
  invariant(writer.next == writer.end, "IR-000", "more parameters than the op has");
  return add_node(op, std::move(operands), std::move(attrs));
}
Value Builder::glu(Value gate, Value up, Activation activation, elementwise::Parameters parameters) {
  return add_node(Op::kGlu, {gate, up}, GluAttrs{activation, parameters});
}
Value Builder::activate(Value x, Activation activation, elementwise::Parameters parameters) {
  return add_node(Op::kActivate, {x}, GluAttrs{activation, parameters});
}
Value Builder::rope_freqs(const RopeFreqsAttrs& attrs, Value factors, Value long_factors) {
  std::vector<Value> operands;
  for (const Value list : {factors, long_factors})
    if (list.node != kNoNode) operands.push_back(list);
  return add_node(Op::kRopeFreqs, std::move(operands), attrs);
}
Value Builder::rope_table(Value positions, Value freqs, float magnitude, float temperature,
                          std::int64_t temperature_length, std::int64_t temperature_offset) {
  return add_node(Op::kRopeTable, {positions, freqs},
                  RopeTableAttrs{magnitude, temperature, temperature_length, temperature_offset});
}
Value Builder::rope(Value x, Value table, const RopeAttrs& attrs) {
  return add_node(Op::kRope, {x, table}, attrs);
}
Value Builder::kv_store(Value state, Value k, Value v, std::int64_t layer) {
  std::vector<Value> operands{state, k};
  if (v.node != kNoNode) operands.push_back(v);
  for (const auto kind : {InputKind::kPositions, InputKind::kSequence, InputKind::kBlockTable})
    operands.push_back(input(kind));
  return add_node(Op::kKvStore, std::move(operands), KvStoreAttrs{layer});
}
Value Builder::add_cache_reader(Op op, Value q, Value state, std::initializer_list<Value> optional, Attrs attrs) {
  std::vector<Value> operands{q,
                              state,
                              input(InputKind::kPositions),
                              input(InputKind::kSequence),
                              input(InputKind::kBlockTable),
                              input(InputKind::kKvLength)};
  for (const Value operand : optional)
    if (operand.node != kNoNode) operands.push_back(operand);
  return add_node(op, std::move(operands), std::move(attrs));
}
Value Builder::attention(Value q, Value state, const AttentionAttrs& attrs, Value sinks, Value selected) {
  return add_cache_reader(Op::kAttention, q, state, {sinks, selected}, attrs);
}
Value Builder::select_keys(Value q, Value state, const SelectKeysAttrs& attrs, Value weights) {
  return add_cache_reader(Op::kSelectKeys, q, state, {weights}, attrs);
}
/// Pieces of the same value share one operand: attrs.sources holds operand indices.
Value Builder::arrange(std::int64_t heads, std::span<const Piece> pieces, bool slots) {
  ArrangeAttrs attrs{.heads = heads, .slots = slots ? 1 : 0};
  std::vector<Value> operands;
  for (const auto& piece : pieces) {
    std::int64_t source = -1;
    if (piece.x.node != kNoNode) {
      const auto known = std::ranges::find(operands, piece.x);
      source = known - operands.begin();
      if (known == operands.end()) operands.push_back(piece.x);
    }
    attrs.sources.push_back(source);
    attrs.begins.push_back(piece.begin);
    attrs.strides.push_back(piece.stride);
    attrs.widths.push_back(piece.width);
  }
  return add_node(Op::kArrange, std::move(operands), std::move(attrs));
}
Builder::Recurrent Builder::add_recurrent(Op op, std::vector<Value> operands, Value state, Attrs attrs) {
  operands.push_back(state);
  for (const auto kind : {InputKind::kSequence, InputKind::kStateRead, InputKind::kStateWrite})
    operands.push_back(input(kind));
  const Value y = add_node(op, std::move(operands), std::move(attrs));
  return {y, {y.node, 1}};
}
Builder::Recurrent Builder::short_conv(Value x, Value kernel, Value bias, Value state, std::int64_t layer) {
  std::vector<Value> operands{x, kernel};
  if (bias.node != kNoNode) operands.push_back(bias);
  return add_recurrent(Op::kShortConv, std::move(operands), state, ShortConvAttrs{layer});
}
Builder::Recurrent Builder::delta_rule(Value q, Value k, Value v, Value log_decay, Value beta, Value state,
                                       const DeltaRuleAttrs& attrs) {
  return add_recurrent(Op::kDeltaRule, {q, k, v, log_decay, beta}, state, attrs);
}
Builder::Recurrent Builder::selective_scan(const ScanOperands& operands, Value state, const SelectiveScanAttrs& attrs) {
  const auto& [x, dt, a, b, c, d] = operands;
  return add_recurrent(Op::kSelectiveScan, {x, dt, a, b, c, d}, state, attrs);
}
Builder::Recurrent Builder::rwkv7(const Rwkv7Operands& operands, Value state, const Rwkv7Attrs& attrs) {
  const auto& [r, w, k, v, a, b] = operands;
  return add_recurrent(Op::kRwkv7, {r, w, k, v, a, b}, state, attrs);
}
Value Builder::self_attention(Value q, Value k, Value v, const SelfAttentionAttrs& attrs) {
  return add_node(Op::kSelfAttention, {q, k, v, input(InputKind::kSequence)}, attrs);
}
Value Builder::gather_rows(Value x, Value rows) {
  return add_node(Op::kGatherRows, {x, rows});
}

/// Factors are the third operand, so without a bias they need one of zeros.
Builder::Routed Builder::route(Value logits, const RouteAttrs& attrs, Value bias, Value factors) {
  const std::int64_t experts = graph_.type(logits).cols();
  if (factors.node != kNoNode && bias.node == kNoNode)
    bias = constant(std::vector<float>(static_cast<std::size_t>(experts)), {experts});
  std::vector<Value> operands{logits};
  for (const Value vector : {bias, factors})
    if (vector.node != kNoNode) operands.push_back(vector);
  const NodeId node = graph_.add(Op::kRoute, std::move(operands), attrs, layer_);
  return {{node, 0}, {node, 1}};
}
Value Builder::expert_matmul(Value x, Value weight, Value experts) {
  return add_node(Op::kExpertMatmul, {x, weight, experts});
}
Value Builder::expert_add(Value x, Value bias, Value experts) {
  return add_node(Op::kExpertAdd, {x, bias, experts});
}
Value Builder::expert_scale(Value x, Value factors, Value experts) {
  return add_node(Op::kExpertScale, {x, factors, experts});
}
Value Builder::expert_sum(Value x, Value shares) {
  return add_node(Op::kExpertSum, {x, shares});
}

}  // namespace forge::ir
