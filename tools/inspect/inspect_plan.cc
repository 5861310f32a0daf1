#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <ranges>
#include <tuple>
#include <utility>

#include "codegen/compile.h"
#include "kernels/quant/x16.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/step.h"
#include "runtime/plan/weight_sources.h"
#include "runtime/program_facts.h"
#include "session/open_model.h"
#include "session/state_report.h"
#include "support/error.h"
#include "support/json_text.h"
#include "support/os/console.h"
#include "tools/compile/compile_report.h"
#include "tools/inspect/inspect_kernels.h"
#include "tools/inspect/inspect_model.h"

namespace forge::tools {
namespace {

std::uint64_t positive(std::int64_t bytes) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0));
}

/// Bytes of the model file that the program's weights are made of. A part of a tensor that several weights use counts
/// once.
std::uint64_t source_bytes(const plan::ProgramT& program) {
  std::map<std::array<std::uint64_t, 6>, std::uint64_t> parts;
  const auto number = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  for (const auto& weight : program.weights)
    if (weight)
      for (const auto& source : weight->sources)
        if (source)
          parts[{source->file, source->offset, number(source->row_begin), number(source->rows),
                 number(source->col_begin), number(source->cols)}] = plan::source_bytes(*weight, *source);
  std::uint64_t bytes = 0;
  for (const auto& [part, size] : parts) bytes += size;
  return bytes;
}

std::uint64_t model_bytes(const plan::ModelT& model) {
  std::uint64_t bytes = 0;
  for (const auto& file : model.files)
    if (file) bytes += file->bytes;
  return bytes;
}

double read_ratio(const plan::VariantT& variant, const plan::ProgramT& program) {
  const auto own = source_bytes(program);
  return own == 0 ? 1.0 : static_cast<double>(weight_bytes_read(variant)) / static_cast<double>(own);
}

/// Arena offsets of a step's operands, without duplicates.
std::vector<std::uint64_t> arena_places(const plan::StepT& step) {
  std::vector<std::uint64_t> places;
  for (const auto& operand : step.operands)
    if (operand.space() == plan::Space::Arena && std::ranges::find(places, operand.offset()) == places.end())
      places.push_back(operand.offset());
  return places;
}

/// The layer to show without --all: the middle one, which is typical. -1 if there are no layers.
std::int32_t sample_layer(const plan::VariantT& variant) {
  std::int32_t last = -1;
  for (const auto& step : variant.steps)
    if (step) last = std::max(last, step->layer);
  return last < 0 ? -1 : last / 2;
}

std::string variant_text(const plan::VariantT& variant, const plan::ProgramT& program, bool all) {
  const auto& bounds = variant.bounds;
  std::string out = fmt::format(
      "  {}: up to {} tokens, {} rows of logits, {} sequences\n    {} steps, {} per layer; arena {} ({:.3f} of its "
      "lower bound); reads {} of weights per execution, {:.3f} of the model's weights\n",
      variant.name, bounds.tokens(), bounds.rows(), bounds.sequences(), variant.steps.size(), steps_a_layer(variant),
      human_bytes(positive(variant.arena_bytes)), arena_ratio(variant.arena_bytes, variant.arena_bound_bytes),
      human_bytes(positive(weight_bytes_read(variant))), read_ratio(variant, program));
  const auto layer = sample_layer(variant);
  out += fmt::format("    {:>5} {:>5} {:>11} {:>11}  {}{}\n", "step", "layer", "weights", "activations", "kernel",
                     all || layer < 0 ? "" : fmt::format(" (layer {} only; --all lists all)", layer));
  for (std::size_t i = 0; i < variant.steps.size(); ++i) {
    const auto* step = variant.steps[i].get();
    if (step == nullptr || (!all && step->layer >= 0 && step->layer != layer)) continue;
    const auto places = arena_places(*step);
    out +=
        fmt::format("    {:5} {:>5} {:>11} {:>11}  {}{}\n", i, step->layer < 0 ? "-" : fmt::format("{}", step->layer),
                    human_bytes(positive(step->weight_bytes)), human_bytes(positive(step->activation_bytes)),
                    step->label + (step->reason.empty() ? "" : fmt::format(" ({})", step->reason)),
                    all ? fmt::format("  [arena {}]", fmt::join(places, ", ")) : "");
  }
  return out;
}

