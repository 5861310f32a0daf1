#pragma once
// Builder adds nodes to a graph with one function for each op, so that model families (loader/arch) read like the
// formulas of their papers:
//   ir::Value h = b.rms_norm(x, b.weight("blk.0.attn_norm.weight", DType::kF32, {576}), 1e-5F);
//   ir::Value q = b.matmul(h, b.weight("blk.0.attn_q.weight", DType::kQ8_0, {576, 576}));
// Operands, attributes and shapes of each op are described in op.h and attrs.h. Every function throws
// Error(kInternal) when the op's shape rule rejects the operands.

#include <array>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace forge::ir {

class Builder {
 public:
  /// Adds to `graph`, which must outlive the builder.
  explicit Builder(Graph& graph) : graph_(graph) {}

  /// Nodes added from now on belong to this layer; kNoLayer for none.
  void set_layer(std::int32_t layer) { layer_ = layer; }
  [[nodiscard]] std::int32_t layer() const { return layer_; }
  [[nodiscard]] Graph& graph() { return graph_; }

  /// The graph's only input node of this kind, added on first use. `width` is for kEmbeddings only.
  Value input(InputKind kind, std::int64_t width = 0);
  // Sources, which have no tensor operands.
  Value weight(std::string name, DType dtype, Shape shape);
  Value constant(std::vector<float> values, Shape shape);
  Value kv_state(const KvStateAttrs& attrs);
  Value recurrent_state(const RecurrentStateAttrs& attrs);
  Value embed(Value table, Value ids);
  /// Columns of x, divided into parts of these sizes, one after the other.
  std::vector<Value> split(Value x, std::vector<std::int64_t> sizes);
  Value slice_rows(Value weight, std::int64_t begin, std::int64_t rows);
  /// RMSNorm over runs of as many columns as `weight` has: a whole row, or one head for QK-norm.
  Value rms_norm(Value x, Value weight, float eps);
  /// LayerNorm over runs of as many columns as a row of `weight` has. `bias` may be Value{}: none.
  Value layer_norm(Value x, Value weight, Value bias, float eps);
  /// x scaled row by row to the length of the rows of `like`.
  Value match_rms(Value x, Value like);
  Value gaussian_topk(Value x, float cutoff);
  Value matmul(Value x, Value weight);
  /// Any elementwise op of kernels/elementwise. `parameters` are in the order of the op's row there; their number must
  /// match (IR-000).
  Value function(Op op, std::vector<Value> operands, const std::vector<float>& parameters = {});
  // The macros below generate a named function for each of these ops: add(a, b), mul(a, b), scale(x, factor), ...
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
  /// `long_factors` replaces `factors` for contexts longer than attrs.original_context; both may be Value{}: none.
  Value rope_freqs(const RopeFreqsAttrs& attrs, Value factors = {}, Value long_factors = {});
  Value rope_table(Value positions, Value freqs, float magnitude, float temperature = 0,
                   std::int64_t temperature_length = 0, std::int64_t temperature_offset = 0);
  Value rope(Value x, Value table, const RopeAttrs& attrs);
  /// Multiplies row h of each token in x [M,H,K] by the matrix weight[h] of weight [H,N,K].
  Value batched_matmul(Value x, Value weight);
  /// Writes k and v of one layer into the KV cache and returns the new state. `v` is Value{} where the state has shared
  /// rows. Positions, sequences and block table are the step's inputs.
  Value kv_store(Value state, Value k, Value v, std::int64_t layer);
  /// Attends to a layer of `state`, which must already include this step's store of that layer. `sinks` [heads] are
  /// optional. `selected` is the result of select_keys, with attrs.selected and attrs.selected_block as there, or
  /// Value{}. Positions, sequences, block table and KV lengths are the step's inputs.
  Value attention(Value q, Value state, const AttentionAttrs& attrs, Value sinks = {}, Value selected = {});
  /// The keys that the tokens' attention keeps. `state` must already include this step's store of the layer of index
  /// keys; `weights` [T,heads] are optional.
  Value select_keys(Value q, Value state, const SelectKeysAttrs& attrs, Value weights = {});
  /// Result of an op with recurrent state: y, and the state after this layer. Sequence and slots are the step's inputs.
  struct Recurrent {
    Value y, state;
  };
  /// `bias` [C] is optional.
  Recurrent short_conv(Value x, Value kernel, Value bias, Value state, std::int64_t layer);
  Recurrent delta_rule(Value q, Value k, Value v, Value log_decay, Value beta, Value state,
                       const DeltaRuleAttrs& attrs);
  /// The operands x, dt, a, b, c and d of a selective scan, which op.h describes.
  struct ScanOperands {
    Value x, dt, a, b, c, d;
  };
  Recurrent selective_scan(const ScanOperands& operands, Value state, const SelectiveScanAttrs& attrs);
  /// The operands r, w, k, v, a and b of RWKV-7's recurrence (Rwkv7Attrs).
  struct Rwkv7Operands {
    Value r, w, k, v, a, b;
  };
  Recurrent rwkv7(const Rwkv7Operands& operands, Value state, const Rwkv7Attrs& attrs);
  /// Attention of encoders. The sequences are the step's input.
  Value self_attention(Value q, Value k, Value v, const SelfAttentionAttrs& attrs);
  Value gather_rows(Value x, Value rows);
  /// One piece of arrange (ArrangeAttrs): columns [begin + head * stride, ... + width) of x, or zeros without an x.
  struct Piece {
    Value x;
    std::int64_t begin = 0, stride = 0, width = 0;
  };
  /// Places the pieces side by side for each of `heads` heads. At least one piece has an x. With `slots` the heads are
  /// the result's second dimension.
  Value arrange(std::int64_t heads, std::span<const Piece> pieces, bool slots = false);
  /// Result of route: experts i32 [M,U], the chosen ones, best first; shares f32 [M,U], their routing weights.
  struct Routed {
    Value experts, shares;
  };
  /// `bias` [E] affects the choice only, never the routing weights; `factors` [E] multiply these. Both may be Value{}.
  Routed route(Value logits, const RouteAttrs& attrs, Value bias = {}, Value factors = {});
  Value expert_matmul(Value x, Value weight, Value experts);
  Value expert_add(Value x, Value bias, Value experts);
  Value expert_scale(Value x, Value factors, Value experts);
  Value expert_sum(Value x, Value shares);

 private:
  Value add_node(Op op, std::vector<Value> operands, Attrs attrs = {});
  Value add_cache_reader(Op op, Value q, Value state, std::initializer_list<Value> optional, Attrs attrs);
  Recurrent add_recurrent(Op op, std::vector<Value> operands, Value state, Attrs attrs);
  Graph& graph_;
  std::array<Value, 9> inputs_{};  ///< the input nodes found or added so far, by InputKind
  std::int32_t layer_ = kNoLayer;
};

}  // namespace forge::ir
