#pragma once
// The reference interpreter: runs each op's scalar reference in f32, one node after the other. It defines what a
// graph means; any pass can be checked against it. Slow on purpose.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace forge::ir {

/// A dense value: f32 or i32 elements. Quantised weights arrive dequantised; quantised activations are held as f32.
struct Tensor {
  TensorType type;
  std::vector<std::int64_t> dims;  ///< the real extents of this step
  std::vector<float> f32;
  std::vector<std::int32_t> i32;
  [[nodiscard]] std::int64_t rows() const;
  [[nodiscard]] std::int64_t cols() const { return dims.empty() ? 1 : dims.back(); }
};

/// Reference KV cache: by group, layer, physical position (block * block_tokens + slot) -> kv_heads*head_dim floats of
/// keys and kv_heads*value_dim of values; no values: they are the first columns of each head's keys.
struct ReferenceKv {
  std::int64_t block_tokens = 32;
  struct Row {
    std::vector<float> k, v;
  };
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, Row> rows;
};

/// The step's inputs with their real sizes. Positions are absolute, `sequence` indexes kv_length and block_table rows.
struct StepInputs {
  std::vector<std::int32_t> ids, positions, sequence, rows, kv_length;
  std::vector<std::vector<std::int32_t>> block_table;
  std::vector<float> embeddings;  ///< [T, width], a row for each id, where the graph takes them
};

struct EvalContext {
  const StepInputs* inputs = nullptr;
  ReferenceKv* kv = nullptr;
  bool quantize_activations = false;  ///< round through int8 where the graph says quantize; off: keep f32
  std::int64_t positions_max = 0;     ///< that the step's block tables have room for
  std::int64_t kv_group = 0;          ///< set from the state's producer while state ops run
};

/// Loads a weight dequantised to f32.
using WeightLoader = std::function<std::vector<float>(const std::string& name, const TensorType& type)>;

/// Runs the graph once; returns the outputs by name (states are left out). Throws Error(kInternal) on misuse.
std::map<std::string, Tensor> interpret(const Graph& graph, const StepInputs& inputs, ReferenceKv& kv,
                                        const WeightLoader& weights, bool quantize_activations = false);

}  // namespace forge::ir
