#pragma once
// A Llama-like graph as families build it, with the habits that the passes are there for: a factor on q, a table of
// angles in every layer, a weight named twice. And what is needed to run it in the interpreter.

#include <vector>

#include "ir/builder.h"
#include "ir/interpreter.h"

namespace forge::passes::test {

struct TinyLlama {
  std::int64_t layers = 2, vocab = 96, dim = 64, heads = 4, kv_heads = 2, head_dim = 16, ffn = 96;
  DType dtype = DType::kQ8_0;
  DType v_dtype = DType::kQ8_0;  ///< of attn_v
  bool biases = false;           ///< on q, k and v
  bool freq_factors = false;     ///< rope_freqs.weight, as Llama 3 has
  float logit_scale = 1;         ///< a factor on the logits; 1 is written down too

  [[nodiscard]] ir::Graph build() const;
};

/// A prompt of five tokens, then one more token; all f32 outputs of both steps, one after the other. Ids are below 64.
std::vector<float> run_two_steps(const ir::Graph& graph);

/// Sum of squared differences over sum of squares.
double nmse(const std::vector<float>& expected, const std::vector<float>& actual);

}  // namespace forge::passes::test
