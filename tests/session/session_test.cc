// Opening models and plans, and running them: the cases that need a plan changed by hand, which no shell script can
// make.

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <limits>
#include <sstream>

#include "runtime/plan/plan_file.h"
#include "session/generate.h"
#include "session/model_file.h"
#include "session/session.h"
#include "support/error.h"
#include "tests/e2e/tiny_model.h"
#include "tests/runtime/allocation_counter.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"

namespace forge::session {
namespace {

/// A model of 90 tokens, its plan and a cache, in a temporary folder.
struct SessionFixture {
  SessionFixture() {
    ::setenv("FORGE_CACHE_DIR", folder.file("cache").c_str(), 1);
    model = folder.write("tiny.gguf", tests::tiny_gguf({}));
  }
  [[nodiscard]] plan::PlanT compile(std::string target = codegen::host_target()) const {
    const auto file = loader::Gguf::open(model);
    return compile_model(file, std::span(&target, 1), {.context = 128});
  }
  /// Writes `plan`, possibly changed by the test, and opens it.
  [[nodiscard]] OpenedModel open(const plan::PlanT& plan, ModelChoice choice = {}) const {
    choice.path = folder.file("tiny.plan");
    plan::write_plan(choice.path, plan);
    return open_model(choice);
  }
  [[nodiscard]] std::vector<std::int32_t> greedy(const ModelChoice& choice) const {
    Stages stages;
    Session session({.model = choice, .threads = 1}, stages);
    Sequences sequences(session.executor(), session.context(), 1);
    const auto ids = tests::random_ids(20, 90, 3);
    return generate(sequences, session.executor().vocab(), ids, {.tokens_max = 12},
                    [](std::int32_t) { return std::nullopt; })
        .tokens;
  }

  tests::TempDir folder;
  std::filesystem::path model;
};

using tests::code_of;

}  // namespace

TEST_CASE("a plan without a program for this machine is recompiled from its graph") {
  const SessionFixture f;
  auto plan = f.compile();
  const auto expected = f.greedy({.path = f.model.native(), .context = 128});
  CHECK(f.open(plan).origin.find("again") == std::string::npos);
  for (const auto* target : {"gfx1100", "cpu-abacus", ""}) {
    plan.programs[0]->target = target;
    CHECK(choose_program(plan) == -1);
    const auto opened = f.open(plan);
    CHECK(opened.origin.find("compiled again") != std::string::npos);
    CHECK(opened.program->target == codegen::host_target());
    CHECK(opened.context == 128);
    CHECK(f.greedy({.path = f.folder.file("tiny.plan")}) == expected);
  }
  plan.programs.clear();
  CHECK(f.open(plan).program->context == 1024);  // the context that the model was trained for
}

TEST_CASE("of several programs the best that runs here is taken") {
  const SessionFixture f;
  auto plan = f.compile("cpu-generic");
  CHECK(choose_program(plan) == 0);
  plan.programs.push_back(std::move(f.compile().programs[0]));
  CHECK(plan.programs[static_cast<std::size_t>(choose_program(plan))]->target == codegen::host_target());
}

TEST_CASE("a plan with absurd numbers is refused before anything is computed with them") {
  const SessionFixture f;
  const auto refused = [&](auto change) {
    auto plan = f.compile();
    change(*plan.programs[0]);
    return code_of([&] { (void)f.open(plan); }) == ErrorCode::kPlan;
  };
  constexpr auto kHuge = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t bad : {kHuge, -kHuge, std::int64_t{0}, std::int64_t{-1}}) {
    CHECK(refused([&](auto& program) { program.context = bad; }));
    CHECK(refused([&](auto& program) { program.batch_max = bad; }));
    CHECK(refused([&](auto& program) { program.vocab = bad; }));
  }
}

