#pragma once
// Indexers: small attention-like heads that choose the keys of sparse attention. Their keys are cached beside those of
// the attention itself, in a KV group of their own.

#include "loader/arch/blocks.h"

namespace forge::loader {

/// The indexer of latent attention (DeepSeek Sparse Attention, arXiv 2512.02556). Its heads share one key a token; the
/// sum of their scores, clipped at 0 and weighted by token and head, ranks the keys. Tensors of layer N, all
/// "blk.N.indexer.<name>", with m heads of d columns:
///   attn_q_b [m d, q_latent]   queries
///   attn_k [d, width]          keys, then a LayerNorm k_norm.weight, k_norm.bias [d]
///   proj [m, width]            weights
/// RoPE turns the first columns of queries and keys.
class LatentIndexer {
 public:
  /// Reads "<family>.attention.indexer.*". `model` must outlive it. Errors: kModelFormat for sizes that contradict each
  /// other.
  LatentIndexer(DecoderBuilder& model, RopeSpec rope, ir::RopeMode mode, float norm_eps);
  /// The keys that `layer` attends to, of rows x [T, width] and q's latent. A layer whose entry in
  /// "attention.indexer.types" is 0 has those of the last layer before it with an indexer. Errors: kModelFormat if
  /// there is none.
  KeySelection operator()(ir::Value x, ir::Value q_latent, std::int64_t layer);

 private:
  DecoderBuilder& model_;
  RopeSpec rope_;
  ir::RopeMode mode_;
  float norm_eps_ = 0;
  std::int64_t heads_ = 0, dim_ = 0, top_k_ = 0;
  std::vector<std::int64_t> types_;
  KeySelection last_;
};

/// A key "<family>.attention.indexer.<suffix>", from 1 to 2^24.
std::int64_t indexer_param(const DecoderBuilder& model, std::string_view suffix);
/// The same for a number of keys or blocks. Errors: kModelFormat above 2^20, the limit of ir::Op::kSelectKeys.
std::int64_t indexer_count(const DecoderBuilder& model, std::string_view suffix);

}  // namespace forge::loader
