#include "codegen/compile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <optional>

#include "codegen/cpu/cpu_target.h"
#include "codegen/cpu/lower_cpu.h"
#include "codegen/gpu/lower_gpu.h"
#include "codegen/gpu/tuning.h"
#include "ir/text.h"
#include "runtime/plan/tile_ops.h"
#include "support/error.h"
#include "support/version.h"

namespace forge::codegen {
namespace {

constexpr std::string_view kCpuPrefix = "cpu-";

std::optional<cpu::CpuClass> cpu_class_of(std::string_view target) {
  if (!target.starts_with(kCpuPrefix)) return std::nullopt;
  return cpu::parse(target.substr(kCpuPrefix.size()));
}

}  // namespace

bool is_gpu_target(std::string_view target) {
  return find_target(target) != nullptr;
}

std::unique_ptr<const passes::TargetModel> target_model_of(std::string_view target, std::string_view tune) {
  if (const auto* gpu = find_target(target)) return std::make_unique<GpuTargetModel>(*gpu, parse_tuning(tune));
  if (const auto cpu_class = cpu_class_of(target)) return std::make_unique<CpuTarget>(*cpu_class);
  return nullptr;
}

std::string host_target() {
  return fmt::format("{}{}", kCpuPrefix, cpu::name(cpu::detect()));
}

std::string cpu_target_names() {
  std::string names = "cpu";
  for (const auto cpu_class : cpu::all_classes()) names += fmt::format(", {}{}", kCpuPrefix, cpu::name(cpu_class));
  return names;
}

std::vector<std::string> resolve_targets(std::string_view list) {
  std::vector<std::string> targets;
  while (true) {
    const auto comma = list.find(',');
    const auto one = list.substr(0, comma);
    const auto* gpu = find_target(one);
    const std::string target = gpu != nullptr                  ? std::string(gpu->name)
                               : one == "auto" || one == "cpu" ? host_target()
                                                               : std::string(one);
    if (gpu == nullptr && !cpu_class_of(target))
      throw Error(ErrorCode::kUsage, "target '" + printable(one) + "' is unknown", {},
                  "targets are auto, " + cpu_target_names() + ", " + target_names());
    if (std::find(targets.begin(), targets.end(), target) == targets.end()) targets.push_back(target);
    if (comma == std::string_view::npos) return targets;
    list.remove_prefix(comma + 1);
  }
}

std::string options_text(const CompileOptions& options) {
  auto text = fmt::format("context={} batch={}", options.context, options.batch_max);
  if (options.kv_type != DType::kF16) text += fmt::format(" kv={}", dtype_name(options.kv_type));
  if (options.hidden) text += " hidden=1";
  if (!options.tune.empty()) text += fmt::format(" tune={}", options.tune);
  if (!options.skip.empty()) text += fmt::format(" skip={}", fmt::join(options.skip, "+"));
  return text;
}

std::string cache_key(const ModelFile& model, std::span<const std::string> targets, const CompileOptions& options) {
  const auto text = fmt::format("{} {} {} {} {} {}", kVersion, kBuildId, plan::kPlanVersion, model.identity,
                                fmt::join(targets, ","), options_text(options));
  const auto hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::unique_ptr<plan::ProgramT> compile_program(const ir::Graph& portable, const ModelFile& model,
                                                const std::string& target, const CompileOptions& options,
                                                CompileReport* report) {
  const passes::PipelineOptions pipeline{.context = options.context,
                                         .batch_max = options.batch_max,
                                         .skip = options.skip,
                                         .dump_ir_dir = options.dump_ir_dir,
                                         .dump_dot_dir = options.dump_dot_dir,
                                         .check_round_trip = options.check_round_trip};
  if (is_gpu_target(target) && options.kernels == nullptr)
    throw Error(ErrorCode::kUsage, "no kernel compiler was given for target " + target);
  if (is_gpu_target(target) && options.kv_type != DType::kF16)
    throw Error(ErrorCode::kUsage, fmt::format("no KV cache in {} on {}", dtype_name(options.kv_type), target),
                "GPUs keep it in f16", "leave --kv-type away, or compile for --target cpu");
  const auto target_model = target_model_of(target, options.tune);
  if (!target_model) throw Error(ErrorCode::kUsage, "target '" + printable(target) + "' is unknown");
  auto result = passes::run_pipeline(portable, *target_model, pipeline);
  const auto* gpu = dynamic_cast<const GpuTargetModel*>(target_model.get());
  std::optional<passes::Program> hidden;
  if (options.hidden && gpu == nullptr) {
    auto beside = pipeline;
    beside.hidden = true;
    beside.dump_ir_dir.clear();  // dumps are of the graph with logits
    beside.dump_dot_dir.clear();
    hidden = passes::run_pipeline(portable, *target_model, beside).program;
  }
  auto program = gpu != nullptr ? lower_gpu(result.program, model, *gpu, *options.kernels)
                                : lower_cpu(result.program, model, options.kv_type, hidden ? &*hidden : nullptr);
  program->target = target;
  program->options = options_text(options);
  program->context = options.context;
  program->batch_max = options.batch_max;
  program->vocab = model.vocab;
  if (report != nullptr) *report = {target, std::move(result.reports), std::move(result.notes)};
  return program;
}

plan::PlanT compile_plan(const ir::Graph& portable, const ModelFile& model, std::span<const std::string> targets,
                         const CompileOptions& options, std::vector<CompileReport>* reports) {
  plan::PlanT out;
  out.version = plan::kPlanVersion;
  out.forge_version = kVersion;
  out.model = std::make_unique<plan::ModelT>();
  out.model->path = model.path;
  out.model->name = model.name;
  out.model->family = model.family;
  out.model->file_bytes = model.file_bytes;
  out.model->identity = model.identity;
  out.graph = ir::print(portable);
  for (const auto& target : targets) {
    CompileReport report;
    out.programs.push_back(compile_program(portable, model, target, options, &report));
    if (reports != nullptr) reports->push_back(std::move(report));
  }
  return out;
}

}  // namespace forge::codegen
