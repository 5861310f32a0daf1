#pragma once
// Attributes: one plain struct for each kind of op that has any. `fields(visitor)` is the only list of a struct's
// members: printing, parsing, hashing and comparison all walk it.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "ir/type.h"
#include "kernels/elementwise/function.h"

namespace forge::ir {

/// What the step is told from outside. Shapes: ids, positions, sequence [T]; rows [R]; kv_length [B];
/// block_table [B,P], of the KV group whose state an op takes; these are i32. embeddings f32 [T,width]: rows that stand
/// for tokens and come from elsewhere, such as an image's.
enum class InputKind : std::uint8_t { kIds, kPositions, kSequence, kRows, kKvLength, kBlockTable, kEmbeddings };
/// The activations of kernels/elementwise/elementwise.h, in its order.
#define FORGE_ACTIVATION(name, Name, ...) k##Name,
enum class Activation : std::uint8_t { FORGE_ELEMENTWISE_FUNCTIONS(FORGE_NO_ROW, FORGE_ACTIVATION) };
#undef FORGE_ACTIVATION
/// kPairs rotates (2i, 2i+1); kHalves rotates (i, i + rotary_dims/2), as NeoX does.
enum class RopeMode : std::uint8_t { kPairs, kHalves };
enum class RopeScaling : std::uint8_t { kNone, kLinear, kYarn };
/// What a router makes of its logits: probabilities of all experts together, or one of each expert by itself.
enum class RouteGate : std::uint8_t { kSoftmax, kSigmoid };
/// Over which experts a token's weights add up to 1: over all (the gate's values as they are) or over the chosen ones.
enum class RouteShare : std::uint8_t { kAll, kChosen };

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

struct NoAttrs {
  using Self = NoAttrs;
  FORGE_FIELDS((void)v;)
};
struct InputAttrs {
  using Self = InputAttrs;
  InputKind kind{};
  std::int64_t width = 0;  ///< of embeddings; others have none
  FORGE_FIELDS(v("kind", kind); if (kind == InputKind::kEmbeddings) v("width", width);)
};
/// A tensor of the model file, by its name there; its bytes are never part of a graph. `type` is the result's type: in
/// the text form it stands behind the colon only. A name with kEachSlice in it is that of several tensors, one for each
/// matrix of [E,N,K], with the matrix's number in its place.
inline constexpr char kEachSlice = '*';
struct WeightAttrs {
  using Self = WeightAttrs;
  std::string name;
  TensorType type;
  FORGE_FIELDS(v("name", name); v("type", type);)
};
/// A small f32 tensor known at compile time; `values` are row-major, as many as `type` has elements.
struct ConstantAttrs {
  using Self = ConstantAttrs;
  std::vector<float> values;
  TensorType type;
  FORGE_FIELDS(v("values", values); v("type", type);)
};
/// Columns of a head's values: `value_dim`, or, where that is 0, those of its keys.
constexpr std::int64_t value_dim_of(const auto& attrs) {
  return attrs.value_dim > 0 ? attrs.value_dim : attrs.head_dim;
}
/// The KV cache of one group of layers with the same geometry, before this step. With a window it holds the last
/// `window` positions of a sequence, and while a step runs that step's too. With a shared row (latent attention) a
/// head's values are the first columns of its keys, and stored with them.
struct KvStateAttrs {
  using Self = KvStateAttrs;
  std::int64_t group = 0, layers = 0, kv_heads = 0, head_dim = 0, window = 0;  ///< window 0: full attention
  std::int64_t value_dim = 0;                                                  ///< 0: head_dim
  std::int64_t shared_row = 0;                                                 ///< 1: keys and values share a row
  FORGE_FIELDS(v("group", group); v("layers", layers); v("kv_heads", kv_heads); v("head_dim", head_dim);
               v("window", window); v("value_dim", value_dim); v("shared_row", shared_row);)
};
/// State of a fixed size, whatever a sequence's length, of one group of layers: `floats` f32 a sequence and layer.
struct RecurrentStateAttrs {
  using Self = RecurrentStateAttrs;
  std::int64_t group = 0, layers = 0, floats = 0;
  FORGE_FIELDS(v("group", group); v("layers", layers); v("floats", floats);)
};
struct NormAttrs {
  using Self = NormAttrs;
  float eps = 0;
  std::int64_t dim = 0;  ///< number of neighbouring elements that the mean is over; smaller than a row for QK-norm
  FORGE_FIELDS(v("eps", eps); v("dim", dim);)
};
/// Of elementwise ops that have parameters, an f32 member each: ScaleAttrs, SoftcapAttrs.
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
/// The function of kernels/elementwise that an activation is.
elementwise::Function function_of(Activation activation);
/// v(name, value) for each parameter of the activation.
template <class V, class Values>
void visit_parameters(V& v, Activation activation, Values& values) {
  const auto& def = elementwise::function_def(function_of(activation));
  for (std::size_t i = 0; i < def.parameter_count; ++i) v(def.parameters[i].name, values[i]);
}
/// Of glu and activate. The activation's parameters follow it, by the names that its row has.
struct GluAttrs {
  using Self = GluAttrs;
  Activation activation{};
  elementwise::Parameters parameters{};  ///< 0 behind the activation's last
  FORGE_FIELDS(v("activation", activation); visit_parameters(v, activation, parameters);)
};
/// The type that values are quantised to: the result's, so that in the text form it stands behind the colon only.
struct QuantizeAttrs {
  using Self = QuantizeAttrs;
  DType dtype = DType::kQ8A_32;
  FORGE_FIELDS(v("dtype", dtype);)
};
/// Rows [begin, begin + rows) of a weight.
struct SliceAttrs {
  using Self = SliceAttrs;
  std::int64_t begin = 0, rows = 0;
  FORGE_FIELDS(v("begin", begin); v("rows", rows);)
};
/// Parts of a split, or of concatenated weights. unit 0: parts stand one behind the other with `sizes` columns (rows of
/// a weight); unit u: all parts are equally wide and alternate every u columns (u of part 0, u of part 1, ...).
struct PartsAttrs {
  using Self = PartsAttrs;
  std::vector<std::int64_t> sizes;
  std::int64_t unit = 0;
  FORGE_FIELDS(v("sizes", sizes); v("unit", unit);)
};
/// Columns of several values side by side, head by head. Head h of the result is made of pieces, one behind the other:
/// piece i is columns [begins[i] + h * strides[i], + widths[i]) of operand sources[i], counted through an operand's
/// slots; source -1 is zeros. stride 0: all heads have the same. `slots` 1: heads are the result's second dimension.
struct ArrangeAttrs {
  using Self = ArrangeAttrs;
  std::int64_t heads = 1, slots = 0;
  std::vector<std::int64_t> sources, begins, strides, widths;
  FORGE_FIELDS(v("heads", heads); v("slots", slots); v("sources", sources); v("begins", begins); v("strides", strides);
               v("widths", widths);)
};
/// Inverse frequencies, [dims/2]. Scaling by YaRN: arXiv 2309.00071 with ggml's parameter names. Where there are two
/// lists of factors (LongRoPE, arXiv 2402.13753), contexts beyond `original_context` take the second.
struct RopeFreqsAttrs {
  using Self = RopeFreqsAttrs;
  std::int64_t dims = 0;
  float base = 10000;
  RopeScaling scaling{};
  float factor = 1;                                     ///< positions are stretched by it; 1 for none
  std::int64_t original_context = 0;                    ///< yarn, and with two lists of factors
  float ext_factor = 0, beta_fast = 32, beta_slow = 1;  ///< yarn
  FORGE_FIELDS(v("dims", dims); v("base", base); v("scaling", scaling); v("factor", factor);
               v("original_context", original_context); v("ext_factor", ext_factor); v("beta_fast", beta_fast);
               v("beta_slow", beta_slow);)
};
/// cos and sin of positions x frequencies, both multiplied by `magnitude` (YaRN's attention factor) and, with a
/// temperature, by 1 + temperature * ln(1 + floor(position / temperature_length)), which sharpens attention far out
/// when q alone is turned by this table (Llama 4's and Ministral 3's scaling of queries).
struct RopeTableAttrs {
  using Self = RopeTableAttrs;
  float magnitude = 1, temperature = 0;
  std::int64_t temperature_length = 0;
  FORGE_FIELDS(v("magnitude", magnitude); v("temperature", temperature); v("temperature_length", temperature_length);)
};
struct RopeAttrs {
  using Self = RopeAttrs;
  std::int64_t head_dim = 0, rotary_dims = 0;
  RopeMode mode{};
  FORGE_FIELDS(v("head_dim", head_dim); v("rotary_dims", rotary_dims); v("mode", mode);)
};
struct KvStoreAttrs {
  using Self = KvStoreAttrs;
  std::int64_t layer = 0;  ///< index inside its KV group
  FORGE_FIELDS(v("layer", layer);)
};
struct AttentionAttrs {
  using Self = AttentionAttrs;
  std::int64_t layer = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1;
  std::int64_t window = 0;     ///< 0: every earlier position is seen
  float softcap = 0;           ///< 0: none
  std::int64_t value_dim = 0;  ///< 0: head_dim
  FORGE_FIELDS(v("layer", layer); v("heads", heads); v("kv_heads", kv_heads); v("head_dim", head_dim);
               v("scale", scale); v("window", window); v("softcap", softcap); v("value_dim", value_dim);)
};
/// Which `used` experts a token goes to. Candidates are ranked by the gate's value plus the operand bias where there is
/// one (arXiv 2408.15664), equal ones by number; weights come from the gate's value alone. With groups > 1 the experts
/// are that many equal runs; a group counts as much as its `group_top` best experts together, and only experts of the
/// `groups_used` best groups are candidates (arXiv 2412.19437, 2.1.2).
struct RouteAttrs {
  using Self = RouteAttrs;
  std::int64_t used = 1;
  RouteGate gate{};
  RouteShare share{};
  float scale = 1;  ///< on the weights, last
  std::int64_t groups = 1, groups_used = 1, group_top = 1;
  FORGE_FIELDS(v("used", used); v("gate", gate); v("share", share); v("scale", scale); v("groups", groups);
               v("groups_used", groups_used); v("group_top", group_top);)
};
#undef FORGE_FIELDS

#define FORGE_ALTERNATIVE(name, Name, form, flops, ...) __VA_OPT__(, Name##Attrs)
using Attrs = std::variant<NoAttrs, InputAttrs, WeightAttrs, ConstantAttrs, KvStateAttrs, RecurrentStateAttrs,
                           NormAttrs, GluAttrs, SliceAttrs, PartsAttrs, RopeFreqsAttrs, RopeTableAttrs, RopeAttrs,
                           KvStoreAttrs, AttentionAttrs, RouteAttrs, ArrangeAttrs,
                           QuantizeAttrs FORGE_ELEMENTWISE_FUNCTIONS(FORGE_ALTERNATIVE, FORGE_NO_ROW)>;
#undef FORGE_ALTERNATIVE

}  // namespace forge::ir
