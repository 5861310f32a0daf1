#pragma once
// Adapts a loader::Gguf to the interfaces of codegen and the runtime, which do not depend on the loader, and compiles
// a model into a plan. Used by open_model and forge-compile.

#include <filesystem>

#include "codegen/compile.h"
#include "codegen/model_file.h"
#include "loader/arch/family.h"
#include "loader/gguf/gguf.h"
#include "runtime/weights/weight_source.h"

namespace forge::session {

/// The model's files and tensors (type, shape, file, offset), its identity and the absolute path of its first file.
/// Name and family come from the metadata. The vocabulary size stays 0: compile_model takes it from the graph. `model`
/// was opened from a path.
[[nodiscard]] codegen::ModelFile describe_model(const loader::Gguf& model);

/// The weights of a model's files for executors: data() is a memory-mapped file, read() copies with pread so that no
/// mapped page becomes resident. `model` must outlive it.
class FileWeightSource final : public runtime::WeightSource {
 public:
  explicit FileWeightSource(const loader::Gguf& model) : files_(model.files()) {}
  [[nodiscard]] const std::string& name() const override { return files_.front().path.native(); }
  [[nodiscard]] std::uint32_t files() const override { return static_cast<std::uint32_t>(files_.size()); }
  [[nodiscard]] std::uint64_t bytes(std::uint32_t file) const override { return files_[file].bytes.size(); }
  [[nodiscard]] std::span<const std::byte> data(std::uint32_t file) const override { return files_[file].bytes; }
  void read(std::uint32_t file, std::uint64_t offset, std::span<std::byte> out) const override {
    files_[file].mapping.read(offset, out);
  }
  void prefetch(std::uint32_t file, std::uint64_t offset, std::uint64_t bytes) const noexcept override {
    files_[file].mapping.prefetch(offset, bytes);
  }

 private:
  std::span<const loader::GgufFile> files_;
};

/// Errors: kUsage if writing `output` would overwrite a file of the model, whose paths are known only once it is open.
void check_output_path(const std::filesystem::path& output, const loader::Gguf& model);

/// The context length the model was trained with, from its metadata; `fallback` if the key is missing.
/// Errors: kModelFormat for a key of the wrong type.
[[nodiscard]] std::int64_t trained_context(const loader::Gguf& file, std::int64_t fallback);

/// Compiles the model of `file` for `targets`, one program per target. If options.kernels is null, GPU kernels are
/// compiled with the back-end's own compiler, which caches code objects and prints notes to stderr.
/// `reports`: filled with one report per target unless null.
/// Errors: those of build_model, the pipeline and the compilers.
[[nodiscard]] plan::PlanT compile_model(const loader::Gguf& file, std::span<const std::string> targets,
                                        const codegen::CompileOptions& options,
                                        std::vector<codegen::CompileReport>* reports = nullptr);

/// Compiles the portable graph that is stored in `plan` for another target; the result has that program alone. Kernels
/// as in compile_model. Errors: those of ir::parse, the pipeline and the compilers.
[[nodiscard]] plan::PlanT retarget_plan(const plan::PlanT& plan, const loader::Gguf& file, const std::string& target,
                                        const codegen::CompileOptions& options);

}  // namespace forge::session