/// The kernel choices that replaced the cost model's (--tune, forge-bench --tune), a line for each shape; empty: none.
std::string choices_text(std::string_view tune) {
  if (tune.empty()) return {};
  std::map<std::string, std::string> of_shape;
  for (const auto part : std::views::split(tune, ',')) {
    const std::string_view one(part.begin(), part.end());
    const auto colon = one.find(':');
    auto& line = of_shape[colon == std::string_view::npos ? "all" : printable(one.substr(0, colon))];
    line += " " + printable(one.substr(colon == std::string_view::npos ? 0 : colon + 1));
  }
  std::string out = "  kernel choices given:\n";
  for (const auto& [shape, settings] : of_shape) out += fmt::format("    {}:{}\n", shape, settings);
  return out;
}

std::string program_text(const plan::ProgramT& program, bool all) {
  std::size_t packed = 0;
  for (const auto& weight : program.weights)
    packed += weight && weight->layout != static_cast<std::uint8_t>(quant::Layout::kNative) ? 1 : 0;
  auto options = codegen::options_of(program);
  const auto tune = std::exchange(options.tune, {});
  std::string out = fmt::format(
      "\nprogram {}: context {}, {} sequences, vocabulary {}; options: {}\n  weights {} in {} tensors, {} of them "
      "repacked when loaded; arena {}, {:.3f} of its lower bound; constants {}\n",
      program.target, program.context, program.batch_max, program.vocab, printable(codegen::options_text(options), 300),
      human_bytes(positive(program.weights_bytes)), program.weights.size(), packed,
      human_bytes(positive(program.arena_bytes)), arena_ratio(program.arena_bytes, program.arena_bound_bytes),
      human_bytes(program.constants.size()));
  out += choices_text(tune);
  out += state_report_text(session::state_report(program, program.context, program.batch_max));
  out += code_objects_text(program);
  for (const auto& variant : program.variants)
    if (variant) out += variant_text(*variant, program, all);
  if (all) {
    out += fmt::format("  {:>12} {:>11} {:6} {:>6}x{:<6}  weight\n", "offset", "size", "type", "rows", "cols");
    for (const auto& weight : program.weights) {
      if (!weight) continue;
      const auto* type = find_dtype(weight->dtype);
      out += fmt::format("  {:12} {:>11} {:6} {:>6}x{:<6}  {}\n", weight->offset, human_bytes(weight->bytes),
                         type == nullptr ? "?" : type->name, weight->rows, weight->cols, printable(weight->name, 200));
    }
  }
  return out;
}

std::string as_text(const plan::PlanT& plan, const InspectOptions& options) {
  const auto& model = *plan.model;
  std::string out =
      fmt::format("{}: plan made by forge {}\nmodel {} ({}), {}, at {}\nidentity {}\n", printable(options.path, 200),
                  printable(plan.forge_version), printable(model.name), printable(model.family),
                  human_bytes(model_bytes(model)), printable(model.path, 200), printable(model.identity));
  if (model.files.size() > 1)
    for (const auto& file : model.files)
      if (file) out += fmt::format("file {}, {}\n", printable(file->name, 200), human_bytes(file->bytes));
  const int chosen = session::choose_program(plan);
  out += chosen < 0 ? "no program for this machine: forge-run compiles one from the plan's portable graph\n"
                    : fmt::format("this machine runs {}\n", plan.programs[static_cast<std::size_t>(chosen)]->target);
  for (const auto& program : plan.programs)
    if (program) out += program_text(*program, options.all);
  return out;
}

