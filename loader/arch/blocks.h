#pragma once
// The blocks that families are built of. A family's file reads like its paper: which blocks, which options.

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ir/builder.h"
#include "loader/arch/family.h"

namespace forge::loader {

/// RMSNorm has a weight, LayerNorm a weight and, where the file has one, a bias.
enum class NormKind : std::uint8_t { kRms, kLayer };

/// How a kind of layers rotates q and k.
struct RopeSpec {
  ir::RopeFreqsAttrs freqs;
  float magnitude = 1;         ///< on cos and sin (YaRN's and LongRoPE's)
  std::string factors{};       ///< tensor [dims/2] that divides the frequencies; "": none
  std::string long_factors{};  ///< the same for contexts longer than freqs.original_context; "": no such
};

/// Hyper-parameters that nearly every decoder has, read and checked from "<family>.<key>" metadata.
struct DecoderParams {
  std::int64_t layers = 0, width = 0, ffn_width = 0, heads = 0, kv_heads = 0, head_dim = 0, rotary_dims = 0,
               context = 0, vocab = 0;
  float norm_eps = 0;
  std::int64_t value_dim = 0;  ///< of a head; families with attention_spec want it to be head_dim
  float attention_scale = 0;   ///< of q.k: what the file says, else 1/sqrt(head_dim)
  RopeSpec rope;
};

/// Norms of q and k, of the model's kind: none; over each head with one weight [head_dim]; over each head with a weight
/// [heads, head_dim]; over all heads together.
enum class QkNorm : std::uint8_t { kNone, kHead, kEachHead, kRow };

/// How a layer attends. Layers of one model may differ.
struct AttentionSpec {
  ir::RopeMode mode{};
  RopeSpec rope;
  bool rotates = true;    ///< false: no positions at all
  float temperature = 0;  ///< on q by its position (ir::RopeTableAttrs), in lengths of rope.freqs.original_context
  float scale = 0;        ///< of q.k
  QkNorm qk_norm = QkNorm::kNone;
  bool norms_rotated = false;  ///< the norms of q and k stand behind RoPE
  std::int64_t window = 0;     ///< positions that are seen, the own one among them; 0: all
  float softcap = 0;           ///< of scores; 0: none
  bool sinks = false;          ///< one more score for each head, without a value: attn_sinks [heads]
};

/// Layers of two kinds, by number.
struct AlternatingAttention {
  AttentionSpec local, all;
  std::vector<bool> windowed;  ///< which layers are local
  const AttentionSpec& operator()(std::int64_t layer) const {
    return windowed[static_cast<std::size_t>(layer)] ? local : all;
  }
};

/// What stands round attention and the gated network of a layer.
struct LayerSpec {
  ir::Activation activation = ir::Activation::kSilu;
  bool norms_before = true;  ///< attn_norm, ffn_norm
  bool norms_after = false;  ///< post_attention_norm, post_ffw_norm: on what a block adds to the residual stream
  float residual_scale = 1;
  std::string_view ffn_norm = "ffn_norm";
};

/// Rows [begin, begin + n) of a tensor of `total` rows that several projections share; total 0: it is not shared.
struct SharedRows {
  std::int64_t begin = 0, total = 0;
};

class DecoderBuilder {
 public:
  /// Reads the parameters. Errors name the key, and both numbers where metadata contradicts tensors.
  explicit DecoderBuilder(const Gguf& file, NormKind norm = NormKind::kRms);

  /// general.architecture; some names share a graph but for a part.
  [[nodiscard]] const std::string& family() const { return family_; }
  [[nodiscard]] const DecoderParams& params() const { return params_; }
  [[nodiscard]] const Gguf& file() const { return file_; }
  [[nodiscard]] ir::Builder& ir() { return ir_; }
  [[nodiscard]] std::string key(std::string_view suffix) const;
  /// "blk.3.ffn_norm"
  [[nodiscard]] static std::string at(std::int64_t layer, std::string_view stem);
  /// Refuses by name when the file has a key with another value than forge can run.
  void refuse_if(bool condition, std::string_view feature) const;
  /// A factor or bound that some files have and that changes results: `neutral` when the key is absent. `finish`
  /// refuses a file with one that its family never asked for. Errors: kModelFormat for a number that is not finite or
  /// negative.
  float feature(std::string_view suffix, float neutral);
  /// A base of RoPE's frequencies, 10000 when the key is absent. Errors: kModelFormat when it is no positive number.
  [[nodiscard]] float rope_base(std::string_view suffix) const;
  /// The layers' sliding window, 0 where there is none; `fallback` when the file does not say.
  std::int64_t sliding_window(std::int64_t fallback = 0);
  /// Do three positions of a picture turn parts of a head each (M-RoPE)? In a text all are the token's, so that halves
  /// turn as they do without: converters order the rows for that.
  bool rope_has_sections();
  /// How each layer attends where not all have the sliding window that `local` has: of each `period` all but the last
  /// are local, unless the file says otherwise; none where that window is 0.
  [[nodiscard]] AlternatingAttention alternate(AttentionSpec local, AttentionSpec all, std::int64_t period) const;

