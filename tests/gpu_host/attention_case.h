#pragma once
// Attention over the paged KV cache, for the tests of its kernels: ragged rows of several sequences, padding, head
// layouts, masks and output types, and the comparison with softmax in f64.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/gpu_host/kernel_bench.h"
#include "tests/gpu_host/kv_rows.h"

namespace forge::gpu_host {

struct AttentionHeads {
  int heads, kv_heads, dim;
};
struct AttentionMask {
  int window;  ///< 0: no window
  float softcap;
  bool sinks = false;
  int chunk = 0;    ///< a row sees the positions of its own chunk of so many; 0: all
  float alibi = 0;  ///< the largest exponent of ALiBi's slopes
  /// The first position that a row at `position` sees.
  [[nodiscard]] int oldest(int position) const {
    return std::max({0, window > 0 ? position - window + 1 : 0, chunk > 0 ? position / chunk * chunk : 0});
  }
};
enum AttentionOutput { kStored, kQuantised, kBoth, kAttentionOutputs };
inline constexpr AttentionMask kAttentionMasks[] = {{0, 0},
                                                    {20, 0},
                                                    {0, 30},
                                                    {1, 0},
                                                    {0, 0, true},
                                                    {20, 30, true},
                                                    {0, 0, false, 24},
                                                    {20, 0, true, 64},
                                                    {0, 0, false, 0, 8}};
inline constexpr int kTableBlocks = 12;

/// Sparse attention: rows see random blocks of positions.
struct AttentionSelection {
  int count = 0;  ///< most blocks of a row; 0: it sees all positions
  int block = 1;  ///< positions of a block
  int lists = 1;  ///< one list for all KV heads, or one for each
};

/// A row of a step: its sequence (0 to 3) and its position; position -1 is padding.
struct AttentionRow {
  int sequence, position;
};

struct AttentionProblem {
  AttentionHeads heads;
  AttentionMask mask;
  AttentionOutput output;
  int block_tokens;
  std::vector<AttentionRow> rows;
  int workers = 1;
  double tolerance = 2e-5;  ///< relative to outputs stored as f32
  int latent = 0;           ///< > 0: values are the first so many columns of keys
  AttentionSelection selection = {};
  int narrow = 0;          ///< > 0: columns of a value, fewer than those of a key
  DType kv = DType::kF16;  ///< type of the cache
  float growth = 0;        ///< keys are larger by so much for each position, so that later scores are the highest
  [[nodiscard]] int value_dim() const { return latent > 0 ? latent : narrow > 0 ? narrow : heads.dim; }
  [[nodiscard]] int total() const { return static_cast<int>(rows.size()); }
  [[nodiscard]] int real() const {
    return static_cast<int>(std::ranges::count_if(rows, [](const AttentionRow& row) { return row.position >= 0; }));
  }
  [[nodiscard]] int columns() const { return heads.heads * value_dim(); }
  /// Terms of the quantised rows that are written (kernels/gpu/activations.h).
  [[nodiscard]] int terms() const { return output == kStored ? 0 : output == kBoth ? 2 : 1; }
  [[nodiscard]] float scale() const { return 1.0F / std::sqrt(static_cast<float>(heads.dim)); }
  /// Writes the configuration that all attention kernels share.
  void write_to(codegen::ConfigText& out) const;
};

/// Runs a kernel that takes Attention::Args once per lane order and checks everything that it writes.
void check_attention(const AttentionProblem& problem, const Kernel& kernel);

}  // namespace forge::gpu_host
