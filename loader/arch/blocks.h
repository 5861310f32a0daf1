#pragma once
// The blocks that model families are built from: embedding, norms, attention, feed-forward networks, LM head.
// DecoderBuilder reads the hyper-parameters, checks every tensor against them and adds nodes to the portable graph. A
// family's file (loader/arch/dense, loader/arch/moe) states only which blocks it has and with which options:
//
//   DecoderBuilder model(file);
//   const auto spec = model.attention_spec(ir::RopeMode::kPairs);
//   return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
//     return model.decoder_layer(x, layer, spec);
//   }));

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ir/builder.h"
#include "loader/arch/family.h"

namespace forge::loader {

/// The norm of the whole model. RMSNorm has a weight; LayerNorm has a weight and, if the file has one, a bias;
/// kUnitLayer is LayerNorm without both, and its "<stem>.weight" does not exist.
enum class NormKind : std::uint8_t { kRms, kLayer, kUnitLayer };

/// RoPE of one kind of layers.
struct RopeSpec {
  ir::RopeFreqsAttrs freqs;
  float magnitude = 1;             ///< factor on cos and sin (YaRN, LongRoPE)
  std::string factors{};           ///< name of a tensor [dims/2] that the frequencies are divided by; "": none
  std::string long_factors{};      ///< the same for contexts longer than freqs.original_context; "": none
  std::int64_t factors_total = 0;  ///< entries of these tensors, of which the first dims/2 are taken; 0: dims/2
};

/// Scaling of q by position, which sharpens attention in long contexts: 1 + scale * ln(1 + floor((position + offset) /
/// length)).
struct TemperatureSpec {
  float scale = 0;  ///< 0: none
  std::int64_t length = 0, offset = 0;
};

/// Sizes of one layer, which many files give layer by layer. 0 where a layer has no such block: kv_heads 0 is a layer
/// without attention, ffn_width 0 one without an FFN.
struct LayerShape {
  std::int64_t heads = 0, kv_heads = 0, ffn_width = 0;
};

/// Hyper-parameters that nearly every decoder has, read from "<family>.<key>" metadata and checked. Where layers
/// differ, heads, kv_heads and ffn_width are the largest of any layer (DecoderBuilder::shape has each layer's).
struct DecoderParams {
  std::int64_t layers = 0, width = 0, ffn_width = 0, heads = 0, kv_heads = 0, head_dim = 0, rotary_dims = 0,
               context = 0, vocab = 0;
  float norm_eps = 0;
  std::int64_t value_dim = 0;  ///< columns of a head's values; attention_spec() requires it to be head_dim
  float attention_scale = 0;   ///< factor on q.k: the file's, else 1/sqrt(head_dim)
  RopeSpec rope;
};

/// QK-norm, with the model's NormKind. kNone; kHead: over each head, with one weight [head_dim] for all heads;
/// kEachHead: over each head, with a weight row for each [heads, head_dim]; kRow: over all heads together [heads *
/// head_dim]; kUnweighted: over each head, without a weight.
enum class QkNorm : std::uint8_t { kNone, kHead, kEachHead, kRow, kUnweighted };

/// The gate on the attended heads, before the output projection: they are multiplied by its sigmoid. kNone;
/// kEachColumn: tensor attn_gate [heads * head_dim, width]; kEachHead: attn_gate [heads, width], one number a head;
/// kInQuery: attn_q holds for each head its query and then its gate [heads * 2 * head_dim, width].
enum class AttentionGate : std::uint8_t { kNone, kEachColumn, kEachHead, kInQuery };

/// The keys that take part in a layer's attention, as select_keys gives them (indexer.h).
struct KeySelection {
  ir::Value keys{};                   ///< Value{}: all that are visible
  std::int64_t count = 0, block = 0;  ///< its top_k and block
};

/// Options of a layer's attention. Layers of one model may differ; the numbers of heads are those of the layer's shape.
struct AttentionSpec {
  ir::RopeMode mode{};
  std::int64_t head_dim = 0;  ///< columns of a head
  RopeSpec rope;
  bool use_rope = true;  ///< false: NoPE, the layer has no positional encoding
  TemperatureSpec temperature{};
  float scale = 0;  ///< factor on q.k
  QkNorm qk_norm = QkNorm::kNone;
  bool norm_after_rope = false;            ///< true: QK-norm after RoPE; false: before
  std::int64_t window = 0;                 ///< sliding window in positions, the token's own included; 0: full attention
  std::int64_t chunk = 0;                  ///< chunked attention: a token sees its chunk of so many positions; 0: all
  float softcap = 0;                       ///< soft-cap of the scores; 0: none
  bool value_norm = false;                 ///< RMSNorm without weight over each head's values
  bool keys_as_values = false;             ///< without attn_v, values are the key projection, before its norm and RoPE
  std::optional<std::int64_t> kv_layer{};  ///< reads the keys and values of this earlier layer and has none of its own
  bool bidirectional = false;              ///< attention of encoders, without a cache (ir::SelfAttentionAttrs)
  float alibi = 0;                         ///< ALiBi's largest bias (ir::alibi_slope); 0: none
  bool sinks = false;  ///< attention sinks: tensor attn_sinks [heads], a score without a value for each head
  AttentionGate gate = AttentionGate::kNone;
  bool sub_norm = false;     ///< a norm on the attended heads, tensor attn_sub_norm [heads * head_dim]
  float clamp_qkv = 0;       ///< q, k and v are clamped to [-clamp_qkv, clamp_qkv] as they are projected; 0: no clamp
  KeySelection selection{};  ///< sparse attention
};

/// Which of a period of layers has global attention, where the others are local.
enum class GlobalLayer : std::uint8_t { kLast, kFirst };

/// Two kinds of attention that alternate by layer: with a sliding window (local) and without (global).
struct AlternatingAttention {
  AttentionSpec local, global;
  std::vector<bool> windowed;  ///< by layer: true for local
  const AttentionSpec& operator()(std::int64_t layer) const {
    return windowed[static_cast<std::size_t>(layer)] ? local : global;
  }
};

/// Options of decoder_layer(): norms and residuals around attention and the FFN. The default is pre-norm only; Gemma 2
/// has both (sandwich norm), OLMo 2 has post-norm only.
struct LayerSpec {
  ir::Activation activation = ir::Activation::kSilu;  ///< of the gated FFN
  bool pre_norm = true;                               ///< pre-norm: attn_norm and ffn_norm, on the input of a block
  bool post_norm = false;    ///< post-norm: post_attention_norm and post_ffw_norm, on the output of a block
  float residual_scale = 1;  ///< factor on a block's output
  std::string_view ffn_norm = "ffn_norm";  ///< name of the FFN's pre-norm tensor
};

/// Rows [begin, begin + n) of a tensor with `total` rows that holds several projections, such as attn_qkv; total 0: the
/// tensor holds one projection only.
struct SharedRows {
  std::int64_t begin = 0, total = 0;
};

/// Builds the portable graph of one model file. Errors of all functions: kModelFormat for missing or misshapen tensors
/// and invalid metadata, kModelUnsupported for features that forge cannot run.
class DecoderBuilder {
 public:
  /// Reads the hyper-parameters. Errors name the key, and both numbers where metadata contradicts tensors. `file` must
  /// outlive the builder.
  explicit DecoderBuilder(const Gguf& file, NormKind norm = NormKind::kRms);

