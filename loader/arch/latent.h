#pragma once
// Multi-head latent attention (MLA; arXiv 2405.04434, 2412.19437): keys and values of all heads are computed from one
// latent row a token; besides it, a token has one small key row with RoPE, which all heads share. YaRN's factor is on
// the scores.
//
//   key of a head:    | nope_dim columns, from the latent | rope_dim columns with RoPE, shared by all heads |
//   value of a head:  | value_dim columns, from the latent |
//
// Files come in two forms:
//   attn_k_b, attn_v_b  One matrix for each head. The graph is the papers' absorbed form: the nope part of q is
//                       multiplied by the transposed key matrix (attn_k_b), so that attention runs on the latents
//                       themselves. The KV cache has one row a token for all heads, [latent | rope part of k]; its
//                       latent part is also the value (shared row).
//   attn_kv_b           One matrix for all heads, whose key part is not transposed as absorbing needs it. The graph
//                       computes keys and values of all heads and caches them.

#include "loader/arch/blocks.h"

namespace forge::loader {

/// Columns of the parts of a head and of the latent rows.
struct LatentDims {
  std::int64_t nope_dim = 0, rope_dim = 0, value_dim = 0;  ///< a key is [nope_dim | rope_dim]
  std::int64_t latent = 0, q_latent = 0;                   ///< q_latent 0: q is projected from the width directly
  [[nodiscard]] std::int64_t key() const { return nope_dim + rope_dim; }
};

/// Adds latent attention to the graph of `model`, which must outlive it. Tensors of layer N, all "blk.N.<name>":
///   attn_q_a, attn_q_a_norm, attn_q_b   q through a latent of its own [q_latent]; or attn_q
///   attn_kv_a_mqa, attn_kv_a_norm       [latent + rope_dim, width] and [latent]
///   attn_k_b, attn_v_b                  [heads, latent, nope_dim] and [heads, value_dim, latent]; or attn_kv_b
///   attn_output                         [width, heads * value_dim]
class LatentAttention {
 public:
  /// Reads the sizes from the metadata. Without `use_rope` nothing is rotated. Errors: kModelFormat if the sizes
  /// contradict each other.
  explicit LatentAttention(DecoderBuilder& model, const TemperatureSpec& temperature = {}, bool use_rope = true);

  /// Sparse attention: the keys that a layer's attention keeps, from its normalised rows x and q's normalised latent.
  using SelectKeys = std::function<KeySelection(ir::Value x, ir::Value q_latent, std::int64_t layer)>;
  /// Attends to selected keys from now on. Errors: kModelFormat if q has no latent.
  void select_by(SelectKeys select);
  /// RoPE of the rotated parts of q and k.
  [[nodiscard]] const RopeSpec& rope() const { return rope_; }
  [[nodiscard]] const LatentDims& dims() const { return dims_; }

  /// Self-attention of one layer on normalised rows, output projection included.
  ir::Value operator()(ir::Value x, std::int64_t layer);

 private:
  using Piece = ir::Builder::Piece;
  struct Parts {
    ir::Value q, q_rope, latent, k_rope;
    KeySelection selection;
  };

  ir::Value norm(ir::Value x, const std::string& stem, std::int64_t cols);
  ir::Value rotate(ir::Value heads);
  ir::Value pick(std::vector<Piece> pieces, bool slots = false);
  ir::Value query_latent(ir::Value x, std::int64_t layer);
  ir::Value queries(ir::Value low, std::int64_t layer);
  ir::Value absorbed(const Parts& parts, std::int64_t layer);
  ir::Value decompressed(const Parts& parts, std::int64_t layer);

  DecoderBuilder& model_;
  ir::Builder& ir_;
  LatentDims dims_;
  RopeSpec rope_;
  TemperatureSpec temperature_;
  bool use_rope_ = true;
  float scale_ = 1;
  SelectKeys select_;
};

}  // namespace forge::loader
