// Programs for GPUs compiled with --deterministic: the kernels of all variants add up in the order of the variant for
// one token. Real shapes, of which only the sources are made. tests/gpu_host/deterministic_test.cc runs small ones.

#include <catch2/catch.hpp>
#include <regex>
#include <set>

#include "codegen/compile.h"
#include "support/error.h"
#include "tests/e2e/gpu_recorder.h"
#include "tests/support/error_of.h"

namespace forge::tests {
namespace {

/// The names of kernels without their numbers of tokens, each with the constants that decide the order of its sums: of
/// the kernels for one token, which has two experts, or of the others.
std::set<std::string> orders(const Recorder& recorder, bool of_one) {
  static const std::regex kTokens("_t[0-9]+"), kHash("_[0-9a-f]+$"), kOne("_t1(_|$)"), kOneOfExperts("_t2_"),
      kConstant("(kLanesPerRow|kWavesPerRow|kHeadsPerBlock|kWorkers|kTokensPerWorker|kTeamTokens) = [0-9]+"),
      kWaves("kWaves = [0-9]+");
  std::set<std::string> out;
  for (const auto& [entry, text] : recorder.texts) {
    const bool attention = entry.starts_with("attention") || entry.starts_with("latent");
    if (!attention && !entry.starts_with("matmul") && !entry.starts_with("experts")) continue;
    if (std::regex_search(entry, entry.starts_with("experts") ? kOneOfExperts : kOne) != of_one) continue;
    auto order = std::regex_replace(std::regex_replace(entry, kHash, ""), kTokens, "");
    for (auto at = std::sregex_iterator(text.begin(), text.end(), kConstant); at != std::sregex_iterator(); ++at)
      order += " " + at->str();
    std::smatch waves;
    if (attention && std::regex_search(text, waves, kWaves)) order += " " + waves.str();
    out.insert(order);
  }
  return out;
}

/// Those of kernels for several tokens that no kernel for one token has.
std::set<std::string> other_orders(const TinyModel& model, const char* target, bool deterministic,
                                   std::string tune = {}) {
  Recorder recorder;
  (void)codegen::compile_program(model.portable().graph, model.file(), target,
                                 {.context = 4096,
                                  .batch_max = 32,
                                  .kernels = &recorder,
                                  .tune = std::move(tune),
                                  .deterministic = deterministic});
  const auto one = orders(recorder, true), others = orders(recorder, false);
  CHECK((one.size() > 4 && others.size() > 4));
  std::set<std::string> out;
  std::ranges::set_difference(others, one, std::inserter(out, out.end()));
  for (const auto& [entry, text] : recorder.texts)
    if (deterministic && (text.contains("_tiles.h\"") || text.contains("_strips.h\""))) out.insert(entry);
  return out;
}

}  // namespace

TEST_CASE("deterministic plan: the kernels of all variants have the order of sums of one token's") {
  // Rows of ffn_down are long, so that several waves share them where only one token is multiplied.
  const TinyModel halves({.dtype = DType::kF16, .ffn = 2048, .head_dim = 128}),
      codes({.dtype = DType::kQ8_0, .ffn = 4096, .head_dim = 64, .experts = 4, .experts_used = 2});
  for (const char* target : {"gfx900", "gfx1030", "gfx1100", "gfx942", "sm_90"}) {
    CAPTURE(target);
    CHECK(other_orders(halves, target, true) == std::set<std::string>{});
    CHECK(other_orders(codes, target, true) == std::set<std::string>{});
    CHECK(!other_orders(halves, target, false, "matrix=0").empty());
  }
}

TEST_CASE("deterministic plan: the option is part of the plan and its cache key, and excludes what would break it") {
  const std::vector<std::string> targets{"gfx1100"};
  codegen::CompileOptions options{.context = 64, .deterministic = true};
  CHECK(codegen::options_text(options) == "context=64 batch=1 deterministic=1");
  CHECK(codegen::cache_key({.identity = "x"}, targets, options) !=
        codegen::cache_key({.identity = "x"}, targets, {.context = 64}));
  const TinyModel model({.dtype = DType::kQ8_0});
  Recorder recorder;
  options.kernels = &recorder;
  const auto compile = [&](std::string tune, std::string attention) {
    options.tune = std::move(tune);
    options.attention = std::move(attention);
    return codegen::compile_program(model.portable().graph, model.file(), "gfx1100", options);
  };
  const auto program = compile("matrix=0", "rows,whole");
  CHECK(program->options->deterministic);
  CHECK(codegen::options_of(*program).deterministic);
  const auto refused = [&](std::string tune, std::string attention, const std::string& named) {
    CHECK_THAT(error_of([&] { (void)compile(std::move(tune), std::move(attention)); }, ErrorCode::kUsage),
               Catch::Contains("--deterministic and " + named + " exclude each other"));
  };
  refused("matrix=1", "", "--tune matrix=1");
  refused("rows=2,64x96:matrix=1", "", "--tune 64x96:matrix=1");
  refused("", "tiles", "--attention tiles");
  refused("", "split", "--attention split");
}

}  // namespace forge::tests
