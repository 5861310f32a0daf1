#include "runtime/program_facts.h"

#include <algorithm>
#include <string>

#include "support/error.h"

namespace forge::runtime {
namespace {

constexpr std::int32_t kTokensMax = 1 << 24;
constexpr std::size_t kApiCharsMax = 32, kKvTypesMax = 64;

bool is_word(const std::string& text) {
  return !text.empty() && text.size() <= kApiCharsMax && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  });
}

/// Returns why the facts are invalid, or an empty string.
std::string problem_of(const plan::TargetFactsT& facts, const plan::ProgramT& program) {
  if (!is_word(facts.api)) return "it does not name its API";
  if (facts.prompt_tokens < 1 || facts.prompt_tokens > kTokensMax || facts.long_prompt < 0 ||
      facts.long_prompt > kTokensMax)
    return "its prompt limits are out of range";
  const auto known = [](std::uint8_t type) { return find_dtype(type) != nullptr; };
  if (facts.kv_types.empty() || facts.kv_types.size() > kKvTypesMax || !std::ranges::all_of(facts.kv_types, known))
    return "its list of KV cache types is empty or has unknown types";
  if (program.options != nullptr && !supports_kv_type(facts, static_cast<DType>(program.options->kv_type)))
    return "its KV cache type is not supported by its target";
  for (const auto& variant : program.variants) {
    if (variant == nullptr) continue;
    if (!variant->sample_steps.empty() && !facts.samples) return "it samples tokens, which its target does not support";
    if (variant->hidden_width != 0 && !facts.gives_hidden)
      return "it returns hidden rows, which its target does not support";
  }
  return {};
}

}  // namespace

const plan::TargetFactsT& facts_of(const plan::ProgramT& program) {
  const auto problem = program.facts == nullptr ? "they are missing" : problem_of(*program.facts, program);
  if (!problem.empty())
    throw Error(ErrorCode::kPlan, "the plan's facts about target '" + printable(program.target) + "' are invalid",
                problem, "compile the model again (forge-compile)");
  return *program.facts;
}

bool supports_kv_type(const plan::TargetFactsT& facts, DType type) {
  return std::ranges::find(facts.kv_types, static_cast<std::uint8_t>(type)) != facts.kv_types.end();
}

bool is_encoder(const plan::ProgramT& program) {
  return !program.variants.empty() && std::ranges::all_of(program.variants, [](const auto& variant) {
    return variant != nullptr && variant->hidden_width > 0;
  });
}

}  // namespace forge::runtime
