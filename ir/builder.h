#pragma once
// A builder with one function an op: model families read like the papers' formulas.

#include <array>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace forge::ir {

class Builder {
 public:
  explicit Builder(Graph& graph) : graph_(graph) {}

  void set_layer(std::int32_t layer) { layer_ = layer; }
  [[nodiscard]] std::int32_t layer() const { return layer_; }
  [[nodiscard]] Graph& graph() { return graph_; }

  /// The graph's input of that kind; added on first use. `width`: of embeddings.
  Value input(InputKind kind, std::int64_t width = 0);
  Value weight(std::string name, DType dtype, Shape shape);
  Value constant(std::vector<float> values, Shape shape);
  Value kv_state(const KvStateAttrs& attrs);
  Value recurrent_state(const RecurrentStateAttrs& attrs);
  Value embed(Value table, Value ids);
  Value slice_rows(Value weight, std::int64_t begin, std::int64_t rows);
  /// The mean is over as many columns as `weight` has: a head's for QK-norm.
  Value rms_norm(Value x, Value weight, float eps);
  /// As many columns as a row of `weight` has; `bias` may be none.
  Value layer_norm(Value x, Value weight, Value bias, float eps);
  Value matmul(Value x, Value weight);
  /// An op of kernels/elementwise with its parameters in their order.
  Value function(Op op, std::vector<Value> operands, const std::vector<float>& parameters = {});
  // A function for each of these ops: add(a, b), scale(x, factor).
#define FORGE_BUILD_kUnary(name, Name)                                      \
  template <class... Numbers>                                               \
  Value name(Value x, Numbers... parameters) {                              \
    return function(Op::k##Name, {x}, {static_cast<float>(parameters)...}); \
  }
#define FORGE_BUILD_kBinary(name, Name)                                        \
  template <class... Numbers>                                                  \
  Value name(Value a, Value b, Numbers... parameters) {                        \
    return function(Op::k##Name, {a, b}, {static_cast<float>(parameters)...}); \
  }
#define FORGE_BUILD_kCommutative(name, Name) FORGE_BUILD_kBinary(name, Name)
#define FORGE_BUILD(name, Name, form, ...) FORGE_BUILD_##form(name, Name)
  FORGE_ELEMENTWISE_FUNCTIONS(FORGE_BUILD, FORGE_NO_ROW)
#undef FORGE_BUILD
#undef FORGE_BUILD_kUnary
#undef FORGE_BUILD_kBinary
#undef FORGE_BUILD_kCommutative
  Value glu(Value gate, Value up, Activation activation, elementwise::Parameters parameters = {});
  Value activate(Value x, Activation activation, elementwise::Parameters parameters = {});
  /// `long_factors`: instead of `factors` where contexts are longer than attrs.original_context.
  Value rope_freqs(const RopeFreqsAttrs& attrs, Value factors = {}, Value long_factors = {});
  Value rope_table(Value positions, Value freqs, float magnitude, float temperature = 0,
                   std::int64_t temperature_length = 0);
  Value rope(Value x, Value table, const RopeAttrs& attrs);
  /// Rows h of x [M,H,K] by weight[h]; see Op::kBatchedMatmul.
  Value batched_matmul(Value x, Value weight);
  /// kv_store and attention take positions, sequences and block tables from the step's inputs.
  /// No `v`: the state's rows are shared.
  Value kv_store(Value state, Value k, Value v, std::int64_t layer);
  /// `sinks` [heads]: none unless given.
  Value attention(Value q, Value state, const AttentionAttrs& attrs, Value sinks = {});
  Value gather_rows(Value x, Value rows);
  /// Columns [begin + head * stride, + width) of x; without x zeros.
  struct Piece {
    Value x;
    std::int64_t begin = 0, stride = 0, width = 0;
  };
  /// `heads` times the pieces side by side, one of which has an x; slots: heads become a dimension.
  Value arrange(std::int64_t heads, std::span<const Piece> pieces, bool slots = false);
  /// The chosen experts and their shares; `bias` moves the choice only.
  struct Routed {
    Value experts, shares;
  };
  Routed route(Value logits, const RouteAttrs& attrs, Value bias = {});
  Value expert_matmul(Value x, Value weight, Value experts);
  Value expert_add(Value x, Value bias, Value experts);
  Value expert_sum(Value x, Value shares);

 private:
  Value one(Op op, std::vector<Value> operands, Attrs attrs = {});
  Graph& graph_;
  std::array<Value, 7> inputs_{};  ///< by InputKind
  std::int32_t layer_ = kNoLayer;
};

}  // namespace forge::ir
