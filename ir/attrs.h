#pragma once
// Op attributes: one plain struct for each op that has attributes, and the variant `Attrs` of all of them. Everything
// about an op that is not a tensor operand is here: head counts, epsilons, RoPE scaling, the name of a weight.
//
// `fields(visitor)` is the only list of a struct's members; printing, parsing and hashing all walk it. A member that is
// missing from it would be lost in the text form and in the hash:
//   struct NormAttrs { float eps; std::int64_t dim; FORGE_FIELDS(v("eps", eps); v("dim", dim);) };
//   text form: {eps = 1e-05; dim = 576}
// Member names are the names of the text form, which plans store, so they must not change.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "ir/type.h"
#include "kernels/elementwise/function.h"

namespace forge::ir {

/// The inputs of a forward step (T tokens of B sequences, R rows of logits, P block-table entries a sequence):
///   ids         i32 [T]      token ids
///   positions   i32 [T]      absolute position of each token in its sequence
///   sequence    i32 [T]      index of the token's sequence: its row in kv_length and block_table
///   rows        i32 [R]      the tokens whose logits are computed
///   kv_length   i32 [B]      positions of each sequence in the KV cache, those of this step included
///   block_table i32 [B,P]    physical KV block of each logical block, for the KV group whose state the op takes
///   embeddings  f32 [T,width]  rows that are computed elsewhere and stand for tokens, such as those of an image
///   state_read  i32 [B]      slot of the recurrent state that each sequence continues; -1: it starts with zeros
///   state_write i32 [B]      slot where its state after this step goes; may be the slot that it reads
enum class InputKind : std::uint8_t {
  kIds,
  kPositions,
  kSequence,
  kRows,
  kKvLength,
  kBlockTable,
  kEmbeddings,
  kStateRead,
  kStateWrite
};
/// The activation functions, generated from the table in kernels/elementwise/elementwise.h and in its order.
#define FORGE_ACTIVATION(name, Name, ...) k##Name,
enum class Activation : std::uint8_t { FORGE_ELEMENTWISE_FUNCTIONS(FORGE_NO_ROW, FORGE_ACTIVATION) };
#undef FORGE_ACTIVATION
/// Which two columns of a head RoPE rotates together: kPairs (2i, 2i+1), as the Llama paper does; kHalves
/// (i, i + rotary_dims/2), as GPT-NeoX does.
enum class RopeMode : std::uint8_t { kPairs, kHalves };
/// What a kv_store writes. kBoth: the keys and, where the KV group has rows of values, the values. kKeys, kValues: one
/// of them, because another kv_store writes the other.
enum class KvHalf : std::uint8_t { kBoth, kKeys, kValues };
enum class RopeScaling : std::uint8_t { kNone, kLinear, kYarn };
/// How a router turns its logits into scores: a softmax over all experts, or a sigmoid of each expert's logit.
enum class RouteGate : std::uint8_t { kSoftmax, kSigmoid };
/// How a token's routing weights are normalised. kAll: they are the gate's scores, which add up to 1 over all experts.
/// kChosen: they are divided by their sum over the chosen experts (norm_topk_prob in Hugging Face configurations).
enum class RoutingNormalization : std::uint8_t { kAll, kChosen };

/// Defines `fields(v)`, once for const and once for mutable objects, and memberwise ==. The macro's argument is the
/// body of `fields`: a call v("name", member) for each member. The struct must define Self as itself.
#define FORGE_FIELDS(...)   \
  template <class V>        \
  void fields(V& v) {       \
    __VA_ARGS__             \
  }                         \
  template <class V>        \
  void fields(V& v) const { \
    __VA_ARGS__             \
  }                         \
  bool operator==(const Self&) const = default;

/// Of ops without attributes.
struct NoAttrs {
  using Self = NoAttrs;
  FORGE_FIELDS((void)v;)
};
struct InputAttrs {
  using Self = InputAttrs;
  InputKind kind{};
  std::int64_t width = 0;  ///< columns of kEmbeddings; 0 for all other inputs, and not printed
  FORGE_FIELDS(v("kind", kind); if (kind == InputKind::kEmbeddings) v("width", width);)
};
/// Placeholder in a weight's name for the number of an expert, see WeightAttrs.
inline constexpr char kExpertWildcard = '*';
/// A tensor of the model file, by its name there; a graph never holds its bytes. `type` is the type of the result; the
/// text form prints it after the colon only. A name that contains kExpertWildcard stands for several tensors that form
/// one [E,N,K] weight: "blk.0.ffn_up.*.weight" is blk.0.ffn_up.0.weight [N,K], blk.0.ffn_up.1.weight [N,K], ...
struct WeightAttrs {
  using Self = WeightAttrs;
  std::string name;
  TensorType type;
  FORGE_FIELDS(v("name", name); v("type", type);)
};
/// A small f32 tensor whose values are known at compile time; `values` are row-major, one for each element of `type`.
struct ConstantAttrs {
  using Self = ConstantAttrs;
  std::vector<float> values;
  TensorType type;
  FORGE_FIELDS(v("values", values); v("type", type);)
};
/// Columns of one head's values: `value_dim`, or `head_dim` where `value_dim` is 0.
constexpr std::int64_t value_dim_of(const auto& attrs) {
  return attrs.value_dim > 0 ? attrs.value_dim : attrs.head_dim;
}
/// The KV cache of one KV group, before this step. A KV group is all the layers with the same cache geometry: heads,
/// dimensions and window; they share a block table. With a sliding window the cache holds the last `window` positions
/// of a sequence and, while a step runs, the positions of that step too. With a shared row (multi-head latent
/// attention) there are no rows of values: a head's values are the first value_dim columns of its keys.
struct KvStateAttrs {
  using Self = KvStateAttrs;
  std::int64_t group = 0, layers = 0, kv_heads = 0, head_dim = 0, window = 0;  ///< window 0: full attention
  std::int64_t value_dim = 0;                                                  ///< 0: the same as head_dim
  std::int64_t shared_row = 0;                                                 ///< 1: values are columns of the keys
  FORGE_FIELDS(v("group", group); v("layers", layers); v("kv_heads", kv_heads); v("head_dim", head_dim);
               v("window", window); v("value_dim", value_dim); v("shared_row", shared_row);)
};
/// Recurrent state of one group of layers: `floats` f32 values for each slot and layer, independent of the sequence's
/// length. A slot holds the state of one sequence at one position; a step reads one slot of each sequence and writes
/// one (InputKind).
struct RecurrentStateAttrs {
  using Self = RecurrentStateAttrs;
  std::int64_t group = 0, layers = 0, floats = 0;
  FORGE_FIELDS(v("group", group); v("layers", layers); v("floats", floats);)
};
/// max(0, x - mean - cutoff * deviation) of each row (kGaussianTopk).
struct GaussianTopkAttrs {
  using Self = GaussianTopkAttrs;
  float cutoff = 0;  ///< standard deviations above the mean
  FORGE_FIELDS(v("cutoff", cutoff);)
};
struct NormAttrs {
  using Self = NormAttrs;
  float eps = 0;
  std::int64_t dim = 0;  ///< the mean is over runs of `dim` columns: the row's width, or head_dim for QK-norm
  FORGE_FIELDS(v("eps", eps); v("dim", dim);)
};
/// Attributes of the elementwise ops that have parameters, such as ScaleAttrs and SoftcapAttrs: one f32 member for each
/// parameter. For an op without parameters the macro only declares the struct.
#define FORGE_MEMBER(name, range) float name = 0;
#define FORGE_VISIT(name, range) v(#name, name);
#define FORGE_OP_ATTRS(name, Name, form, flops, ...)   \
  struct Name##Attrs __VA_OPT__({                      \
    using Self = Name##Attrs;                          \
    FORGE_EACH(FORGE_MEMBER, __VA_ARGS__)              \
    FORGE_FIELDS(FORGE_EACH(FORGE_VISIT, __VA_ARGS__)) \
  });
