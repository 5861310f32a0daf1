#include "ir/interpreter.h"

#include <fmt/format.h>

#include <algorithm>

#include "support/error.h"

namespace forge::ir {
namespace {

[[noreturn]] void misuse(std::string what, std::string why = {}) {
  throw Error(ErrorCode::kInternal, "interpreter: " + std::move(what), std::move(why));
}

/// Checks that the inputs fit together and returns the value of each symbol in this step: real counts, not the upper
/// bounds of a variant.
Bounds real_counts(const StepInputs& in) {
  const auto tokens = in.ids.size();
  if (in.positions.size() != tokens || in.sequence.size() != tokens)
    misuse(fmt::format("{} ids, {} positions, {} sequence numbers", tokens, in.positions.size(), in.sequence.size()),
           "a step has one of each for every token");
  if (in.block_table.size() != in.kv_length.size())
    misuse(fmt::format("{} KV lengths, {} block table rows", in.kv_length.size(), in.block_table.size()));
  std::size_t blocks = 0;
  for (const auto& row : in.block_table) blocks = std::max(blocks, row.size());
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::int32_t sequence = in.sequence[t];
    if (sequence < 0 || static_cast<std::size_t>(sequence) >= in.kv_length.size())
      misuse(fmt::format("token {} belongs to sequence {}, the step has {}", t, sequence, in.kv_length.size()));
    if (in.positions[t] < 0 || in.positions[t] >= in.kv_length[sequence])
      misuse(fmt::format("token {} is at position {}, its sequence is {} long", t, in.positions[t],
                         in.kv_length[sequence]));
  }
  const auto count = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  return {count(tokens), count(in.rows.size()), count(in.kv_length.size()), count(blocks)};
}

class Interpreter {
 public:
  Interpreter(const Graph& graph, const StepInputs& inputs, ReferenceKv& kv, const WeightLoader& weights,
              bool quantize_activations)
      : graph_(graph), weights_(weights), counts_(real_counts(inputs)) {
    if (kv.block_tokens < 1) misuse("block_tokens must be at least 1");
    context_.inputs = &inputs;
    context_.kv = &kv;
    context_.quantize_activations = quantize_activations;
    context_.positions_max = counts_.table_blocks * kv.block_tokens;
  }

  /// Evaluates all nodes in topological order and returns the outputs. Use counts free each result after its last use,
  /// which bounds the memory that weights in f32 take.
  std::map<std::string, Tensor> run() {
    const auto order = graph_.topological_order();
    values_.resize(graph_.id_bound());
    uses_left_.resize(graph_.id_bound());
    for (const NodeId node : order) {
      for (const Value& value : graph_.operands(node)) ++uses_left_[value.node];
      if (graph_.op(node) == Op::kWeight) ++weight_nodes_left_[graph_.attrs_as<WeightAttrs>(node).name];
    }
    for (const auto& output : graph_.outputs()) ++uses_left_[output.value.node];
    for (const NodeId node : order) {
      evaluate(node);
      for (const Value& value : graph_.operands(node)) release(value.node);
    }
    std::map<std::string, Tensor> results;
    for (const auto& [name, value] : graph_.outputs())
      if (!graph_.type(value).is_state()) results.emplace(name, *values_[value.node][value.result]);
    return results;
  }

 private:
  using TensorPtr = std::shared_ptr<Tensor>;

  /// A tensor of zeros with this step's extents.
  [[nodiscard]] Tensor make_zeros(const TensorType& type) const {
    Tensor tensor{.type = type, .dims = {}, .f32 = {}, .i32 = {}};
    for (const Dim& dim : type.shape) tensor.dims.push_back(dim.is_constant() ? dim.value : counts_.of(dim.symbol));
    const auto elements = static_cast<std::size_t>(type.elements(counts_));
    if (type.dtype == DType::kI32)
      tensor.i32.resize(elements);
    else
      tensor.f32.resize(elements);
    return tensor;
  }

  /// Counts one use of a node's results as done and frees them after the last one.
  void release(NodeId node) {
    if (--uses_left_[node] == 0) values_[node].clear();
  }

  void evaluate(NodeId node) {
    auto& results = values_[node];
    switch (graph_.op(node)) {
      case Op::kInput:
        results.push_back(input(node));
        return;
      case Op::kWeight:
        results.push_back(weight(node));
        return;
      case Op::kConstant: {
        results.push_back(std::make_shared<Tensor>(make_zeros(graph_.type({node, 0}))));
        results[0]->f32 = graph_.attrs_as<ConstantAttrs>(node).values;
        return;
      }
      case Op::kKvState: {
        results.push_back(std::make_shared<Tensor>(make_zeros(graph_.type({node, 0}))));
        state_group_[node] = graph_.attrs_as<KvStateAttrs>(node).group;
        return;
      }
      case Op::kRecurrentState:
        results.push_back(std::make_shared<Tensor>(make_zeros(graph_.type({node, 0}))));
        state_group_[node] = graph_.attrs_as<RecurrentStateAttrs>(node).group;
        return;
      default:
        run_reference(node);
    }
  }