TEST_CASE("a plan of another model is refused, and so is an invalid graph") {
  const SessionFixture f;
  auto plan = f.compile();
  plan.model->identity[0] ^= 1;
  CHECK(code_of([&] { (void)f.open(plan); }) == ErrorCode::kPlan);
  plan = f.compile();
  plan.graph = "%0 = nonsense";
  plan.programs.clear();
  CHECK(code_of([&] { (void)f.open(plan); }) == ErrorCode::kPlan);
  plan = f.compile();
  plan.model->path = f.folder.file("gone.gguf");
  CHECK(code_of([&] { (void)f.open(plan); }) == ErrorCode::kPlan);
  CHECK(f.open(plan, {.model = f.model.native()}).path == f.model);
}

TEST_CASE("a plan with another attention option than requested is recompiled, and the model keeps both") {
  const SessionFixture f;
  const auto plan = f.compile();
  CHECK(f.open(plan, {.context = 128, .attention = "auto"}).origin.find("again") == std::string::npos);
  const auto opened = f.open(plan, {.context = 128, .attention = "whole"});
  CHECK(opened.origin.find("again") != std::string::npos);
  CHECK(opened.program->options->attention == "whole");
  CHECK(open_model({.path = f.model.native(), .context = 128}).program->options->attention.empty());
  CHECK(open_model({.path = f.model.native(), .context = 128, .attention = "whole"}).origin == "compiled");
  CHECK(code_of([&] { (void)open_model({.path = f.model.native(), .attention = "tiles"}); }) == ErrorCode::kUsage);
  auto broken = f.compile();
  broken.programs[0]->options->attention = "sideways";
  CHECK(code_of([&] { (void)f.open(broken, {.context = 128, .attention = "whole"}); }) == ErrorCode::kPlan);
}

TEST_CASE("a plan that is not deterministic is refused where it must be, and a deterministic one stays so") {
  const SessionFixture f;
  const auto target = codegen::host_target();
  const auto error = tests::thrown_by([&] { (void)f.open(f.compile(), {.deterministic = true}); });
  CHECK(error->code() == ErrorCode::kUsage);
  CHECK_THAT(error->line(), Catch::Contains("compiled without --deterministic"));
  const auto file = loader::Gguf::open(f.model);
  auto plan = compile_model(file, std::span(&target, 1), {.context = 128, .deterministic = true});
  for (const bool asked : {false, true}) {
    CHECK(f.open(plan, {.deterministic = asked}).origin.find("again") == std::string::npos);
    const auto longer = f.open(plan, {.context = 256, .deterministic = asked});
    CHECK(longer.origin.find("again") != std::string::npos);
    CHECK(longer.program->options->deterministic);
  }
  plan.programs.clear();
  CHECK(f.open(plan, {.deterministic = true}).program->options->deterministic);
  CHECK(!f.open(plan).program->options->deterministic);
  CHECK(open_model({.path = f.model.native(), .deterministic = true}).program->options->deterministic);
}

TEST_CASE("the program's facts decide which executor runs it, and false facts are refused") {
  const SessionFixture f;
  auto plan = f.compile();
  const auto run = [&] {
    const auto path = f.folder.file("tiny.plan");
    plan::write_plan(path, plan);
    return tests::thrown_by([&] { (void)f.greedy({.path = path.native(), .context = 128}); })->line();
  };
  plan.programs[0]->facts->on_host = false;
  // A build without executors for devices reports that instead.
  CHECK_THAT(run(), Catch::Contains("it needs a device") || Catch::Contains("built without the GPU back-end"));
  plan.programs[0]->facts.reset();
  CHECK_THAT(run(), Catch::Contains("facts about target"));
}