  /// The weight [rows, cols] (cols 0: a vector [rows]; with experts [experts, rows, cols]); errors give both shapes.
  ir::Value weight(const std::string& name, std::int64_t rows, std::int64_t cols = 0, std::int64_t experts = 0);
  /// One weight [experts, rows, cols] of as many tensors [rows, cols] of one type; `name` has ir::kEachSlice in it.
  ir::Value scattered_weight(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t experts);
  /// The file's tensor, for what `weight` cannot say; it counts as read.
  const GgufTensor& tensor(const std::string& name);
  [[nodiscard]] bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }

  /// Rows of the embedding table, times `scale`.
  ir::Value embed(float scale = 1);
  /// x . W^T (+ bias when the file has one): names are "<stem>.weight" and "<stem>.bias".
  ir::Value linear(ir::Value x, const std::string& stem, std::int64_t n, std::int64_t k, SharedRows shared = {});
  /// The model's kind of norm over whole rows, with "<stem>.weight" and, for LayerNorm, "<stem>.bias" where it is.
  ir::Value norm(ir::Value x, const std::string& stem);
  /// What the file says: RoPE of `mode` in all layers, its scale of scores, no window, no soft-cap, no norms.
  [[nodiscard]] AttentionSpec attention_spec(ir::RopeMode mode) const;
  /// 1/sqrt(width / heads): the scale of scores of models that leave their own head_dim out of it.
  [[nodiscard]] float width_scale() const;
  /// Self-attention of one layer on normalised rows, output projection included. q, k and v have tensors of their own,
  /// or attn_qkv has their rows in this order.
  ir::Value attention(ir::Value x, std::int64_t layer, const AttentionSpec& spec);
  /// Stores k and v of one more layer of their KV group and attends to them; `attrs.layer` is filled in. No v: values
  /// are the first attrs.value_dim columns of each head's keys, and share their rows.
  ir::Value attend(ir::Value q, ir::Value k, ir::Value v, ir::AttentionAttrs attrs, ir::Value sinks = {});
  /// cos and sin of the step's positions; one table for all layers.
  ir::Value rope_table(const RopeSpec& rope, float temperature = 0);
  /// down(act(gate(x)) * up(x)). Without ffn_gate, ffn_up has the rows of gate and then those of up.
  ir::Value gated_ffn(ir::Value x, std::int64_t layer, ir::Activation activation);
  /// down(act(up(x)))
  ir::Value plain_ffn(ir::Value x, std::int64_t layer, ir::Activation activation);
  /// x + scale * y
  ir::Value residual(ir::Value x, ir::Value y, float scale = 1);
  /// A layer's network on normalised rows.
  using Network = std::function<ir::Value(ir::Value x, std::int64_t layer)>;
  /// The layer that most families share: attention, then a network (none: gated_ffn), each with norms round it and a
  /// residual.
  ir::Value decoder_layer(ir::Value x, std::int64_t layer, const AttentionSpec& attention, const LayerSpec& spec = {},
                          const Network& network = {});
  /// `layer(x, index)` of every layer, one after the other.
  template <class Layer>
  ir::Value each_layer(ir::Value x, Layer&& layer) {
    for (std::int64_t i = 0; i < params_.layers; ++i) {
      ir_.set_layer(static_cast<std::int32_t>(i));
      x = layer(x, i);
    }
    return x;
  }
  /// Final norm and head on the rows whose logits are wanted, logits times `scale` and soft-capped where `softcap` is
  /// not 0; finishes the graph. Refuses a file with tensors or features that the graph has no use for: a model that
  /// runs without them would be another one.
  PortableModel finish(ir::Value x, float scale = 1, float softcap = 0);

 private:
  void read_rope();
  ir::Value qk_norm(ir::Value x, const std::string& stem, std::int64_t heads, QkNorm kind);
  ir::Value normalise(ir::Value x, ir::Value weight, ir::Value bias);
  void refuse_unread();
  const GgufTensor& checked(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t experts);

  const Gguf& file_;
  NormKind norm_kind_;
  ir::Graph graph_;
  ir::Builder ir_;
  std::string family_;
  DecoderParams params_;
  std::int64_t file_layers_ = 0;  ///< with those that predict further tokens, which no graph of ours reads
  /// The layers that keep the same positions.
  struct KvGroup {
    ir::KvStateAttrs attrs;
    ir::NodeId source = ir::kNoNode;
    ir::Value state;
  };
  KvGroup& kv_group(const ir::AttentionAttrs& attention, bool shared_row);
  std::vector<KvGroup> kv_groups_;
  std::set<std::string, std::less<>> read_;  ///< tensors and feature keys
};

/// Errors of metadata and tensors that cannot both be right.
[[noreturn]] void contradiction(std::string what, std::string why);
/// YaRN's factor on cos and sin of positions stretched by `factor`, arXiv 2309.00071, equation 22: 0.1 ln(s) + 1, where
/// models multiply the logarithm by one more number.
float yarn_magnitude(float factor, float multiplier = 1);
/// A whole number of the metadata that sizes something. Errors: kModelFormat when it is no positive number.
std::int64_t positive(const Gguf& file, const std::string& key, std::optional<std::int64_t> fallback = {});

}  // namespace forge::loader