  /// Calls the op's scalar reference. States have no data of their own here: a state result is an empty tensor that
  /// carries its group along the chain of stores (state_group_).
  void run_reference(NodeId node) {
    std::vector<const Tensor*> operands;
    for (const Value& value : graph_.operands(node)) {
      operands.push_back(values_[value.node][value.result].get());
      if (graph_.type(value).is_state()) context_.state_group = state_group_[node] = state_group_.at(value.node);
    }
    std::vector<Tensor> made;
    for (const TensorType& type : graph_.results(node)) made.push_back(make_zeros(type));
    const OpDef& def = op_def(graph_.op(node));
    if (def.reference == nullptr) misuse(fmt::format("{} has no reference", def.name));
    def.reference(graph_.attrs(node), operands, made, context_);
    for (Tensor& tensor : made) values_[node].push_back(std::make_shared<Tensor>(std::move(tensor)));
  }

  void check_slots(const std::vector<std::int32_t>& slots) const {
    if (static_cast<std::int64_t>(slots.size()) != counts_.sequences)
      misuse(fmt::format("{} state slots for {} sequences", slots.size(), counts_.sequences));
  }

  TensorPtr input(NodeId node) const {
    Tensor tensor = make_zeros(graph_.type({node, 0}));
    const StepInputs& in = *context_.inputs;
    switch (graph_.attrs_as<InputAttrs>(node).kind) {
      case InputKind::kIds:
        tensor.i32 = in.ids;
        break;
      case InputKind::kPositions:
        tensor.i32 = in.positions;
        break;
      case InputKind::kSequence:
        tensor.i32 = in.sequence;
        break;
      case InputKind::kRows:
        tensor.i32 = in.rows;
        break;
      case InputKind::kKvLength:
        tensor.i32 = in.kv_length;
        break;
      case InputKind::kStateRead:
        check_slots(in.state_read);
        tensor.i32 = in.state_read;
        break;
      case InputKind::kStateWrite:
        check_slots(in.state_write);
        tensor.i32 = in.state_write;
        break;
      case InputKind::kEmbeddings:
        if (in.embeddings.size() != tensor.f32.size()) misuse("embeddings must have one row for each token");
        tensor.f32 = in.embeddings;
        break;
      case InputKind::kBlockTable:
        std::ranges::fill(tensor.i32, -1);  // -1, no block, pads the shorter rows
        for (std::size_t row = 0; row < in.block_table.size(); ++row)
          std::ranges::copy(in.block_table[row], tensor.i32.begin() + static_cast<std::int64_t>(row) * tensor.cols());
        break;
    }
    return std::make_shared<Tensor>(std::move(tensor));
  }

  /// Several nodes may name the same tensor, so a weight is loaded on first use and kept in loaded_ until the last node
  /// of that name has been evaluated. From then on only the values_ of its nodes hold it.
  TensorPtr weight(NodeId node) {
    const auto& attrs = graph_.attrs_as<WeightAttrs>(node);
    TensorPtr& loaded = loaded_[attrs.name];
    if (!loaded && uses_left_[node] > 0) {
      Tensor tensor{.type = attrs.type, .dims = {}, .f32 = weights_(attrs.name, attrs.type), .i32 = {}};
      for (const Dim& dim : attrs.type.shape) tensor.dims.push_back(dim.value);
      if (static_cast<std::int64_t>(tensor.f32.size()) != attrs.type.elements(counts_))
        misuse(fmt::format("{} values for {} {}", tensor.f32.size(), attrs.name, attrs.type.text()));
      loaded = std::make_shared<Tensor>(std::move(tensor));
    }
    TensorPtr result = loaded;
    if (--weight_nodes_left_[attrs.name] == 0) loaded_.erase(attrs.name);
    return result;
  }

  const Graph& graph_;
  const WeightLoader& weights_;
  Bounds counts_;
  EvalContext context_;
  std::vector<std::vector<TensorPtr>> values_;  // by node, then result; cleared after the last use
  std::vector<std::size_t> uses_left_;          // by node
  std::map<NodeId, std::int64_t> state_group_;
  std::map<std::string, TensorPtr> loaded_;               // by weight name
  std::map<std::string, std::size_t> weight_nodes_left_;  // by weight name: nodes not yet evaluated
};

}  // namespace

std::int64_t Tensor::rows() const {
  std::int64_t product = 1;
  for (std::size_t i = 0; i + 1 < dims.size(); ++i) product *= dims[i];
  return product;
}

std::map<std::string, Tensor> interpret(const Graph& graph, const StepInputs& inputs, ReferenceKv& kv,
                                        const WeightLoader& weights, bool quantize_activations) {
  return Interpreter(graph, inputs, kv, weights, quantize_activations).run();
}

}  // namespace forge::ir