TEST_CASE("a target's facts tell how prompts are fed, and which KV types and hidden rows it supports") {
  const SessionFixture f;
  const auto facts = [&](const char* target) { return std::move(f.compile(target).programs.at(0)->facts); };
  const auto plain = facts("cpu-x86-64-v4-vnni"), tiles = facts("cpu-x86-64-v4-vnni-amx");
  CHECK((plain->on_host && plain->api == "CPU" && !plain->samples && plain->gives_hidden));
  CHECK(plain->prompt_tokens == 64);
  CHECK(plain->long_prompt == 0);
  CHECK(tiles->long_prompt == 128);
  // Whether a token was multiplied by tiles would depend on what of its prompt was reused.
  const std::vector<std::string> with_tiles{"cpu-x86-64-v4-vnni-amx"};
  const auto file = loader::Gguf::open(f.model);
  CHECK(compile_model(file, with_tiles, {.context = 128, .deterministic = true}).programs[0]->facts->long_prompt == 0);
  CHECK(plain->kv_types ==
        std::vector<std::uint8_t>{static_cast<std::uint8_t>(DType::kF16), static_cast<std::uint8_t>(DType::kQ8_0)});
}

TEST_CASE("a plan with a changed graph leaves nothing in its model's cache entries") {
  const SessionFixture f;
  const ModelChoice choice{.path = f.model.native(), .context = 128};
  auto plan = f.compile();
  // A different epsilon gives different results, which must not reach users of the model itself.
  const auto at = plan.graph.find("eps = ");
  REQUIRE(at != std::string::npos);
  plan.graph.insert(at + 6, "0.5");
  while (plan.graph[at + 9] != ';' && plan.graph[at + 9] != '}') plan.graph.erase(at + 9, 1);
  plan.programs.clear();
  CHECK(f.open(plan, {.context = 128}).origin.find("again") != std::string::npos);
  CHECK(open_model(choice).origin == "compiled");
  CHECK(open_model(choice).origin == "cache");
}

TEST_CASE("generation ends at the context, and its steps allocate nothing") {
  const SessionFixture f;
  Stages stages;
  Session session({.model = {.path = f.model.native(), .context = 64}, .threads = 2}, stages);
  Sequences sequences(session.executor(), session.context(), 1);
  const auto prompt = tests::random_ids(10, 90, 5);
  std::uint64_t first = 0, last = 0;
  const auto out =
      generate(sequences, 90, prompt, {.sampler = {.temperature = 1, .top_k = 40, .top_p = 0.9F}}, [&](std::int32_t) {
        last = forge::test::allocations();
        if (first == 0) first = last;
        return std::nullopt;
      });
  CHECK(out.tokens.size() == 64 - 10 + 1);
  CHECK(out.finish == Finish::kContext);
  CHECK(out.decode_steps == 54);
  CHECK(last == first);
  CHECK(code_of([&] { check_prompt(tests::random_ids(65, 90, 1), 64); }) == ErrorCode::kPrompt);
  CHECK(code_of([&] { check_prompt({}, 64); }) == ErrorCode::kPrompt);
}

TEST_CASE("sequences decoded together give bit for bit the results of single runs") {
  const SessionFixture f;
  Stages stages;
  Session session({.model = {.path = f.model.native(), .context = 96, .sequences = 2}, .threads = 2}, stages);
  const auto first = tests::random_ids(40, 90, 1), second = tests::random_ids(7, 90, 2);
  Sequences together(session.executor(), 96, 2);
  (void)together.prefill(0, first);
  (void)together.prefill(1, second);
  std::vector<std::vector<float>> rows;
  const std::array<std::int32_t, 2> next{5, 6};
  for (int i = 0; i < 3; ++i) {
    const auto logits = together.decode(next);
    rows.emplace_back(logits.begin(), logits.end());
  }
  for (std::size_t s = 0; s < 2; ++s) {
    Sequences alone(session.executor(), 96, 2);
    (void)alone.prefill(0, s == 0 ? first : second);
    for (const auto& row : rows) {
      const auto logits = alone.decode(std::span(next).subspan(s, 1));
      CHECK(std::ranges::equal(logits, std::span(row).subspan(s * 90, 90)));
    }
  }
}

}  // namespace forge::session
