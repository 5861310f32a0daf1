#include "codegen/compile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <optional>

#include "codegen/back_end.h"
#include "ir/text/text.h"
#include "passes/schedule/output_hidden_rows.h"
#include "runtime/plan/version.h"
#include "support/error.h"
#include "support/version.h"

namespace forge::codegen {
namespace {

/// Names of the targets of all back-ends, or of those on the host only.
std::string target_names_of(bool all) {
  std::string names;
  for (const auto& one : back_ends())
    if (all || one.on_host) names += (names.empty() ? "" : ", ") + one.target_names();
  return names;
}

/// The full name of the target that the user calls `name`. Errors: kUsage, with the known names.
std::string find_target_name(std::string_view name) {
  for (const auto& one : back_ends())
    if (auto found = one.find(name)) return std::move(*found);
  throw Error(ErrorCode::kUsage, "target '" + printable(name) + "' is unknown", {},
              "targets are auto, " + target_names_of(true));
}

bool supports_kv_type(std::string_view target, const BackEnd& back_end, DType type) {
  const auto types = back_end.kv_types(target);
  return std::ranges::find(types, type) != types.end();
}

/// Errors: kUsage if the target cannot keep the KV cache in this type, with the types that it can.
void check_kv_type(std::string_view target, const BackEnd& back_end, DType type) {
  if (supports_kv_type(target, back_end, type)) return;
  std::vector<std::string_view> names;
  for (const auto one : back_end.kv_types(target)) names.push_back(dtype_name(one));
  throw Error(ErrorCode::kUsage, fmt::format("no KV cache in {} on {}", dtype_name(type), target),
              fmt::format("the target supports {}", fmt::join(names, " or ")),
              "omit --kv-type, or compile for another target");
}

/// The facts about a program's target that the plan keeps: the runtime reads them and does not depend on codegen.
std::unique_ptr<plan::TargetFactsT> facts_of(const BackEnd& back_end, const BackEndTarget& target,
                                             const plan::ProgramT& program) {
  auto facts = std::make_unique<plan::TargetFactsT>();
  target.add_facts(*facts);
  facts->on_host = back_end.on_host;
  facts->gives_hidden = back_end.gives_hidden;
  for (const auto type : back_end.kv_types(program.target)) facts->kv_types.push_back(static_cast<std::uint8_t>(type));
  facts->samples = std::ranges::any_of(
      program.variants, [](const auto& variant) { return variant != nullptr && !variant->sample_steps.empty(); });
  return facts;
}

/// Refuses a context for which the model has no learned positions: an embedding's table that the positions index.
void check_positions(const ir::Graph& portable, std::int64_t context) {
  for (const auto node : portable.nodes()) {
    if (portable.op(node) != ir::Op::kEmbed) continue;
    const auto ids = portable.operand(node, 1).node;
    if (portable.op(ids) != ir::Op::kInput || portable.attrs_as<ir::InputAttrs>(ids).kind != ir::InputKind::kPositions)
      continue;
    const auto positions = portable.type(portable.operand(node, 0)).shape[0].value;
    if (context > positions)
      throw Error(ErrorCode::kUsage, fmt::format("the model cannot have a context of {} tokens", context),
                  fmt::format("it has learned {} positions", positions), fmt::format("give -c {} or less", positions));
  }
}

}  // namespace

std::string host_target() {
  const auto* host = host_back_end();
  if (host == nullptr)
    throw Error(ErrorCode::kUsage, "this forge cannot run on the CPU", "it was built without the CPU back-end",
                "name a GPU (--device hip:0, --target gfx1100), or build it with -Dback_ends=cpu,gpu");
  return host->find("cpu").value();
}

std::string cpu_target_names() {
  return target_names_of(false);
}

bool needs_device(std::string_view target) {
  const auto* back_end = back_end_of(target);
  return back_end != nullptr && !back_end->on_host;
}

bool supports_kv_type(std::string_view target, DType type) {
  return supports_kv_type(target, require_back_end(target), type);
}

bool gives_hidden(std::string_view target) {
  return require_back_end(target).gives_hidden;
}

std::vector<std::string> resolve_targets(std::string_view list) {
  std::vector<std::string> targets;
  while (true) {
    const auto comma = list.find(',');
    auto target = find_target_name(list.substr(0, comma));
    if (std::ranges::find(targets, target) == targets.end()) targets.push_back(std::move(target));
    if (comma == std::string_view::npos) return targets;
    list.remove_prefix(comma + 1);
  }
}

// Options other than context and batch are omitted if they have their default value.
std::string options_text(const CompileOptions& options) {
  auto text = fmt::format("context={} batch={}", options.context, options.batch_max);
  if (options.kv_type != DType::kF16) text += fmt::format(" kv={}", dtype_name(options.kv_type));
  if (options.hidden) text += " hidden=1";
  if (const auto attention = attention_text(parse_attention(options.attention)); !attention.empty())
    text += fmt::format(" attention={}", attention);
  if (options.deterministic) text += " deterministic=1";
  if (options.world != 1) text += fmt::format(" rank={}/{}", options.rank, options.world);
  if (!options.tune.empty()) text += fmt::format(" tune={}", options.tune);
  if (!options.skip.empty()) text += fmt::format(" skip={}", fmt::join(options.skip, "+"));
  return text;
}

CompileOptions options_of(const plan::ProgramT& program) {
  CompileOptions out{.context = program.context, .batch_max = program.batch_max};
  out.rank = program.rank;
  out.world = program.world;
  if (program.options == nullptr) return out;
  const auto* kv_type = find_dtype(program.options->kv_type);
  if (kv_type == nullptr)
    throw Error(ErrorCode::kPlan, "the plan's KV cache has an unknown type", {},
                "compile the model again (forge-compile)");
  out.kv_type = kv_type->type;
  out.hidden = program.options->hidden;
  out.skip = program.options->skip;
  out.tune = program.options->tune;
  out.deterministic = program.options->deterministic;
  try {
    out.attention = attention_text(parse_attention(program.options->attention));
  } catch (const Error&) {
    throw Error(ErrorCode::kPlan, "the plan's choice of attention is unknown", {},
                "compile the model again (forge-compile)");
  }
  return out;
}

// The build id is part of the key, so a plan of another build is never used, even if the version is the same.
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
  const auto& back_end = require_back_end(target);
  if (back_end.open_compiler != nullptr && options.kernels == nullptr)
    throw Error(ErrorCode::kUsage, "no kernel compiler was given for target " + target);
  if (options.world != 1 || options.rank != 0)
    throw Error(ErrorCode::kUsage,
                fmt::format("a program for rank {} of {} is not supported", options.rank, options.world));
  check_kv_type(target, back_end, options.kv_type);
  check_positions(portable, options.context);
  const auto attention = parse_attention(options.attention);
  const auto made = back_end.make(target, {.kv_type = options.kv_type,
                                           .tune = options.tune,
                                           .attention = attention,
                                           .deterministic = options.deterministic});
  auto result = passes::run_pipeline(portable, *made, pipeline);
  // Hidden rows need a second run of the pipeline, because the graph has another output and other variants. Lowering
  // lets both programs share the weights.
  std::optional<passes::Program> hidden;
  if (options.hidden && back_end.gives_hidden && !passes::is_encoder(portable)) {
    auto beside = pipeline;
    beside.hidden = true;
    beside.dump_ir_dir.clear();  // dumps show the graph that outputs logits
    beside.dump_dot_dir.clear();
    hidden = passes::run_pipeline(portable, *made, beside).program;
  }
  auto program = made->lower(std::move(result.program), std::move(hidden), model, options.kernels);
  program->target = target;
  program->facts = facts_of(back_end, *made, *program);
  program->options = std::make_unique<plan::OptionsT>();
  program->options->kv_type = static_cast<std::uint8_t>(options.kv_type);
  program->options->hidden = options.hidden;
  program->options->skip = options.skip;
  program->options->tune = options.tune;
  program->options->attention = attention_text(attention);
  program->options->deterministic = options.deterministic;
  program->context = options.context;
  program->batch_max = options.batch_max;
  program->vocab = model.vocab;
  program->rank = options.rank;
  program->world = options.world;
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
  out.model->identity = model.identity;
  for (const auto& file : model.files) {
    auto row = std::make_unique<plan::ModelFileT>();
    row->name = file.name;
    row->bytes = file.bytes;
    row->identity = file.identity;
    out.model->files.push_back(std::move(row));
  }
  out.graph = ir::print(portable);
  for (const auto& target : targets) {
    CompileReport report;
    out.programs.push_back(compile_program(portable, model, target, options, &report));
    if (reports != nullptr) reports->push_back(std::move(report));
  }
  return out;
}

}  // namespace forge::codegen
