// Measured kernel choices in the cache: stored for a card, target and model, found again, merged with --tune, and not
// used when the file is damaged or of something else.

#include "session/tuned/tuned_choices.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "codegen/back_end.h"
#include "codegen/compile.h"
#include "session/model_file.h"
#include "session/open_model.h"
#include "support/error.h"
#include "support/os/cache_folder.h"
#include "tests/e2e/tiny_model.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace forge::session {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using tests::TempDir;

const TunedSubject kCard{.card = "Fast Card 9000", .target = "sm_90", .model = "0123abcd"};
const TunedChoices kChoices{
    .model_name = "a \"model\"", .tune = "64x64x1:rows=2,64x64x1:waves=4", .measured = {{"tg32", 100.5, 120.25}}};

std::string content(const fs::path& path) {
  std::stringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}
void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::trunc) << text;
}

/// A private cache folder, which the environment names while this lives.
class Cache {
 public:
  Cache() { ::setenv("FORGE_CACHE_DIR", options.directory.c_str(), 1); }
  ~Cache() { ::unsetenv("FORGE_CACHE_DIR"); }
  TempDir folder;
  plan::CacheOptions options{.directory = folder.path() / "cache"};
};

}  // namespace

TEST_CASE("tuned choices: what is stored is found again, for that card, target and model only") {
  const Cache cache;
  CHECK((!find_tuned(cache.options, kCard).found && find_tuned(cache.options, kCard).why.empty()));
  const auto path = store_tuned(cache.options, kCard, kChoices);
  CHECK(path == tuned_path(cache.options, kCard));
  const auto found = find_tuned(cache.options, kCard);
  REQUIRE(found.found);
  CHECK((found.choices.tune == kChoices.tune && found.choices.model_name == kChoices.model_name));
  REQUIRE(found.choices.measured.size() == 1);
  CHECK((found.choices.measured[0].test == "tg32" && found.choices.measured[0].before == 100.5 &&
         found.choices.measured[0].after == 120.25));
  for (const auto part : {&TunedSubject::card, &TunedSubject::target, &TunedSubject::model}) {
    auto other = kCard;
    other.*part += "x";
    CHECK((!find_tuned(cache.options, other).found && find_tuned(cache.options, other).why.empty()));
  }
  // The file names everything in plain text, and nothing is left beside it.
  for (const auto* word : {"Fast Card 9000", "sm_90", "0123abcd", "64x64x1:waves=4", "forge tuned 1"})
    CHECK_THAT(content(path), Contains(word));
  CHECK(std::distance(fs::directory_iterator(path.parent_path()), {}) == 1);
  auto better = kChoices;
  better.tune.clear();
  store_tuned(cache.options, kCard, better);
  CHECK((find_tuned(cache.options, kCard).found && find_tuned(cache.options, kCard).choices.tune.empty()));
}

TEST_CASE("tuned choices: a damaged file, or one of something else, is not used and one line says why") {
  const Cache cache;
  const auto path = store_tuned(cache.options, kCard, kChoices);
  const auto good = content(path);
  const auto why = [&](const std::string& text) {
    write(path, text);
    const auto found = find_tuned(cache.options, kCard);
    CHECK(!found.found);
    CHECK(found.why.find('\n') == std::string::npos);
    CHECK_THAT(found.why, Contains("error[cache]") && Contains("is not used") && Contains("--tune measures again"));
    return found.why;
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    auto text = good;
    const auto at = text.find(from);
    REQUIRE(at != std::string::npos);
    return why(text.replace(at, from.size(), to));
  };
  why("");
  why("[]");
  why("7");
  for (std::size_t bytes = 1; bytes + 2 < good.size(); bytes += 7) why(good.substr(0, bytes));
  CHECK_THAT(with("forge tuned 1", "forge tuned 2"), Contains("it is damaged"));
  CHECK_THAT(with("Fast Card 9000", "Slow Card"), Contains("its card is 'Slow Card', not 'Fast Card 9000'"));
  CHECK_THAT(with("sm_90", "sm_80"), Contains("its target is 'sm_80'"));
  CHECK_THAT(with("0123abcd", "0123abce"), Contains("its model is"));
  CHECK_THAT(with("\"forge\": \"", "\"forge\": \"9."), Contains("forge 9.") && Contains("measured it"));
  CHECK_THAT(with("rows=2", "row=2"), Contains("the keys are"));
  CHECK_THAT(with("rows=2", "rows=two"), Contains("is not KEY=NUMBER"));
  CHECK_THAT(with("\"tune\"", "\"tunes\""), Contains("it has no tune"));
  CHECK_THAT(with("120.25", "\"fast\""), Contains("a test has no after"));
  CHECK_THAT(with("\"measured\"", "\"weighed\""), Contains("it has no measured"));
  fs::remove(path);
  fs::create_directory(path);
  CHECK_THAT(find_tuned(cache.options, kCard).why, Contains("it is no file"));
}

