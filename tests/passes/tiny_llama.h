#pragma once
// A Llama-like graph as the model families build it, including the redundancies that the passes remove: a scale on q, a
// RoPE table in every layer, a weight that two nodes name. Also the inputs and weights to run it in the interpreter.

#include <vector>

#include "ir/builder.h"
#include "ir/interpreter.h"

namespace forge::passes::test {

struct TinyLlama {
  std::int64_t layers = 2, vocab = 96, dim = 64, heads = 4, kv_heads = 2, head_dim = 16, ffn = 96;
  DType dtype = DType::kQ8_0;
  DType v_dtype = DType::kQ8_0;  ///< type of attn_v
  bool biases = false;           ///< biases of q, k and v
  bool freq_factors = false;     ///< with rope_freqs.weight, as in Llama 3
  float logit_scale = 1;         ///< scale of the logits; a node exists even if it is 1

  [[nodiscard]] ir::Graph build() const;
};

/// Runs a prompt of five tokens and one more token. Returns all f32 outputs of both steps, concatenated. Ids are below
/// 64.
std::vector<float> run_two_steps(const ir::Graph& graph);

/// Normalised mean square error: sum of squared differences / sum of squares of `expected`.
double nmse(const std::vector<float>& expected, const std::vector<float>& actual);

}  // namespace forge::passes::test