  /// general.architecture. Several names may share one build function and differ in a detail.
  [[nodiscard]] const std::string& family() const { return family_; }
  [[nodiscard]] const DecoderParams& params() const { return params_; }
  [[nodiscard]] const LayerShape& shape(std::int64_t layer) const { return shapes_[static_cast<std::size_t>(layer)]; }
  [[nodiscard]] const Gguf& file() const { return file_; }
  [[nodiscard]] ir::Builder& ir() { return ir_; }
  /// "<family>.<suffix>", the name of a metadata key.
  [[nodiscard]] std::string key(std::string_view suffix) const;
  /// "blk.3.ffn_norm"
  [[nodiscard]] static std::string at(std::int64_t layer, std::string_view stem);
  /// Throws kModelUnsupported, naming the feature, if `condition` holds.
  void refuse_if(bool condition, std::string_view feature) const;
  /// A factor or limit that some files have and that changes results, such as logit_scale; `neutral` if the key is
  /// absent. Marks the key as read: `finish` refuses a file with such a key that its family did not read. Errors:
  /// kModelFormat for a number that is not 0 and lies outside 1e-9 to 1e9.
  float feature(std::string_view suffix, float neutral);
  /// Base of RoPE's frequencies; 10000 if the key is absent. Errors: kModelFormat unless it is positive and finite.
  [[nodiscard]] float rope_base(std::string_view suffix) const;
  /// The rotary dimensions of heads of `head_dim` columns: an even number, at most head_dim; `fallback` if the key is
  /// absent.
  [[nodiscard]] std::int64_t rotary_dims(std::string_view suffix, std::int64_t fallback, std::int64_t head_dim) const;
  /// A whole number that the file gives once or for each layer; `fallback` if the key is absent. Errors: kModelFormat
  /// for a number below 0 or above 2^24, a list that is too short, or no key and no fallback.
  [[nodiscard]] std::vector<std::int64_t> per_layer(std::string_view suffix,
                                                    std::optional<std::int64_t> fallback = {}) const;
  /// The sliding window in positions, 0 for none; `fallback` if the key is absent. Marks the key as read.
  std::int64_t sliding_window(std::int64_t fallback = 0);
  /// True if the model has M-RoPE, in which sections of a head rotate by the three coordinates of an image patch. All
  /// three are equal for text tokens, so text needs kHalves RoPE only; converters order the rows accordingly. Marks the
  /// key as read.
  bool rope_has_sections();
  /// Assigns `local` (with its sliding window) or `global` to each layer: of every `period` layers all but one are
  /// local, unless the file gives another period or a list. Without a window all layers are global.
  [[nodiscard]] AlternatingAttention alternate(AttentionSpec local, AttentionSpec global, std::int64_t period,
                                               GlobalLayer place = GlobalLayer::kLast) const;

