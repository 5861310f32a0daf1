#pragma once
// Attention over the paged pool, as the tests of its kernels share it: ragged rows of several sequences, padding,
// heads, masks and outputs of all kinds, and the check against softmax in f64.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/gpu_host/kernel_bench.h"

namespace forge::gpu_host {

struct AttentionHeads {
  int heads, kv_heads, dim;
};
struct AttentionMask {
  int window;  ///< 0: none
  float softcap;
  bool sinks = false;
};
enum AttentionOutput { kStored, kQuantised, kBoth, kAttentionOutputs };
inline constexpr AttentionMask kAttentionMasks[] = {{0, 0}, {20, 0}, {0, 30}, {1, 0}, {0, 0, true}, {20, 30, true}};
inline constexpr int kTableBlocks = 12;

/// A row of a step: sequence (of four) and position; -1 is padding.
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
  double tolerance = 2e-5;  ///< of what is stored in f32
  [[nodiscard]] int total() const { return static_cast<int>(rows.size()); }
  [[nodiscard]] int real() const {
    return static_cast<int>(std::ranges::count_if(rows, [](const AttentionRow& row) { return row.position >= 0; }));
  }
  [[nodiscard]] int columns() const { return heads.heads * heads.dim; }
  [[nodiscard]] float scale() const { return 1.0F / std::sqrt(static_cast<float>(heads.dim)); }
  /// What all kernels are told of it.
  void write_to(codegen::ConfigText& out) const;
};

/// Runs a kernel with the arguments of Attention::Args in each order of lanes and checks all that it writes.
void check_attention(const AttentionProblem& problem, const Kernel& kernel);

}  // namespace forge::gpu_host
