// The target facts of a program: plans are untrusted input, so facts are checked before the engine uses them.

#include "runtime/program_facts.h"

#include <catch2/catch.hpp>

#include "support/error.h"
#include "tests/runtime/facts.h"

namespace forge::runtime {
namespace {

/// A program of a target that samples, with one variant that has sample steps.
plan::ProgramT program() {
  plan::ProgramT out;
  out.target = "some-target";
  out.facts = test::some_facts(false);
  out.options = std::make_unique<plan::OptionsT>();
  out.variants.push_back(std::make_unique<plan::VariantT>());
  out.variants.back()->sample_steps.push_back(std::make_unique<plan::StepT>());
  return out;
}

/// The error line for the program changed by `change`; empty if it is accepted.
template <class Change>
std::string refusal(Change&& change) {
  auto broken = program();
  change(broken);
  try {
    (void)facts_of(broken);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kPlan);
    CHECK(error.line().find('\n') == std::string::npos);
    CHECK(error.line().find("some-target") != std::string::npos);
    return error.line();
  }
  return {};
}

}  // namespace

TEST_CASE("facts_of returns the program's own facts") {
  const auto good = program();
  CHECK(&facts_of(good) == good.facts.get());
  CHECK(supports_kv_type(*good.facts, DType::kF16));
  CHECK_FALSE(supports_kv_type(*good.facts, DType::kQ8_0));
}

TEST_CASE("missing, absurd and contradictory facts are refused") {
  using Catch::Contains;
  CHECK_THAT(refusal([](auto& p) { p.facts.reset(); }), Contains("missing"));
  for (const char* api : {"", "C P U", "line\nbreak", "abcdefghijklmnopqrstuvwxyz0123456789"})
    CHECK_THAT(refusal([&](auto& p) { p.facts->api = api; }), Contains("does not name its API"));
  for (const std::int32_t tokens : {0, -1, (1 << 24) + 1})
    CHECK_THAT(refusal([&](auto& p) { p.facts->prompt_tokens = tokens; }), Contains("prompt limits"));
  for (const std::int32_t tokens : {-1, (1 << 24) + 1})
    CHECK_THAT(refusal([&](auto& p) { p.facts->long_prompt = tokens; }), Contains("prompt limits"));
  CHECK_THAT(refusal([](auto& p) { p.facts->kv_types.clear(); }),
             Contains("KV cache types is empty or has unknown types"));
  CHECK_THAT(refusal([](auto& p) { p.facts->kv_types = {1, 255}; }),
             Contains("KV cache types is empty or has unknown types"));
  CHECK_THAT(refusal([](auto& p) { p.facts->kv_types.resize(65, 1); }),
             Contains("KV cache types is empty or has unknown types"));
  CHECK_THAT(refusal([](auto& p) { p.options->kv_type = static_cast<std::uint8_t>(DType::kQ8_0); }),
             Contains("not supported by its target"));
  CHECK_THAT(refusal([](auto& p) { p.facts->samples = false; }), Contains("it samples tokens"));
  CHECK_THAT(refusal([](auto& p) { p.variants.back()->hidden_width = 8; }), Contains("hidden rows"));
}

}  // namespace forge::runtime