FORGE_ELEMENTWISE_FUNCTIONS(FORGE_OP_ATTRS, FORGE_NO_ROW)
#undef FORGE_MEMBER
#undef FORGE_VISIT
#undef FORGE_OP_ATTRS
/// The kernels/elementwise function that implements the activation.
elementwise::Function function_of(Activation activation);
/// Calls v(name, value) for each parameter of the activation.
template <class V, class Values>
void visit_parameters(V& v, Activation activation, Values& values) {
  const auto& def = elementwise::function_def(function_of(activation));
  for (std::size_t i = 0; i < def.parameter_count; ++i) v(def.parameters[i].name, values[i]);
}
/// Attributes of glu and activate. In the text form the activation's parameters follow it, under the names that its
/// row in kernels/elementwise/elementwise.h gives them.
struct GluAttrs {
  using Self = GluAttrs;
  Activation activation{};
  elementwise::Parameters parameters{};  ///< entries beyond the activation's parameter count must be 0
  FORGE_FIELDS(v("activation", activation); visit_parameters(v, activation, parameters);)
};
/// The type that values are quantised to. It is the result's element type, so the text form prints it after the colon
/// only.
struct QuantizeAttrs {
  using Self = QuantizeAttrs;
  DType dtype = DType::kQ8A_32;
  FORGE_FIELDS(v("dtype", dtype);)
};
/// Selects rows [begin, begin + rows) of a weight.
struct SliceAttrs {
  using Self = SliceAttrs;
  std::int64_t begin = 0, rows = 0;
  FORGE_FIELDS(v("begin", begin); v("rows", rows);)
};
/// How a split's columns, or the rows of concatenated weights, are divided into parts. `sizes` has one entry a part.
///   unit 0   one part after the other:  sizes [4, 2]             a0 a1 a2 a3 b0 b1
///   unit u   interleaved in runs of u:  sizes [4, 4], unit 2     a0 a1 b0 b1 a2 a3 b2 b3
/// With a unit all parts have the same size, a multiple of the unit.
struct PartsAttrs {
  using Self = PartsAttrs;
  std::vector<std::int64_t> sizes;
  std::int64_t unit = 0;
  FORGE_FIELDS(v("sizes", sizes); v("unit", unit);)
};
/// Builds each head of the result from pieces of the operands' columns, placed side by side:
///   head h = [ piece 0 | piece 1 | ... ]
///   piece i = columns [begins[i] + h * strides[i], ... + widths[i]) of operand sources[i], or zeros where it is -1
/// Columns of a [M,U,N] operand are counted through all U * N of a row. stride 0 gives all heads the same columns.
/// `slots` 1 makes the heads the second dimension of the result, [M,heads,width]; 0 gives [M,heads*width].
struct ArrangeAttrs {
  using Self = ArrangeAttrs;
  std::int64_t heads = 1, slots = 0;
  std::vector<std::int64_t> sources, begins, strides, widths;
  FORGE_FIELDS(v("heads", heads); v("slots", slots); v("sources", sources); v("begins", begins); v("strides", strides);
               v("widths", widths);)
};
/// The dims/2 rotation frequencies: frequency i is base^(-2i/dims) before factors and scaling. YaRN is that of arXiv
/// 2309.00071 with ggml's parameter names. With two operands of factors (LongRoPE, arXiv 2402.13753) the second one is
/// for contexts longer than `original_context`.
struct RopeFreqsAttrs {
  using Self = RopeFreqsAttrs;
  std::int64_t dims = 0;
  float base = 10000;
  RopeScaling scaling{};
  float factor = 1;                                     ///< context extension factor; 1: none
  std::int64_t original_context = 0;                    ///< needed by YaRN and by two lists of factors
  float ext_factor = 0, beta_fast = 32, beta_slow = 1;  ///< YaRN only
  FORGE_FIELDS(v("dims", dims); v("base", base); v("scaling", scaling); v("factor", factor);
               v("original_context", original_context); v("ext_factor", ext_factor); v("beta_fast", beta_fast);
               v("beta_slow", beta_slow);)
};
/// cos and sin of position * frequency, both multiplied by `magnitude` (YaRN's attention factor). With a temperature
/// they are also multiplied by 1 + temperature * ln(1 + floor((position + temperature_offset) / temperature_length)). A
/// table with a temperature rotates q only, which sharpens attention at large positions (query scaling of Llama 4 and
/// Ministral 3).
struct RopeTableAttrs {
  using Self = RopeTableAttrs;
  float magnitude = 1, temperature = 0;
  std::int64_t temperature_length = 0, temperature_offset = 0;
  FORGE_FIELDS(v("magnitude", magnitude); v("temperature", temperature); v("temperature_length", temperature_length);
               v("temperature_offset", temperature_offset);)
};
/// Rotates the first `rotary_dims` columns of each head; the others are copied.
struct RopeAttrs {
  using Self = RopeAttrs;
  std::int64_t head_dim = 0, rotary_dims = 0;
  RopeMode mode{};
  FORGE_FIELDS(v("head_dim", head_dim); v("rotary_dims", rotary_dims); v("mode", mode);)
};
struct KvStoreAttrs {
  using Self = KvStoreAttrs;
  std::int64_t layer = 0;  ///< index of the layer in its KV group, not in the model
  KvHalf half{};
  FORGE_FIELDS(v("layer", layer); v("half", half);)
};
/// Causal attention of one layer: softmax(softcap(scale * q . k)) . v over the KV cache. `layer` is the index in the
/// KV group, as in KvStoreAttrs. heads / kv_heads query heads share one KV head.
struct AttentionAttrs {
  using Self = AttentionAttrs;
  std::int64_t layer = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1;
  std::int64_t window = 0;     ///< sliding window in positions, the token's own included; 0: full attention
  float softcap = 0;           ///< scores become softcap * tanh(score / softcap); 0: none
  std::int64_t value_dim = 0;  ///< 0: the same as head_dim
  std::int64_t chunk = 0;      ///< the token at p sees positions from chunk * floor(p / chunk) on; 0: from 0 on
  float alibi = 0;             ///< ALiBi's largest bias, see alibi_slope; 0: none
  /// Sparse attention: of the positions above a token sees only those that the last operand lists, `selected` entries
  /// for each of its lists (SelectKeysAttrs); 0: there is no such operand. With one list a KV head each has its own.
  std::int64_t selected = 0, selected_block = 0;
  FORGE_FIELDS(v("layer", layer); v("heads", heads); v("kv_heads", kv_heads); v("head_dim", head_dim);
               v("scale", scale); v("window", window); v("softcap", softcap); v("value_dim", value_dim);
               v("chunk", chunk); v("alibi", alibi); v("selected", selected); v("selected_block", selected_block);)
};
/// The keys that take part in a token's attention (sparse attention by an indexer, arXiv 2512.02556). Index keys are
/// the rows of a KV group of their own, one head with a shared row; `layer` is the index in that group. A visible key k
/// scores
///   with weights:  sum over heads j of weights[j] * max(0, q_j . k)       one list for the token
///   without:       q_j . k                                               one list for each head j
/// Positions are chosen in blocks of `block`, whose score is that of their best visible key. The `local` newest blocks,
/// that of the token included, are always chosen; then the best ones up to `top_k`, of equal ones the earlier. A list
/// has the numbers of the chosen blocks in ascending order, then -1.
struct SelectKeysAttrs {
  using Self = SelectKeysAttrs;
  std::int64_t layer = 0, heads = 0, head_dim = 0, top_k = 0, block = 1, local = 0;
  FORGE_FIELDS(v("layer", layer); v("heads", heads); v("head_dim", head_dim); v("top_k", top_k); v("block", block);
               v("local", local);)
};
/// Attention of encoders: every token sees all tokens of its sequence, which are all in the step; nothing is cached.
/// With a window w the tokens at i and j see each other if |i - j| <= w / 2. heads / kv_heads query heads share one KV
/// head.
struct SelfAttentionAttrs {
  using Self = SelfAttentionAttrs;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1;
  std::int64_t window = 0;  ///< 0: none
  float alibi = 0;          ///< ALiBi's largest bias, see alibi_slope; 0: none
  FORGE_FIELDS(v("heads", heads); v("kv_heads", kv_heads); v("head_dim", head_dim); v("scale", scale);
               v("window", window); v("alibi", alibi);)
};
/// ALiBi (arXiv 2108.12409): a head's score for the key at distance d (0: the token itself) gets -slope * d, after
/// scale and soft-cap; in encoders to both sides. The slopes of the first n heads, n being the largest power of two up
/// to `heads`, are 2^(-max_bias (h + 1) / n); further heads take the odd powers in between.
float alibi_slope(float max_bias, std::int64_t heads, std::int64_t head);
/// How the router chooses `used` experts for a token. Experts are ranked by the gate's score plus the bias operand
/// where there is one (arXiv 2408.15664); of equal ones the lower number wins. Routing weights come from the score
/// without the bias; a third operand has a factor for each expert, which multiplies its routing weight last. With
/// groups > 1 (group-limited routing, arXiv 2412.19437, section 2.1.2) the experts are divided
/// into that many groups of consecutive experts; a group's rank is the sum of its `group_top` best experts, and only
/// experts of the `groups_used` best groups can be chosen. With experts_per_adjugate = n > 1 the experts that were
/// ranked stand for smaller ones that n of them share (GroveMoE, arXiv 2508.07785): expert e for e / n, whose routing
/// weight comes from the score of expert e / n.
struct RouteAttrs {
  using Self = RouteAttrs;
  std::int64_t used = 1;
  RouteGate gate{};
  RoutingNormalization share{};
  float scale = 1;  ///< multiplies the routing weights after normalisation
  std::int64_t groups = 1, groups_used = 1, group_top = 1, experts_per_adjugate = 1;
  FORGE_FIELDS(v("used", used); v("gate", gate); v("share", share); v("scale", scale); v("groups", groups);
               v("groups_used", groups_used); v("group_top", group_top);
               v("experts_per_adjugate", experts_per_adjugate);)
};
// Ops with recurrent state. `layer` is the index of the layer in its recurrent group, not in the model.

