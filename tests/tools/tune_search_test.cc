// The search of forge-bench --tune, with planted times: it finds the fastest choices of each matmul apart, keeps within
// its time, is not fooled by noise, and leaves out what cannot be used.

#include "tools/bench/tune_search.h"

#include <catch2/catch.hpp>
#include <functional>
#include <random>

#include "support/error.h"

namespace forge::tools {
namespace {

using Catch::Contains;

/// The settings of a tuning's text by site: "64x64x1:waves=8".
std::map<std::string, TuneSettings> settings_of(std::string_view tune) {
  std::map<std::string, TuneSettings> out;
  while (!tune.empty()) {
    const auto one = tune.substr(0, tune.find(','));
    const auto colon = one.find(':'), equals = one.find('=');
    out[std::string(one.substr(0, colon))][std::string(one.substr(colon + 1, equals - colon - 1))] =
        std::stoll(std::string(one.substr(equals + 1)));
    tune.remove_prefix(std::min(tune.size(), one.size() + 1));
  }
  return out;
}

std::int64_t value_of(const TuneSettings& settings, const char* key, std::int64_t fallback) {
  const auto found = settings.find(key);
  return found == settings.end() ? fallback : found->second;
}

/// A machine with planted costs. A profile takes `opening` seconds of its clock, and so does a whole measurement.
class Planted final : public TuneMeasurer {
 public:
  /// Seconds of a site by its settings; a negative number: they cannot be used.
  using Cost = std::function<double(const TuneSettings&)>;

  void add(TuneSite site, Cost cost) {
    const auto name = site.name();
    sites_[name] = {std::move(site), std::move(cost)};
  }
  std::expected<TuneProfile, std::string> profile(const std::string& tune) override {
    clock += opening;
    ++profiles;
    tunes.push_back(tune);
    const auto settings = settings_of(tune);
    TuneProfile out;
    for (const auto& [name, planted] : sites_) {
      auto site = planted.site;
      const auto own = settings.contains(name) ? settings.at(name) : TuneSettings();
      const double cost = planted.cost(own);
      if (cost < 0) return std::unexpected(name + " is invalid");
      site.time = {.median = cost * (1 + jitter()), .noise = cost * noise};
      for (const auto& [key, value] : own) site.kernels += key + std::to_string(value);
      out.emplace(name, std::move(site));
    }
    return out;
  }
  std::expected<std::vector<TuneWhole>, std::string> whole(const std::string& tune) override {
    clock += opening;
    ++wholes;
    if (failing_whole && !tune.empty()) return std::unexpected(std::string("it hangs"));
    const auto settings = settings_of(tune);
    std::vector<TuneWhole> out(workloads);
    for (auto& one : out) one.logits = {1, 2, tune.empty() ? 3.0F : last_logit};
    for (const auto& [name, planted] : sites_) {
      const auto own = settings.contains(name) ? settings.at(name) : TuneSettings();
      const double cost = planted.cost(own) + (own.empty() ? 0 : whole_extra);
      out[planted.site.workload].time.median += cost + cold;
    }
    cold = 0;
    return out;
  }
  double seconds() override { return clock; }

  double opening = 1, clock = 0, noise = 0, spread = 0, whole_extra = 0, cold = 0;
  float last_logit = 3;
  bool failing_whole = false;
  std::size_t workloads = 1, profiles = 0, wholes = 0;
  std::vector<std::string> tunes;

