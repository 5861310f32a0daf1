#pragma once
// The loader's view of a model, handed to the rooms that must not know the loader: codegen and the runtime.

#include <filesystem>

#include "codegen/compile.h"
#include "codegen/model_file.h"
#include "loader/arch/family.h"
#include "loader/gguf/gguf.h"
#include "runtime/weights/weight_source.h"

namespace forge::session {

/// Where each tensor lies; `path` is made absolute. Name and family come from metadata, the vocabulary's size is left
/// at 0: the graph decides it.
[[nodiscard]] codegen::ModelFile describe_model(const loader::Gguf& file, const std::filesystem::path& path);

/// A model of one file as executors read it: in place where it is mapped, or by copies that touch no mapped page. Lives
/// no longer than `file`.
class FileWeightSource final : public runtime::WeightSource {
 public:
  FileWeightSource(const loader::Gguf& file, const std::filesystem::path& path) : file_(file), name_(path.native()) {}
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] std::uint64_t bytes(std::uint32_t) const override { return file_.bytes().size(); }
  [[nodiscard]] std::span<const std::byte> data(std::uint32_t) const override { return file_.bytes(); }
  void read(std::uint32_t, std::uint64_t offset, std::span<std::byte> out) const override {
    file_.file().read(offset, out);
  }
  void prefetch(std::uint32_t, std::uint64_t offset, std::uint64_t bytes) const noexcept override {
    file_.file().prefetch(offset, bytes);
  }

 private:
  const loader::Gguf& file_;
  std::string name_;
};

/// Positions the model was trained for, by its metadata; `fallback` when it does not say.
/// Errors: kModelFormat for a key of the wrong type.
[[nodiscard]] std::int64_t trained_context(const loader::Gguf& file, std::int64_t fallback);

/// The model of `file`, compiled for `targets`. Where a target is a GPU and options.kernels is null, kernels are
/// compiled by a service of its own, which keeps them in the cache and says on stderr what it has to say. Errors: those
/// of build_model, the pipeline and the compilers.
[[nodiscard]] plan::PlanT compile_model(const loader::Gguf& file, const std::filesystem::path& path,
                                        std::span<const std::string> targets, const codegen::CompileOptions& options,
                                        std::vector<codegen::CompileReport>* reports = nullptr);

/// One more program for a plan of which the portable graph is at hand, with kernels as compile_model's. Errors: those
/// of ir::parse, the pipeline and the compilers.
[[nodiscard]] plan::PlanT retarget_plan(const plan::PlanT& plan, const loader::Gguf& file,
                                        const std::filesystem::path& path, const std::string& target,
                                        const codegen::CompileOptions& options);

}  // namespace forge::session