void variant_json(JsonWriter& json, const plan::VariantT& variant, const plan::ProgramT& program, bool all) {
  const auto& bounds = variant.bounds;
  json.open('{').field("name", variant.name).field("tokens", bounds.tokens()).field("rows", bounds.rows());
  json.field("sequences", bounds.sequences()).field("table_blocks", bounds.table_blocks());
  json.field("step_count", variant.steps.size()).field("steps_a_layer", steps_a_layer(variant));
  json.field("arena_bytes", variant.arena_bytes).field("arena_bound_bytes", variant.arena_bound_bytes);
  json.field("arena_ratio", arena_ratio(variant.arena_bytes, variant.arena_bound_bytes));
  json.field("weight_bytes_read", weight_bytes_read(variant)).field("read_ratio", read_ratio(variant, program));
  if (all) {
    json.open("steps", '[');
    for (const auto& step : variant.steps) {
      if (!step) continue;
      json.open('{')
          .field("kernel", plan::kernel_name(program, *step))
          .field("label", step->label)
          .field("reason", step->reason)
          .field("layer", step->layer);
      json.field("weight_bytes", step->weight_bytes).field("activation_bytes", step->activation_bytes);
      json.field("flops", step->flops).field("arena", std::span<const std::uint64_t>(arena_places(*step))).close();
    }
    json.close();
  }
  json.close();
}

void facts_json(JsonWriter& json, const plan::TargetFactsT& facts) {
  json.open("facts", '{').field("on_host", facts.on_host).field("api", facts.api).field("samples", facts.samples);
  json.field("prompt_tokens", facts.prompt_tokens).field("long_prompt", facts.long_prompt);
  json.field("gives_hidden", facts.gives_hidden).open("kv_types", '[');
  for (const auto type : facts.kv_types) json.item(dtype_name(static_cast<DType>(type)));
  json.close().close();
}

void weight_json(JsonWriter& json, const plan::WeightT& weight) {
  json.open('{').field("name", weight.name).field("offset", weight.offset).field("bytes", weight.bytes);
  json.field("rows", weight.rows).field("cols", weight.cols).open("sources", '[');
  for (const auto& source : weight.sources) {
    if (!source) continue;
    json.open('{').field("tensor", source->tensor).field("file", source->file);
    json.field("row_begin", source->row_begin).field("rows", source->rows);
    json.field("col_begin", source->col_begin).field("cols", source->cols).close();
  }
  json.close().close();
}

void program_json(JsonWriter& json, const plan::ProgramT& program, bool all) {
  json.open('{').field("target", program.target).field("options", codegen::options_text(codegen::options_of(program)));
  facts_json(json, runtime::facts_of(program));
  json.field("rank", program.rank).field("world", program.world).field("input_width", program.input_width);
  json.field("context", program.context).field("batch_max", program.batch_max).field("vocab", program.vocab);
  json.field("weights_bytes", program.weights_bytes).field("weights_source_bytes", source_bytes(program));
  json.field("arena_bytes", program.arena_bytes).field("arena_bound_bytes", program.arena_bound_bytes);
  json.field("arena_ratio", arena_ratio(program.arena_bytes, program.arena_bound_bytes));
  json.field("constants_bytes", program.constants.size());
  state_report_json(json, session::state_report(program, program.context, program.batch_max));
  code_objects_json(json, program);
  json.open("variants", '[');
  for (const auto& variant : program.variants)
    if (variant) variant_json(json, *variant, program, all);
  json.close();
  if (all) {
    json.open("weights", '[');
    for (const auto& weight : program.weights)
      if (weight) weight_json(json, *weight);
    json.close();
  }
  json.close();
}

std::string as_json(const plan::PlanT& plan, const InspectOptions& options) {
  const auto& model = *plan.model;
  JsonWriter json;
  json.open('{').field("file", options.path).field("forge_version", plan.forge_version).open("model", '{');
  json.field("name", model.name).field("family", model.family).field("path", model.path);
  json.field("bytes", model_bytes(model)).field("identity", model.identity).open("files", '[');
  for (const auto& file : model.files)
    if (file)
      json.open('{').field("name", file->name).field("bytes", file->bytes).field("identity", file->identity).close();
  json.close().close();
  json.field("program_here", session::choose_program(plan))
      .field("graph_bytes", plan.graph.size())
      .open("programs", '[');
  for (const auto& program : plan.programs)
    if (program) program_json(json, *program, options.all);
  return json.close().close().take();
}

}  // namespace

std::string inspect_plan(const InspectOptions& options) {
  const auto plan = plan::read_plan(options.path);
  return options.json ? as_json(plan, options) : as_text(plan, options);
}

}  // namespace forge::tools