  /// A weight of the file: [rows, cols], a vector [rows] if cols is 0, or [experts, rows, cols]. Marks the tensor as
  /// read. A wrong shape is an error that gives both shapes.
  ir::Value weight(const std::string& name, std::int64_t rows, std::int64_t cols = 0, std::int64_t experts = 0);
  /// One weight [experts, rows, cols] from one tensor [rows, cols] for each expert, all of one type. `name` contains
  /// ir::kExpertWildcard in place of the expert's number.
  ir::Value per_expert_weight(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t experts);
  /// A vector of `n` f32 numbers: [n] or [n, 1]. Marks the tensor as read.
  ir::Value vector(const std::string& name, std::int64_t n);
  /// The f32 numbers of a tensor with any dims, in the file's order, as a weight of this shape. Marks it as read.
  ir::Value reshaped(const std::string& name, ir::Shape shape);
  /// The kernel of a convolution, f32 [channels, taps]; files also have it as [channels, 1, taps]. Marks it as read.
  ir::Value kernel(const std::string& name, std::int64_t channels, std::int64_t taps);
  /// The file's tensor, for shapes that `weight` cannot check. Marks it as read.
  const GgufTensor& tensor(const std::string& name);
  [[nodiscard]] bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }

  /// The embeddings of the step's tokens [T, width], times `scale`.
  ir::Value embed(float scale = 1);
  /// x . W^T with W [n, k], tensor "<stem>.weight"; times "<stem>.scale" [1] and plus "<stem>.bias" [n] if the file has
  /// them. NVFP4 and BitNet files have scales.
  ir::Value linear(ir::Value x, const std::string& stem, std::int64_t n, std::int64_t k, SharedRows shared = {});
  /// The model's norm over whole rows, with "<stem>.weight" and "<stem>.bias" if the file has it.
  ir::Value norm(ir::Value x, const std::string& stem);
  /// Each of the `columns` columns of x `times` times, one after the other: [T, columns * times].
  ir::Value repeat_columns(ir::Value x, std::int64_t columns, std::int64_t times);
  /// x plus the row of "position_embd.weight" for each token's position: learned positions.
  ir::Value add_positions(ir::Value x);
  /// RMSNorm without weight over runs of `dim` columns.
  ir::Value unit_norm(ir::Value x, std::int64_t dim);
  /// The attention options that the metadata gives: RoPE in `mode` in all layers and the softmax scale; no window,
  /// soft-cap, QK-norm or sinks.
  [[nodiscard]] AttentionSpec attention_spec(ir::RopeMode mode) const;
  /// 1/sqrt(width / heads): the softmax scale of models that do not use their actual head_dim in it.
  [[nodiscard]] float width_scale() const;
  /// Self-attention of one layer on normalised rows, output projection included. q, k and v have tensors of their own,
  /// or attn_qkv contains their rows in this order.
  ir::Value attention(ir::Value x, std::int64_t layer, const AttentionSpec& spec);
  /// Stores k and v in the next layer of the KV group with the geometry of `attrs` and attends to them; fills in
  /// attrs.layer. With v = Value{} the values are the first attrs.value_dim columns of each head's keys (shared rows).
  ir::Value attend(ir::Value q, ir::Value k, ir::Value v, ir::AttentionAttrs attrs, ir::Value sinks = {},
                   const KeySelection& selection = {});
  /// Stores index keys k [T, attrs.head_dim] in the next layer of their KV group and chooses among them for index
  /// queries q; fills in attrs.layer. `weights` as for ir::Builder::select_keys.
  KeySelection select_keys(ir::Value q, ir::Value k, ir::SelectKeysAttrs attrs, ir::Value weights = {});
  /// Attends to the keys and values that an earlier layer of the model stored (cross-layer KV sharing, arXiv
  /// 2405.12981); fills in attrs.layer. Errors: kModelFormat if it stored none, or heads of another number or size.
  ir::Value attend_to(std::int64_t layer, ir::Value q, ir::AttentionAttrs attrs, ir::Value sinks = {});
  /// The recurrent state of the next layer of the group whose state has `floats` f32 values a sequence: hands it and
  /// the layer's index in the group to `update`, which adds the op, and returns the op's y.
  using UpdateState = std::function<ir::Builder::Recurrent(ir::Value state, std::int64_t index)>;
  ir::Value update_state(std::int64_t floats, const UpdateState& update);
  /// cos and sin for the step's positions (ir::Op::kRopeTable).
  ir::Value rope_table(const RopeSpec& rope, const TemperatureSpec& temperature = {});
  /// Heads of q that do not rotate, or not with all of their `head_dim` columns (an even number), times the
  /// temperature.
  ir::Value scale_by_position(ir::Value heads, std::int64_t head_dim, const TemperatureSpec& temperature);
  /// Gated FFN: down(act(gate(x)) * up(x)). Without ffn_gate, ffn_up contains the rows of gate, then those of up.
  /// hidden: rows of gate, and of up; 0: the file's feed_forward_length.
  ir::Value gated_ffn(ir::Value x, std::int64_t layer, ir::Activation activation,
                      const elementwise::Parameters& parameters = {}, std::int64_t hidden = 0);
  /// FFN without a gate: down(act(up(x))).
  ir::Value ungated_ffn(ir::Value x, std::int64_t layer, ir::Activation activation,
                        const elementwise::Parameters& parameters = {});
  /// x + scale * y
  ir::Value residual(ir::Value x, ir::Value y, float scale = 1);
  /// Adds a layer's FFN (dense or mixture of experts) on normalised rows.
  using Ffn = std::function<ir::Value(ir::Value x, std::int64_t layer)>;
  /// The layer that most families share: attention, then `ffn` (gated_ffn if empty), each with its norms and a
  /// residual: x = x + scale * post_norm(block(pre_norm(x))).
  ir::Value decoder_layer(ir::Value x, std::int64_t layer, const AttentionSpec& attention, const LayerSpec& spec = {},
                          const Ffn& ffn = {});
  /// The same with `mixer` in place of attention, such as one with recurrent state (recurrent.h).
  using Mixer = std::function<ir::Value(ir::Value rows, std::int64_t layer)>;
  ir::Value mixer_layer(ir::Value x, std::int64_t layer, const Mixer& mixer, const LayerSpec& spec = {},
                        const Ffn& ffn = {});
  /// Applies `layer(x, index)` for every layer in order.
  template <class Layer>
  ir::Value each_layer(ir::Value x, Layer&& layer) {
    for (std::int64_t i = 0; i < params_.layers; ++i) {
      ir_.set_layer(static_cast<std::int32_t>(i));
      x = layer(x, i);
    }
    return x;
  }
  /// Adds the final norm and the LM head on the rows whose logits are requested, multiplies the logits by `scale` and
  /// soft-caps them unless `softcap` is 0, and returns the finished graph. `norm_stem` names the final norm's tensor.
  /// Refuses a file with tensors or features that were not read: without them the model would compute something else.
  PortableModel finish(ir::Value x, float scale = 1, float softcap = 0, const std::string& norm_stem = "output_norm");
  /// The same for an encoder, whose output is `rows`, made from logit_rows(), after the projections dense_2 and dense_3
  /// if the file has them.
  PortableModel finish_encoder(ir::Value rows);
  /// Refuses an encoder's file that says that its attention is causal.
  void require_bidirectional();
  /// The rows of x whose logits are requested [R, width]. finish() is finish_rows(logit_rows(x)).
  ir::Value logit_rows(ir::Value x);
  PortableModel finish_rows(ir::Value rows, float scale = 1, float softcap = 0,
                            const std::string& norm_stem = "output_norm");

