// Constrained text of real (tiny) models on the CPU: in one batch with free requests and alone the same tokens, and
// always text that the expression matches. Needs the reference data (families/).

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <regex>
#include <vector>

#include "runtime/engine/engine_core.h"
#include "session/constraint/constraints.h"
#include "session/generate.h"
#include "session/session.h"
#include "tests/session/small_vocabulary.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace forge::session {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr const char* kPatterns[] = {R"(\{"name": "[a-z]{3,8}", "age": [1-9][0-9]?\})", "yes|no|maybe",
                                     R"([A-Z][a-z]*( [a-z]+){2,5}\.)", R"(-?[0-9]{1,6}(\.[0-9]+)?)"};

std::vector<Ids> served(runtime::Executor& executor, const std::vector<engine::Request>& requests,
                        std::size_t sequences) {
  engine::Time now{};
  engine::EngineCore core(executor, {.step_tokens = 64, .sequences = sequences, .reuse_prefixes = false},
                          [&] { return now += std::chrono::milliseconds(1); });
  std::vector<std::shared_ptr<engine::Stream>> streams;
  for (const auto& request : requests) {
    auto prepared = core.prepare(request);
    REQUIRE(prepared.has_value());
    streams.push_back(engine::EngineCore::stream_of(*prepared));
    REQUIRE(core.submit(*std::move(prepared)).has_value());
  }
  while (core.step()) core.scheduler().audit();
  std::vector<Ids> all;
  for (const auto& stream : streams) {
    all.emplace_back();
    while (const auto event = stream->next({})) {
      CHECK(event->error.empty());
      if (event->token >= 0) all.back().push_back(event->token);
    }
  }
  return all;
}

}  // namespace

TEST_CASE("16 constrained and free requests of one batch give the same tokens as each alone") {
  for (const auto* name : {"families/llama4-q4_0.gguf", "families/apertus-q4_0.gguf", "families/lfm2-f16.gguf"}) {
    const auto path = tests::reference_file(name);
    if (path.empty()) return;
    const tests::TempDir cache;
    ::setenv("FORGE_CACHE_DIR", cache.file("cache").c_str(), 1);
    Stages stages;
    Session session({.model = {.path = path.native(), .context = 256, .sequences = 16}, .device = "cpu", .threads = 2},
                    stages);
    auto& executor = session.executor();
    const tests::SmallVocabulary vocabulary;
    Constraints constraints(*vocabulary.tokenizer, executor.vocab());
    std::vector<engine::Request> requests;
    for (std::uint64_t i = 0; i < 16; ++i) {
      engine::Request request{.prompt = {1, 70, 80, static_cast<std::int32_t>(100 + i)}, .max_tokens = 60};
      request.sampling = {.temperature = i % 2 == 0 ? 0.0F : 1.0F, .top_k = i % 4 == 1 ? 50 : 0, .seed = i};
      if (i % 5 == 3) request.sampling.repeat_penalty = 1.1F;
      if (i % 4 != 3)
        request.constraint = [&constraints, compiled = constraints.compile(
                                                {text::constraint::ConstraintSyntax::kRegex, kPatterns[i % 4]})] {
          return constraints.start(compiled);
        };
      requests.push_back(std::move(request));
    }
    const auto together = served(executor, requests, 16);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      INFO(name << ", request " << i << ": " << vocabulary.text(together[i]));
      CHECK(served(executor, {requests[i]}, 1).front() == together[i]);
      if (!requests[i].constraint) continue;
      if (together[i].size() < 60) CHECK(std::regex_match(vocabulary.text(together[i]), std::regex(kPatterns[i % 4])));

      // So does the loop of one sequence, which the tools use.
      Sequences sequences(executor, 256, 1);
      GenerateOptions options{.tokens_max = 60, .sampler = requests[i].sampling};
      options.constraint = [&](auto) -> std::shared_ptr<runtime::TokenConstraint> { return requests[i].constraint(); };
      const auto alone =
          generate(sequences, executor.vocab(), requests[i].prompt, options, [](auto) { return std::nullopt; });
      CHECK(alone.tokens == together[i]);
      CHECK((alone.finish == Finish::kStop || alone.tokens.size() == 60 || alone.tokens.back() == 2));
    }
  }
}

}  // namespace forge::session
