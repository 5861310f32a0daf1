#include "session/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "codegen/back_end.h"
#include "ir/text/text.h"
#include "support/error.h"
#include "support/os/atomic_file.h"
#include "support/os/console.h"

namespace forge::session {
namespace {

/// The vocabulary size: the columns of the graph's output "logits". Errors: kPlan when there is no such output.
std::int64_t vocab_of(const ir::Graph& graph) {
  for (const auto& output : graph.outputs())
    if (output.name == "logits" && !graph.type(output.value).shape.empty()) return graph.type(output.value).cols();
  throw Error(ErrorCode::kPlan, "the plan's graph has no logits", {}, "compile the model again (forge-compile)");
}

/// The absolute path of the first file. Symbolic links are followed, but not that of a part itself: parts are found by
/// their names, which the file that a link points to need not have.
std::string absolute_path(const loader::Gguf& model) {
  std::error_code failed;
  const auto& given = model.path();
  auto path = std::filesystem::weakly_canonical(model.is_split() ? given.parent_path() / "." : given, failed);
  if (model.is_split()) path /= given.filename();
  return failed ? given.native() : path.native();
}

}  // namespace

codegen::ModelFile describe_model(const loader::Gguf& model) {
  codegen::ModelFile out;
  out.path = absolute_path(model);
  out.name = model.get<std::string>("general.name", model.stem());
  out.family = model.get<std::string>("general.architecture", {});
  out.identity = model.identity().hex();
  for (const auto& file : model.files())
    out.files.push_back({.name = file.name, .bytes = file.bytes.size(), .identity = file.identity().hex()});
  for (const auto& tensor : model.tensors())
    out.tensors.emplace(tensor.name, codegen::SourceTensor{.dtype = tensor.dtype,
                                                           .rows = tensor.rows(),
                                                           .cols = tensor.cols(),
                                                           .offset = tensor.offset,
                                                           .bytes = tensor.bytes(),
                                                           .file = tensor.file});
  return out;
}

void check_output_path(const std::filesystem::path& output, const loader::Gguf& model) {
  for (const auto& file : model.files()) forge::check_output_path(output, {file.path});
}

std::int64_t trained_context(const loader::Gguf& file, std::int64_t fallback) {
  const auto family = file.find<std::string_view>("general.architecture");
  if (!family) return fallback;
  const auto context = file.find<std::uint32_t>(std::string(*family) + ".context_length");
  return context.value_or(0) > 0 ? std::int64_t{*context} : fallback;
}

namespace {

/// codegen::compile_plan, with the back-end's kernel compiler if a target needs one and the caller gave none.
plan::PlanT compile_for(const ir::Graph& graph, const codegen::ModelFile& model, std::span<const std::string> targets,
                        codegen::CompileOptions options, std::vector<codegen::CompileReport>* reports) {
  std::unique_ptr<codegen::KernelCompiler> compiler;
  for (const auto& target : targets) {
    const auto& back_end = codegen::require_back_end(target);
    if (options.kernels != nullptr || back_end.open_compiler == nullptr) continue;
    compiler = back_end.open_compiler([](const std::string& line) { note(line); });
    options.kernels = compiler.get();
  }
  return codegen::compile_plan(graph, model, targets, options, reports);
}

}  // namespace

plan::PlanT compile_model(const loader::Gguf& file, std::span<const std::string> targets,
                          const codegen::CompileOptions& options, std::vector<codegen::CompileReport>* reports) {
  const auto portable = loader::build_model(file);
  auto model = describe_model(file);
  model.name = portable.info.name;
  model.family = portable.info.family;
  model.vocab = portable.info.vocab;
  return compile_for(portable.graph, model, targets, options, reports);
}

plan::PlanT retarget_plan(const plan::PlanT& plan, const loader::Gguf& file, const std::string& target,
                          const codegen::CompileOptions& options) {
  const auto graph = ir::parse(plan.graph);
  auto model = describe_model(file);
  model.name = plan.model->name;
  model.family = plan.model->family;
  model.vocab = vocab_of(graph);
  return compile_for(graph, model, std::span(&target, 1), options, nullptr);
}

}  // namespace forge::session
