#pragma once
// The reference interpreter: runs each op's scalar reference, one node after the other, with f32 values. It defines the
// meaning of a graph: tests compare the graph before and after a pass, and compiled kernels, with it. It favours
// simplicity over speed.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace forge::ir {

/// A dense row-major value with f32 or i32 elements. Weights are dequantised to f32 when loaded, and quantised
/// activations are held as f32 too.
struct Tensor {
  TensorType type;
  std::vector<std::int64_t> dims;           ///< this step's extents, all symbols replaced by numbers
  std::vector<float> f32;                   ///< the elements, unless type.dtype is kI32
  std::vector<std::int32_t> i32;            ///< the elements if type.dtype is kI32
  [[nodiscard]] std::int64_t rows() const;  ///< product of all dimensions but the last
  [[nodiscard]] std::int64_t cols() const { return dims.empty() ? 1 : dims.back(); }
};

/// The states of the interpreter: the KV cache and recurrent states. The key of `rows` is (KV group, layer in the
/// group, physical position), where a physical position is block * block_tokens + slot. A row has kv_heads*head_dim
/// floats of keys and kv_heads*value_dim of values; `v` is empty where a head's values are the first columns of its
/// keys.
struct ReferenceKv {
  std::int64_t block_tokens = 32;
  struct Row {
    std::vector<float> k, v;
  };
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, Row> rows;
  /// Recurrent states. The key is (recurrent group, layer in the group, slot); layouts are those of the ops (attrs.h).
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::vector<float>> recurrent;
};

/// The inputs of one step (InputKind). Positions are absolute; `sequence` indexes kv_length and block_table, whose rows
/// may differ in length.
struct StepInputs {
  std::vector<std::int32_t> ids, positions, sequence, rows, kv_length;
  std::vector<std::vector<std::int32_t>> block_table;
  std::vector<float> embeddings;  ///< [T, width], one row a token; only for graphs with that input
  std::vector<std::int32_t> state_read = {}, state_write = {};  ///< [B], only for graphs with recurrent state
};

/// State that references share while a graph is interpreted.
struct EvalContext {
  const StepInputs* inputs = nullptr;
  ReferenceKv* kv = nullptr;
  bool quantize_activations = false;  ///< true: quantize rounds its values through int8; false: it copies them
  std::int64_t positions_max = 0;     ///< positions that the step's block tables can hold
  std::int64_t state_group = 0;       ///< KV group or recurrent group of the state operand of the op that runs
};

/// Loads the weight `name` and dequantises it to f32, row-major, one value for each element of `type`.
using WeightLoader = std::function<std::vector<float>(const std::string& name, const TensorType& type)>;

/// Runs the graph once, updates `kv` and returns the outputs by name, without states. Throws Error(kInternal) for
/// inconsistent inputs.
std::map<std::string, Tensor> interpret(const Graph& graph, const StepInputs& inputs, ReferenceKv& kv,
                                        const WeightLoader& weights, bool quantize_activations = false);

}  // namespace forge::ir