 private:
  double jitter() { return spread == 0 ? 0 : std::uniform_real_distribution<>(-spread, spread)(random_); }
  struct One {
    TuneSite site;
    Cost cost;
  };
  std::map<std::string, One> sites_;
  std::mt19937 random_{7};
};

TuneSite dots(std::int64_t rows, std::int64_t k, std::int64_t tokens = 1, std::size_t workload = 0) {
  return {.rows = rows, .k = k, .tokens = tokens, .kind = TuneKind::kDots, .workload = workload};
}

/// Fastest with 16 waves of which 4 share a row and 2 units, slowest far from it.
double bowl(const TuneSettings& settings) {
  const auto distance = [](std::int64_t value, double best) { return std::abs(std::log2(double(value) / best)); };
  return 1 + 0.1 * distance(value_of(settings, "waves", 8), 16) + 0.1 * distance(value_of(settings, "split", 1), 4) +
         0.1 * distance(value_of(settings, "units", 4), 2);
}

constexpr TuneTarget kCard{.wave = 32, .mma = true, .copies = true};

}  // namespace

TEST_CASE("tune: the search finds the planted optimum of each site apart, in as many measurements as one site needs") {
  Planted one, many;
  one.add(dots(64, 64), bowl);
  many.add(dots(64, 64), bowl);
  many.add(dots(128, 64), [](const TuneSettings& s) { return value_of(s, "rows", 1) == 4 ? 0.5 : 1.0; });
  many.add(dots(256, 64), [](const TuneSettings&) { return 1.0; });
  const auto alone = search_tuning(one, kCard, {});
  CHECK(alone.tune == "64x64x1:split=4,64x64x1:units=2,64x64x1:waves=16");
  const auto all = search_tuning(many, kCard, {});
  CHECK(all.tune == "128x64x1:rows=4,64x64x1:split=4,64x64x1:units=2,64x64x1:waves=16");
  CHECK(one.profiles == many.profiles);
  CHECK((all.untried == 0 && all.invalid == 0 && all.tried == 3 * alone.tried));
  REQUIRE(all.workloads.size() == 1);
  CHECK(all.workloads[0].before == Approx(1.4 + 1 + 1));
  CHECK(all.workloads[0].after == Approx(1 + 0.5 + 1));
}

TEST_CASE("tune: tiles and strips have keys of their own") {
  Planted machine;
  machine.workloads = 2;
  machine.add({.rows = 4096, .k = 4096, .tokens = 512, .kind = TuneKind::kTiles}, [](const TuneSettings& s) {
    return value_of(s, "block_rows", 128) == 64 && value_of(s, "block_tokens", 256) == 128 ? 1.0 : 2.0;
  });
  machine.add({.rows = 4096, .k = 4096, .tokens = 32, .kind = TuneKind::kStrips, .workload = 1},
              [](const TuneSettings& s) { return value_of(s, "k_splits", 1) == 8 ? 1.0 : 2.0; });
  CHECK(search_tuning(machine, kCard, {}).tune ==
        "4096x4096x32:k_splits=8,4096x4096x512:block_rows=64,4096x4096x512:block_tokens=128");
  for (std::size_t group = 0; group < kTuneGroups; ++group)
    for (const auto kind : {TuneKind::kDots, TuneKind::kStrips, TuneKind::kTiles})
      for (const auto& settings : tune_candidates({.rows = 96, .k = 160, .tokens = 8, .kind = kind}, group, kCard)) {
        CHECK(value_of(settings, "k_splits", 1) == 1);  // parts of k would not be whole
        CHECK(value_of(settings, "split", 1) == 1);     // many tokens
      }
}

TEST_CASE("tune: noise is no gain") {
  Planted quiet, jittery;
  jittery.noise = 0.04;
  quiet.add(dots(64, 64), [](const TuneSettings&) { return 1.0; });
  jittery.add(dots(64, 64), [](const TuneSettings& s) { return s.empty() ? 1.0 : 0.95; });  // by chance, it may be
  for (auto* machine : {&quiet, &jittery}) {
    const auto result = search_tuning(*machine, kCard, {});
    CHECK(result.tune.empty());
    CHECK(result.tried > 10);
    CHECK(machine->wholes == 1);  // there is nothing to compare with the cost model's choices
    CHECK(result.workloads[0].before == result.workloads[0].after);
  }
  // A gain below the least one is none either; one above it is found through the noise.
  Planted little, enough;
  little.add(dots(64, 64), [](const TuneSettings& s) { return value_of(s, "units", 4) == 2 ? 0.985 : 1.0; });
  CHECK(search_tuning(little, kCard, {}).tune.empty());
  enough.spread = 0.01;
  enough.noise = 0.01;
  enough.add(dots(64, 64), [](const TuneSettings& s) { return value_of(s, "units", 4) == 2 ? 0.8 : 1.0; });
  CHECK(search_tuning(enough, kCard, {}).tune == "64x64x1:units=2");
}

TEST_CASE("tune: candidates that give the same kernel are no choices") {
  class Same final : public TuneMeasurer {
   public:
    std::expected<TuneProfile, std::string> profile(const std::string& tune) override {
      auto site = dots(64, 64);
      site.time.median = tune.empty() ? 1.0 : 0.5;  // nothing but noise, since the code is the same
      site.kernels = "matmul_f16_64x64_t1_0";
      return TuneProfile{{site.name(), site}};
    }
    std::expected<std::vector<TuneWhole>, std::string> whole(const std::string& tune) override {
      CHECK(tune.empty());
      return std::vector<TuneWhole>{{.time = {.median = 1}, .logits = {}}};
    }
    double seconds() override { return 0; }
  } same;
  CHECK(search_tuning(same, kCard, {}).tune.empty());
}

TEST_CASE("tune: what cannot be used is found among the others and left out") {
  Planted machine;
  // 16 waves cannot be used with this site; the second best is 8 waves, 4 of them on a row.
  machine.add(dots(64, 64), [](const TuneSettings& s) { return value_of(s, "waves", 8) == 16 ? -1 : bowl(s); });
  for (std::int64_t rows = 128; rows <= 1024; rows *= 2) machine.add(dots(rows, 64), bowl);
  const auto result = search_tuning(machine, kCard, {});
  CHECK_THAT(result.tune, Contains("64x64x1:split=4,64x64x1:units=2") && !Contains("64x64x1:waves=16,64x"));
  const auto chosen = settings_of(result.tune);
  CHECK(value_of(chosen.at("64x64x1"), "waves", 8) == 8);
  for (const auto* other : {"128x64x1", "256x64x1", "512x64x1", "1024x64x1"}) {
    CAPTURE(other);
    CHECK(chosen.at(other) == TuneSettings{{"waves", 16}, {"split", 4}, {"units", 2}});
  }
  CHECK(result.invalid == 3);  // splits 1, 2 and 4 of 16 waves
}

TEST_CASE("tune: the search ends in time and says what it did not try") {
  Planted machine;
  machine.opening = 4;
  machine.add(dots(64, 64), bowl);
  machine.add(dots(128, 64), bowl);
  const auto result = search_tuning(machine, kCard, {.seconds = 60});
  CHECK(machine.clock <= 60);
  CHECK(machine.clock > 45);  // it uses its time
  CHECK(result.untried > 0);
  CHECK(result.tried + result.untried == 2 * (9 + 4 + 3));
  CHECK_THAT(result.tune, Contains("64x64x1:split=4"));  // what was found until then
  // Without time for anything, the cost model's choices stay.
  Planted slow;
  slow.opening = 100;
  slow.add(dots(64, 64), bowl);
  const auto none = search_tuning(slow, kCard, {.seconds = 60});
  CHECK((none.tune.empty() && none.tried == 0 && none.untried == 16));
  CHECK(slow.clock == 200);
}

TEST_CASE(
    "tune: a workload that does not gain as a whole, or whose logits are others, keeps the cost model's choices") {
  const auto search = [](auto&& change) {
    Planted machine;
    machine.workloads = 2;
    machine.add(dots(64, 64, 1, 0), bowl);
    machine.add(dots(64, 64, 2, 1), [](const TuneSettings&) { return 2.0; });
    change(machine);
    return search_tuning(machine, kCard, {});
  };
  const auto gains = search([](Planted&) {});
  CHECK(!gains.tune.empty());
  CHECK((gains.workloads[0].dropped.empty() && gains.workloads[1].dropped.empty()));
  CHECK(gains.workloads[1].before == gains.workloads[1].after);
  const auto slower = search([](Planted& machine) { machine.whole_extra = 0.5; });
  CHECK(slower.tune.empty());
  CHECK_THAT(slower.workloads[0].dropped, Contains("does not gain"));
  CHECK(slower.workloads[0].before == slower.workloads[0].after);
  // A first measurement on a cold card is no reference.
  const auto cold = search([](Planted& machine) { machine.whole_extra = 0.5, machine.cold = 5; });
  CHECK(cold.tune.empty());
  CHECK(cold.workloads[0].before == Approx(1.4));
  const auto wrong = search([](Planted& machine) { machine.last_logit = 4; });
  CHECK(wrong.tune.empty());
  CHECK_THAT(wrong.workloads[0].dropped, Contains("logits are others"));
  const auto hangs = search([](Planted& machine) { machine.failing_whole = true; });
  CHECK(hangs.tune.empty());
  CHECK_THAT(hangs.workloads[0].dropped, Contains("it hangs"));
}

TEST_CASE("tune: matmuls that hardly matter or share a launch are left alone; a model that does not run is an error") {
  Planted machine;
  machine.add(dots(64, 64), bowl);
  machine.add(dots(32, 64), [](const TuneSettings& s) { return 0.001 * bowl(s); });
  auto beside = dots(16, 64);
  beside.beside = true;
  machine.add(beside, bowl);
  const auto result = search_tuning(machine, kCard, {});
  for (const auto& tune : machine.tunes) CHECK_THAT(tune, !Contains("32x64x1") && !Contains("16x64x1"));
  CHECK_THAT(result.tune, Contains("64x64x1:waves=16"));
  Planted broken;
  broken.add(dots(64, 64), [](const TuneSettings&) { return -1.0; });
  CHECK_THROWS_WITH(search_tuning(broken, kCard, {}), Contains("64x64x1 is invalid"));
}

TEST_CASE("tune: kernels' names tell their sites") {
  const auto site = [](const char* kernel) {
    std::string text;
    for (const auto& one : sites_of_kernel(kernel))
      text += one.name() +
              (one.kind == TuneKind::kDots     ? " dots"
               : one.kind == TuneKind::kStrips ? " strips"
                                               : " tiles") +
              (one.experts ? " experts" : "") + (one.beside ? " beside" : "") + ";";
    return text;
  };
  CHECK(site("matmul_q8_0_2048x8192_t1_0123456789abcdef") == "2048x8192x1 dots;");
  CHECK(site("batched_bf16_512x128_t16_0123") == "512x128x16 dots;");
  CHECK(site("tiles_q4_k_4096x4096_t512_0123") == "4096x4096x512 tiles;");
  CHECK(site("tiles_q4_k_4096x4096_t32_0123") == "4096x4096x32 strips;");
  CHECK(site("experts_q4_0_64x2048x1024_t8_0123") == "2048x1024x8 dots experts;");
  CHECK(site("expert_tiles_q4_0_64x2048x1024_t512_0123") == "2048x1024x512 strips experts;");
  CHECK(site("expert_tiles_q4_0_64x2048x1024_t4096_0123") == "2048x1024x4096 tiles experts;");
  CHECK(site("matmul_q4_k_5120x4096_t1_and_matmul_q6_k_1024x4096_t1_0123") ==
        "5120x4096x1 dots beside;1024x4096x1 dots beside;");
  for (const auto* other : {"attention_32x128_t1_01", "arrange_8x64_t1_01", "tile_rows_64x64_t512_01", "matmul_q8_0_t1",
                            "matmul_q8_0_2048x_t1_0", "matmul_q8_0_2048x8192_tx_0", ""})
    CHECK(site(other).empty());
}

TEST_CASE("tune: the timing of repetitions is their median and its noise") {
  const auto timing = timing_of({5, 1, 2, 3, 2.5});
  CHECK(timing.median == 2.5);
  CHECK(timing.noise == 0.5);
  CHECK(timing_of({}).median == 0);
}

}  // namespace forge::tools
