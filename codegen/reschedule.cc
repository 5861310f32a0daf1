#include "codegen/reschedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/gpu/gpu_target.h"
#include "support/error.h"

namespace forge::codegen {
namespace {

std::vector<passes::Program> run_passes(const ir::Graph& portable, const plan::ProgramT& program) {
  const auto options = options_of(program);
  const auto target = target_model_of(program.target, options.tune);
  if (!target) throw Error(ErrorCode::kPlan, "the plan's target '" + printable(program.target) + "' is unknown");
  passes::PipelineOptions pipeline{.context = options.context, .batch_max = options.batch_max, .skip = options.skip};
  std::vector<passes::Program> made;
  made.push_back(passes::run_pipeline(portable, *target, pipeline).program);
  pipeline.hidden = options.hidden && !is_gpu_target(program.target);
  if (pipeline.hidden) made.push_back(passes::run_pipeline(portable, *target, pipeline).program);
  return made;
}

/// Does something that lives at step `at` cover the byte at `offset`? Scratch of no bytes has an address too.
bool covered(const passes::Variant& variant, std::size_t at, std::uint64_t offset) {
  const auto step = static_cast<std::int32_t>(at);
  const auto inside = [&](std::int64_t begin, std::int64_t bytes) {
    const auto from = static_cast<std::uint64_t>(begin);
    return offset == from || (offset > from && offset - from < static_cast<std::uint64_t>(bytes));
  };
  const auto& own = variant.steps[at];
  return inside(own.scratch_offset, own.kernel.scratch_bytes) ||
         std::ranges::any_of(variant.buffers, [&](const passes::Buffer& buffer) {
           return buffer.first <= step && step <= buffer.last && inside(buffer.offset, buffer.bytes);
         });
}

bool same_step(const passes::Variant& variant, std::size_t at, const plan::StepT* written) {
  if (written == nullptr) return false;
  const auto& step = variant.steps[at];
  const auto lies_right = [&](const plan::Operand& operand) {
    return operand.space() != plan::Space::Arena || covered(variant, at, operand.offset());
  };
  return written->label == step.kernel.kernel && written->layer == step.layer &&
         written->weight_bytes == step.cost.weight_bytes && written->activation_bytes == step.cost.activation_bytes &&
         std::ranges::all_of(written->operands, lies_right);
}

/// What differs first between a variant of `made` and the one in the plan, for people; empty when nothing does.
std::string difference(const passes::Program& made, const passes::Variant& variant, const plan::VariantT* other,
                       bool is_gpu) {
  if (other == nullptr || other->name != variant.name) return "variant " + variant.name;
  std::vector<std::size_t> steps;  // those that were lowered
  for (std::size_t i = 0; i < variant.steps.size(); ++i)
    if (!is_gpu || has_launch(made.graph, variant.steps[i])) steps.push_back(i);
  if (other->steps.size() != steps.size())
    return fmt::format("{} has {} steps instead of {}", variant.name, other->steps.size(), steps.size());
  if (other->arena_bytes != variant.arena_bytes || other->arena_bound_bytes != variant.arena_bound_bytes)
    return "the arena of " + variant.name;
  for (std::size_t i = 0; i < steps.size(); ++i)
    if (!same_step(variant, steps[i], other->steps[i].get())) return fmt::format("step {} of {}", i, variant.name);
  return {};
}

/// The same for all variants: those that give logits come first, then those that give hidden rows.
std::string difference(const std::vector<passes::Program>& made, const plan::ProgramT& written) {
  const bool is_gpu = is_gpu_target(written.target);
  std::size_t count = 0;
  for (const auto& program : made) count += program.variants.size();
  if (written.variants.size() != count) return fmt::format("{} variants instead of {}", written.variants.size(), count);
  std::size_t at = 0;
  for (const auto& program : made) {
    for (const auto& variant : program.variants) {
      const auto* other = written.variants[at++].get();
      if (auto what = difference(program, variant, other, is_gpu); !what.empty()) return what;
      if ((other->hidden_width > 0) != (&program != &made.front())) return "what " + variant.name + " gives";
    }
  }
  return {};
}

}  // namespace

CompileOptions options_of(const plan::ProgramT& program) {
  CompileOptions options{.context = program.context, .batch_max = program.batch_max};
  const std::string_view text = program.options;
  const auto value = [&](std::string_view key) {
    const auto at = text.find(key);
    if (at == std::string_view::npos) return std::string_view();
    const auto from = text.substr(at + key.size());
    return from.substr(0, from.find(' '));
  };
  if (const auto kv_type = dtype_of_name(value(" kv="))) options.kv_type = *kv_type;
  options.hidden = value(" hidden=") == "1";
  options.tune = value(" tune=");
  for (auto skip = value(" skip="); !skip.empty();) {
    const auto plus = skip.find('+');
    options.skip.emplace_back(skip.substr(0, plus));
    skip.remove_prefix(plus == std::string_view::npos ? skip.size() : plus + 1);
  }
  if (options_text(options) != text)
    throw Error(ErrorCode::kPlan, "the plan's options '" + printable(text, 100) + "' are none that forge writes", {},
                "compile the model again (forge-compile)");
  return options;
}

std::vector<passes::Program> reschedule(const ir::Graph& portable, const plan::ProgramT& program) {
  auto made = run_passes(portable, program);
  if (const auto what = difference(made, program); !what.empty())
    throw Error(ErrorCode::kPlan, "the plan's steps are not those that this forge makes of its graph", what,
                "compile the model again (forge-compile)");
  return made;
}

}  // namespace forge::codegen