 private:
  void read_shapes();
  void read_rope();
  ir::Value qk_norm(ir::Value x, const std::string& stem, std::int64_t heads, std::int64_t dim, QkNorm kind);
  ir::Value gated(ir::Value heads, ir::Value x, ir::Value query, std::int64_t layer, const AttentionSpec& spec);
  ir::Value scaled(ir::Value product, const std::string& stem);
  ir::Value normalise(ir::Value x, ir::Value weight, ir::Value bias);
  ir::Value ones(std::int64_t dim);
  void refuse_unread();
  PortableModel finished();
  const GgufTensor& checked_tensor(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t experts);

  const Gguf& file_;
  NormKind norm_kind_;
  ir::Graph graph_;
  ir::Builder ir_;
  std::string family_;
  DecoderParams params_;
  std::vector<LayerShape> shapes_;  ///< of all layers of the file
  std::int64_t file_layers_ = 0;    ///< layers in the file; multi-token-prediction layers follow params_.layers, unused
  /// Layers with the same cache geometry, which share one kv_state.
  struct KvGroup {
    ir::KvStateAttrs attrs;           ///< attrs.layers counts the layers built so far
    ir::NodeId source = ir::kNoNode;  ///< the kv_state
    ir::Value state;                  ///< the state after the last store
  };
  KvGroup& kv_group(const ir::AttentionAttrs& attention, bool shared_row);
  std::vector<KvGroup> kv_groups_;
  /// Layers whose recurrent state has the same size, which share one recurrent_state.
  struct RecurrentGroup {
    ir::RecurrentStateAttrs attrs;    ///< attrs.layers counts the layers built so far
    ir::NodeId source = ir::kNoNode;  ///< the recurrent_state
    ir::Value state;                  ///< the state after the last layer
  };
  std::vector<RecurrentGroup> recurrent_groups_;
  struct KvPlace {
    std::size_t group = 0;   ///< index in kv_groups_
    std::int64_t index = 0;  ///< of the layer in its group
  };
  std::map<std::int32_t, KvPlace> kv_of_layer_;  ///< where each layer built so far stores keys and values
  std::set<std::string, std::less<>> read_;  ///< tensors and feature keys that the graph uses; refuse_unread() checks
};

/// Throws kModelFormat: metadata and tensors contradict each other, or a value is out of range.
[[noreturn]] void contradiction(std::string what, std::string why);
/// YaRN's factor on cos and sin for a context extension by `factor` = s (arXiv 2309.00071, equation 22): 0.1 ln(s) + 1.
/// Some models multiply the logarithm by `multiplier`.
float yarn_magnitude(float factor, float multiplier = 1);
/// A metadata number that sizes something: from 1 to 2^24. Errors: kModelFormat if it is out of range or missing
/// without a fallback.
std::int64_t positive(const Gguf& file, const std::string& key, std::optional<std::int64_t> fallback = {});

}  // namespace forge::loader