TEST_CASE("tuned choices: a compilation takes the stored ones, and --tune wins over them") {
  const Cache cache;
  CHECK(tune_with_stored(kCard, "units=2") == "units=2");
  CHECK_THROWS_WITH(require_tuned(kCard),
                    Contains("Fast Card 9000") && Contains("sm_90") && Contains("--tune on that GPU"));
  const auto path = store_tuned(cache.options, kCard, kChoices);
  CHECK_NOTHROW(require_tuned(kCard));
  CHECK(tune_with_stored(kCard, "") == kChoices.tune);
  CHECK(tune_with_stored(kCard, "units=2") == "64x64x1:rows=2,64x64x1:waves=4,units=2");
  CHECK(tune_with_stored(kCard, "rows=8") == "64x64x1:waves=4,rows=8");
  CHECK(tune_with_stored({.card = "", .target = "sm_90", .model = "0123abcd"}, "rows=8") == "rows=8");
  CHECK_THROWS_AS(tune_with_stored(kCard, "row=8"), Error);
  write(path, "{");
  CHECK(tune_with_stored(kCard, "rows=8") == "rows=8");
  CHECK_THROWS_WITH(require_tuned(kCard), Contains("is not used"));
}

// On the CPU, which has no use for the choices, but plans keep them for any target.
TEST_CASE("tuned choices: a model that is opened for a card has them, and --tune and --no-tuned win") {
  if (codegen::host_back_end() == nullptr) return tests::skip_case("this build has no CPU back-end");
  const Cache cache;
  const auto path = cache.folder.write("m.gguf", tests::tiny_gguf({}));
  const TunedSubject subject{
      .card = kCard.card, .target = codegen::host_target(), .model = loader::Gguf::open(path).identity().hex()};
  store_tuned(cache.options, subject, kChoices);
  const ModelChoice plain{.path = path, .context = 64, .card = kCard.card};
  const auto tune_of = [](ModelChoice choice, auto&& change) {
    change(choice);
    return open_model(choice).program->options->tune;
  };
  CHECK(tune_of(plain, [](auto&) {}) == kChoices.tune);
  CHECK(tune_of(plain, [](auto& choice) { choice.tune = "rows=8"; }) == "64x64x1:waves=4,rows=8");
  CHECK(tune_of(plain, [](auto& choice) { choice.no_tuned = true; }).empty());
  CHECK(tune_of(plain, [](auto& choice) { choice.card = "Other"; }).empty());
  CHECK(tune_of(plain, [](auto& choice) { choice.card.clear(); }).empty());
  CHECK_THROWS_AS(tune_of(plain, [](auto& choice) { choice.tune = "row=8"; }), Error);
  CHECK_THROWS_AS(tune_of(plain, [](auto& choice) { choice.tune = "row=8", choice.no_tuned = true; }), Error);
  // A plan has its own choices, unless it is compiled again.
  const auto plan = cache.folder.file("m.plan");
  const std::vector<std::string> targets{subject.target};
  plan::write_plan(plan, compile_model(loader::Gguf::open(path), targets, {.context = 64}));
  auto of_plan = plain;
  of_plan.path = plan;
  CHECK(tune_of(of_plan, [](auto&) {}).empty());
  CHECK(tune_of(of_plan, [](auto& choice) { choice.context = 128; }) == kChoices.tune);
  CHECK(tune_of(of_plan, [](auto& choice) { choice.tune = ""; }).empty());
  CHECK(tune_of(of_plan, [](auto& choice) { choice.tune = "rows=8"; }) == "64x64x1:waves=4,rows=8");
  // Trials leave no plans behind.
  const auto plans = [&] { return cache_files(cache.options.directory, plan::kPlanSuffix).size(); };
  const auto before = plans();
  CHECK(tune_of(plain, [](auto& choice) { choice.tune = "rows=3", choice.keeps_plan = false; }) ==
        "64x64x1:waves=4,rows=3");
  CHECK(plans() == before);
}

TEST_CASE("tuned choices: without a usable cache they cannot be stored") {
  CHECK_THROWS_WITH(store_tuned({}, kCard, kChoices), Contains("there is no cache"));
  CHECK(!find_tuned({}, kCard).found);
  const TempDir folder;
  const auto open = folder.path() / "open";
  fs::create_directory(open);
  ::chmod(open.c_str(), 0777);
  CHECK_THROWS_WITH(check_tuned_cache({.directory = open}), Contains("cannot store the choices"));
}

}  // namespace forge::session
