#pragma once
// A small random Llama-like model, compiled for one CPU class and opened. The model of most end-to-end tests.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "codegen/compile.h"
#include "ir/interpreter.h"
#include "kernels/cpu/kernels.h"
#include "loader/arch/family.h"
#include "runtime/cpu/executor.h"
#include "runtime/weights/weight_source.h"
#include "tests/support/gguf_writer.h"

namespace forge::tests {

struct TinyShape {
  DType dtype = DType::kF32;
  std::int64_t layers = 2, width = 64, ffn = 96, heads = 4, kv_heads = 2, head_dim = 16, vocab = 90, context = 1024;
  bool tied = true, biases = false, rope_freqs = false;
  std::int64_t experts = 0, experts_used = 0;  ///< number of experts of `ffn` columns each; 0: a dense FFN
  bool scattered = false;                      ///< one tensor per expert, as in old files
  float rope_base = 10000, eps = 1e-5F;
  float key_outlier = 0;     ///< with biases: added to that of k in one column of each head, as models have it
  std::string rope_scaling;  ///< empty: none; else "linear" or "yarn" with factor 4
  std::map<std::string, DType, std::less<>> types =
      {};  ///< types of single matrices, e.g. "ffn_down"; all others have `dtype`
};

/// The model's GGUF file. Weights are random but the same for the same seed.
std::string tiny_gguf(const TinyShape& shape, unsigned seed = 1);

/// The bytes of a whole model file.
struct FileImage {
  std::string file;
};
/// The bytes of a model file; none if it cannot be read.
FileImage read_image(const std::filesystem::path& path);

/// The bytes of the parts of a split model (tests/support/split_gguf.h makes them).
struct SplitImage {
  std::vector<std::string> parts;
};

/// A model's files in memory, its portable graph, and its weights for the interpreter.
class TinyModel {
 public:
  explicit TinyModel(const TinyShape& shape, unsigned seed = 1) : TinyModel(FileImage{tiny_gguf(shape, seed)}) {}
  explicit TinyModel(FileImage image) : TinyModel(SplitImage{{std::move(image.file)}}) {}
  explicit TinyModel(SplitImage image);

  [[nodiscard]] const loader::PortableModel& portable() const { return portable_; }
  [[nodiscard]] const codegen::ModelFile& file() const { return file_; }
  /// The first file, which is all of a model that is not split.
  [[nodiscard]] std::span<const std::byte> bytes() const { return std::as_bytes(std::span(image_.parts.front())); }
  /// All files.
  [[nodiscard]] runtime::SpanWeightSource source() const;
  [[nodiscard]] ir::WeightLoader weights() const;

  /// Compiles and opens the model. `batch` and `kv_type` as for forge-compile; `skip` names passes to leave out.
  [[nodiscard]] std::unique_ptr<runtime::CpuExecutor> open(std::size_t threads = 1, std::int64_t batch = 4,
                                                           std::vector<std::string> skip = {},
                                                           std::string target = codegen::host_target(),
                                                           DType kv_type = DType::kF16) const;
  /// Logits [ids, vocab] of one sequence by the reference interpreter, the expected result of the tests.
  [[nodiscard]] std::vector<float> reference(const ir::Graph& graph, const std::vector<std::int32_t>& ids,
                                             bool quantize_activations) const;

 private:
  SplitImage image_;
  loader::Gguf gguf_;
  loader::PortableModel portable_;
  codegen::ModelFile file_;
};

/// Logits [ids, vocab] of one sequence, fed `chunk` tokens per step. `blocks` is its block table in every KV group.
std::vector<float> run_alone(runtime::Executor& executor, const std::vector<std::int32_t>& ids, std::size_t chunk,
                             std::vector<std::int32_t> blocks);

/// Feeds a prompt, which fills block 4 and a part of block 9, then one step of two sequences that go on with a token
/// each: the first in block 9, the second in block 2, a copy of it. Returns that step's logits [2, vocab].
std::vector<float> after_copied_block(runtime::Executor& executor, const std::vector<std::int32_t>& prompt,
                                      std::span<const std::int32_t, 2> tokens);

/// The graph with `change` applied to the attributes of every `op` node.
template <class Attrs, class Change>
ir::Graph with_attrs(ir::Graph graph, ir::Op op, Change change) {
  for (const auto node : graph.nodes()) {
    if (graph.op(node) != op) continue;
    auto attrs = graph.attrs_as<Attrs>(node);
    change(attrs);
    graph.set_attrs(node, attrs);
  }
  return graph;
}

/// True if this machine's CPU class multiplies weights of this type with unrounded f32 activations. Decides which error
/// bound applies.
inline bool meets_floats(DType dtype) {
  return is_float(dtype) && !(dtype == DType::kBF16 && cpu::uses_bf16_dots(cpu::detect()));
}

/// The best target of this machine that does not round activations for float weights.
std::string target_of_floats();

std::vector<std::int32_t> random_ids(std::size_t count, std::int64_t vocab, unsigned seed);
/// Normalised mean square error: sum((x - ref)^2) / sum((ref - mean(ref))^2).
double nmse(std::span<const float> x, std::span<const float> reference);

/// Compiles the model for this CPU, applies `edit` to the program and opens it. Returns the error line, or an empty
/// string if it opens. Errors other than kPlan are thrown.
std::string opening(const TinyModel& model, const std::function<void(plan::ProgramT&)>& edit);

/// Hidden rows [tokens, width] of one text, which encoders take in one step.
std::vector<float> hidden_rows_of(runtime::Executor& executor, const std::vector<std::int32_t>& ids);

}  // namespace forge::tests