/// Causal convolution of each channel over the last K tokens, K being the columns of the kernel:
///   y[t] = bias + sum over j of kernel[j] * x[t - K + 1 + j]
/// The state of a channel is its last K - 1 inputs, the oldest first: [K-1, C].
struct ShortConvAttrs {
  using Self = ShortConvAttrs;
  std::int64_t layer = 0;
  FORGE_FIELDS(v("layer", layer);)
};
/// Gated delta rule (arXiv 2412.06464; with a decay for each channel: Kimi Delta Attention, arXiv 2510.26692). A value
/// head has a state S [key_dim, value_dim]; a token with log decay g (<= 0) and beta changes and reads it:
///   S = e^g S (row i by e^g[i] where each channel has its own);  u = beta (v - S^T k);  S = S + k u^T
///   y = scale * S^T q
/// heads / key_heads value heads share q and k. Head h uses key head h / (heads / key_heads), or h % key_heads with
/// `interleaved` 1. With norm_eps > 0 q and k of each head are first divided by sqrt(sum of squares + norm_eps).
struct DeltaRuleAttrs {
  using Self = DeltaRuleAttrs;
  std::int64_t layer = 0, heads = 0, key_heads = 0, key_dim = 0, value_dim = 0, interleaved = 0;
  float scale = 1, norm_eps = 0;
  FORGE_FIELDS(v("layer", layer); v("heads", heads); v("key_heads", key_heads); v("key_dim", key_dim);
               v("value_dim", value_dim); v("interleaved", interleaved); v("scale", scale); v("norm_eps", norm_eps);)
};
/// Selective state space scan (Mamba, arXiv 2312.00752; Mamba-2, arXiv 2405.21060). A head has a state h [state_dim,
/// head_dim]:
///   h[n,p] = e^(dt a[n]) h[n,p] + dt x[p] b[n];  y[p] = sum over n of h[n,p] c[n] + d x[p]
/// heads / groups heads share b and c. Mamba-1 has head_dim 1: a head for each channel.
struct SelectiveScanAttrs {
  using Self = SelectiveScanAttrs;
  std::int64_t layer = 0, heads = 0, head_dim = 0, state_dim = 0, groups = 0;
  FORGE_FIELDS(v("layer", layer); v("heads", heads); v("head_dim", head_dim); v("state_dim", state_dim);
               v("groups", groups);)
};
/// RWKV-7's recurrence (arXiv 2503.14456). A head has a state S [head_dim, head_dim], rows by key channel i, columns by
/// value channel:
///   s = S^T a;  S[i] = w[i] S[i] + b[i] s + k[i] v;  y = S^T r
struct Rwkv7Attrs {
  using Self = Rwkv7Attrs;
  std::int64_t layer = 0, heads = 0, head_dim = 0;
  FORGE_FIELDS(v("layer", layer); v("heads", heads); v("head_dim", head_dim);)
};
#undef FORGE_FIELDS

/// The attributes of any op. OpDef::attrs_index says which alternative an op has.
#define FORGE_ALTERNATIVE(name, Name, form, flops, ...) __VA_OPT__(, Name##Attrs)
using Attrs = std::variant<NoAttrs, InputAttrs, WeightAttrs, ConstantAttrs, KvStateAttrs, RecurrentStateAttrs,
                           NormAttrs, GluAttrs, SliceAttrs, PartsAttrs, RopeFreqsAttrs, RopeTableAttrs, RopeAttrs,
                           KvStoreAttrs, AttentionAttrs, SelectKeysAttrs, SelfAttentionAttrs, RouteAttrs, ArrangeAttrs,
                           QuantizeAttrs, ShortConvAttrs, DeltaRuleAttrs, SelectiveScanAttrs, Rwkv7Attrs,
                           GaussianTopkAttrs FORGE_ELEMENTWISE_FUNCTIONS(FORGE_ALTERNATIVE, FORGE_NO_ROW)>;
#undef FORGE_ALTERNATIVE

}  // namespace forge::ir
