#pragma once
// A small random llama-like model, compiled for one CPU class and opened: what end-to-end tests run.

#include <cstdint>
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
#include "tests/support/gguf_writer.h"

namespace forge::tests {

struct TinyShape {
  DType dtype = DType::kF32;
  std::int64_t layers = 2, width = 64, ffn = 96, heads = 4, kv_heads = 2, head_dim = 16, vocab = 90, context = 1024;
  bool tied = true, biases = false, rope_freqs = false;
  std::int64_t experts = 0, experts_used = 0;  ///< experts of `ffn` columns each; 0: one network for all
  bool scattered = false;                      ///< a tensor for each expert
  float rope_base = 10000, eps = 1e-5F;
  std::string rope_scaling;                              ///< "": none, else "linear" or "yarn", factor 4
  std::map<std::string, DType, std::less<>> types = {};  ///< of a layer's matrices that are not of `dtype`: "ffn_down"
};

/// The model's file image: weights are random but the same for the same seed.
std::string tiny_gguf(const TinyShape& shape, unsigned seed = 1);

/// A whole model file.
struct FileImage {
  std::string file;
};

/// A model file in memory, its portable graph, and weights for the interpreter.
class TinyModel {
 public:
  explicit TinyModel(const TinyShape& shape, unsigned seed = 1) : TinyModel(FileImage{tiny_gguf(shape, seed)}) {}
  explicit TinyModel(FileImage image);

  [[nodiscard]] const loader::PortableModel& portable() const { return portable_; }
  [[nodiscard]] const codegen::ModelFile& file() const { return file_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return std::as_bytes(std::span(image_)); }
  [[nodiscard]] ir::WeightLoader weights() const;

  /// `context`, `batch` and `kv_type` as for forge-compile; passes in `skip` are left out.
  [[nodiscard]] std::unique_ptr<runtime::CpuExecutor> open(std::size_t threads = 1, std::int64_t batch = 4,
                                                           std::vector<std::string> skip = {},
                                                           std::string target = codegen::host_target(),
                                                           DType kv_type = DType::kF16) const;
  /// Logits [tokens, vocab] of one sequence by the reference interpreter.
  [[nodiscard]] std::vector<float> reference(const ir::Graph& graph, const std::vector<std::int32_t>& ids,
                                             bool quantize_activations) const;

 private:
  std::string image_;
  loader::Gguf gguf_;
  loader::PortableModel portable_;
  codegen::ModelFile file_;
};

/// Logits [ids, vocab] of one sequence whose blocks are `blocks` in every KV group, fed `chunk` tokens a step.
std::vector<float> run_alone(runtime::Executor& executor, const std::vector<std::int32_t>& ids, std::size_t chunk,
                             std::vector<std::int32_t> blocks);

/// The graph with the attributes of every `op` node changed.
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

/// Whether weights of this type meet activations that nothing has rounded, on this machine's class of CPU.
inline bool meets_floats(DType dtype) {
  return is_float(dtype) && !(dtype == DType::kBF16 && cpu::uses_bf16_dots(cpu::detect()));
}

/// The target of this machine's best class that rounds no activations for weights of floats.
std::string target_of_floats();

std::vector<std::int32_t> random_ids(std::size_t count, std::int64_t vocab, unsigned seed);
/// sum((x - ref)^2) / sum((ref - mean(ref))^2)
double nmse(std::span<const float> x, std::span<const float> reference);

/// The line that opening the model's plan for this CPU, changed by `edit`, ends in; "" where it opens. Other errors
/// than kPlan are thrown.
std::string opening(const TinyModel& model, const std::function<void(plan::ProgramT&)>& edit);

}  // namespace forge::tests
