#include "tools/bench/tune_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <ranges>
#include <utility>

#include "codegen/gpu/tile_sizes.h"
#include "support/error.h"
#include "support/nmse.h"
#include "tools/bench/statistics.h"

namespace forge::tools {
namespace {

/// NMSE between logits of two choices, which differ in the order of sums only. Activations that are rounded to int8
/// amplify that to 1e-4, and experts that change places more; a kernel that computes something else gives 0.1 and more.
constexpr double kLogitsNmseMax = 2e-2;

/// True if `one` is faster than `other` by a share of it and by more than the noise of both.
bool is_faster(const Timing& one, const Timing& other, double gain_least) {
  return one.median < other.median * (1 - gain_least) && one.median + one.noise + other.noise < other.median;
}

/// Settings of sites, by their names.
using Assignment = std::map<std::string, TuneSettings>;

std::string tuning_text(const Assignment& sites) {
  std::string text;
  for (const auto& [site, settings] : sites)
    for (const auto& [key, value] : settings)
      text += fmt::format("{}{}:{}={}", text.empty() ? "" : ",", site, key, value);
  return text;
}

/// Settings on top of others.
TuneSettings on_top(TuneSettings base, const TuneSettings& over) {
  for (const auto& [key, value] : over) base[key] = value;
  return base;
}

class Search {
 public:
  Search(TuneMeasurer& measurer, const TuneTarget& target, const TuneLimits& limits,
         const std::function<void(const std::string&)>& told)
      : measurer_(measurer), target_(target), limits_(limits), told_(told) {}

  TuneResult run() {
    tell("measuring the cost model's choices");
    auto profile = measurer_.profile({});
    if (!profile) throw Error(ErrorCode::kDevice, "the model cannot be measured", profile.error());
    ++result_.measurements;
    best_ = std::move(*profile);
    leave_out_small();
    // The first opening may have compiled every kernel: a second one says what others take.
    const double begin = measurer_.seconds();
    before_ = whole({});
    whole_seconds_ = opening_seconds_ = measurer_.seconds() - begin;
    for (std::size_t group = 0; group < kTuneGroups; ++group) try_group(group);
    finish();
    return std::move(result_);
  }

 private:
  void tell(const std::string& text) {
    if (told_) told_(text);
  }

  /// Leaves sites that hardly matter, and those that cannot be timed apart, to the cost model.
  void leave_out_small() {
    std::map<std::size_t, double> of_workload;
    for (const auto& [name, site] : best_) of_workload[site.workload] += site.time.median;
    std::erase_if(best_, [&](const auto& entry) {
      const auto& site = entry.second;
      return site.beside || site.time.median < limits_.share_least * of_workload[site.workload];
    });
  }

  /// True if another profile fits into the time, with the last measurements (of the choice, and once more without).
  bool has_time() {
    constexpr double kMargin = 1.25;
    return measurer_.seconds() + kMargin * (opening_seconds_ + 2 * whole_seconds_) <= limits_.seconds;
  }

  std::vector<TuneWhole> whole(const std::string& tune) {
    auto out = measurer_.whole(tune);
    if (!out) throw Error(ErrorCode::kDevice, "the model cannot be measured", out.error());
    return std::move(*out);
  }

  /// The i-th candidate of each site, as long as there are some.
  void try_group(std::size_t group) {
    std::map<std::string, std::vector<TuneSettings>> candidates;
    std::size_t most = 0;
    for (const auto& [name, site] : best_) {
      candidates[name] = tune_candidates(site, group, target_);
      most = std::max(most, candidates[name].size());
    }
    std::map<std::string, std::pair<TuneSettings, TuneSite>> winners;
    for (std::size_t i = 0; i < most; ++i) {
      Assignment trial;
      for (const auto& [name, list] : candidates)
        if (i < list.size()) trial[name] = list[i];
      tell(fmt::format("measuring choices of {} matmuls: group {} of {}, {} of {}", trial.size(), group + 1,
                       kTuneGroups, i + 1, most));
      measure(trial, winners);
    }
    for (auto& [name, winner] : winners) {
      chosen_[name] = on_top(chosen_[name], winner.first);
      best_[name] = std::move(winner.second);
    }
  }

  /// Times a trial. If it cannot be used, its halves are tried, down to the sites that are to blame.
  void measure(const Assignment& trial, std::map<std::string, std::pair<TuneSettings, TuneSite>>& winners) {
    if (trial.empty()) return;
    if (!has_time()) {
      result_.untried += trial.size();
      return;
    }
    auto all = chosen_;
    for (const auto& [name, settings] : trial) all[name] = on_top(all[name], settings);
    const double begin = measurer_.seconds();
    const auto profile = measurer_.profile(tuning_text(all));
    if (!profile) {
      if (trial.size() == 1) {
        ++result_.invalid;
        return;
      }
      const auto middle = std::next(trial.begin(), static_cast<std::ptrdiff_t>(trial.size() / 2));
      measure(Assignment(trial.begin(), middle), winners);
      measure(Assignment(middle, trial.end()), winners);
      return;
    }
    opening_seconds_ = measurer_.seconds() - begin;
    ++result_.measurements;
    for (const auto& [name, settings] : trial) {
      ++result_.tried;
      const auto found = profile->find(name);
      const auto& now = best_.at(name);
      if (found == profile->end() || found->second.kernels == now.kernels) continue;  // no other code
      const auto winner = winners.find(name);
      const bool best = winner == winners.end() || found->second.time.median < winner->second.second.time.median;
      if (best && is_faster(found->second.time, now.time, limits_.gain_least))
        winners.insert_or_assign(name, std::pair(settings, found->second));
    }
  }

  /// Keeps the choices of workloads that gain as a whole. The cost model's choices are measured at the start and at the
  /// end, and the faster of both counts, so that a card that warms up gives no gain.
  void finish() {
    Assignment kept = chosen_;
    std::erase_if(kept, [](const auto& entry) { return entry.second.empty(); });
    result_.workloads.assign(before_.size(), {});
    for (std::size_t w = 0; w < before_.size(); ++w)
      result_.workloads[w].before = result_.workloads[w].after = before_[w].time.median;
    if (kept.empty()) return;
    tell("measuring the choice as a whole");
    const auto after = measurer_.whole(tuning_text(kept));
    const auto again = whole({});
    for (std::size_t w = 0; w < before_.size(); ++w) {
      auto& workload = result_.workloads[w];
      const auto& reference = again[w].time.median < before_[w].time.median ? again[w] : before_[w];
      workload.before = workload.after = reference.time.median;
      const auto is_here = [&](const auto& entry) { return best_.at(entry.first).workload == w; };
      if (std::ranges::none_of(kept, is_here)) continue;
      if (!after)
        workload.dropped = "it cannot be used: " + after.error();
      else if (nmse((*after)[w].logits, reference.logits) > kLogitsNmseMax)
        workload.dropped = "the model's logits are others";
      else if (!is_faster((*after)[w].time, reference.time, limits_.whole_least))
        workload.dropped = "the workload as a whole does not gain";
      if (workload.dropped.empty())
        workload.after = (*after)[w].time.median;
      else
        std::erase_if(kept, is_here);
    }
    result_.tune = tuning_text(kept);
  }

  TuneMeasurer& measurer_;
  const TuneTarget& target_;
  const TuneLimits& limits_;
  const std::function<void(const std::string&)>& told_;
  TuneResult result_;
  TuneProfile best_;   ///< the sites with what their choice takes
  Assignment chosen_;  ///< where it is not the cost model's
  std::vector<TuneWhole> before_;
  double opening_seconds_ = 0, whole_seconds_ = 0;
};

}  // namespace

Timing timing_of(std::vector<double> seconds) {
  const double median = summary_of(seconds).median;
  for (auto& value : seconds) value = std::abs(value - median);
  return {.median = median, .noise = summary_of(seconds).median};
}

std::string TuneSite::name() const {
  return fmt::format("{}x{}x{}", rows, k, tokens);
}

namespace {

/// "4096x14336" or, with experts, "64x4096x14336", and "t32": a site without its kind; nothing for other texts.
std::optional<TuneSite> site_of_texts(std::string_view shape, std::string_view tokens, std::int64_t& experts) {
  std::vector<std::int64_t> numbers;
  const auto take = [&](std::string_view text) {
    std::int64_t value = 0;
    const auto [stop, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || failed != std::errc() || stop != text.data() + text.size() || value < 1) return false;
    numbers.push_back(value);
    return true;
  };
  for (const auto part : std::views::split(shape, 'x'))
    if (!take({part.begin(), part.end()})) return std::nullopt;
  if (numbers.size() < 2 || numbers.size() > 3 || !tokens.starts_with('t') || !take(tokens.substr(1)))
    return std::nullopt;
  experts = numbers.size() == 4 ? numbers[0] : 1;
  const auto last = numbers.size() - 1;
  return TuneSite{
      .rows = numbers[last - 2], .k = numbers[last - 1], .tokens = numbers[last], .experts = numbers.size() == 4};
}

}  // namespace

// choose_gpu.cc names kernels: what multiplies, the weights' type, the shape, t and the rows of results, a hash.
std::vector<TuneSite> sites_of_kernel(std::string_view kernel) {
  constexpr std::string_view kBetween = "_and_";
  if (const auto at = kernel.find(kBetween); at != std::string_view::npos) {
    auto out = sites_of_kernel(kernel.substr(0, at));
    std::ranges::copy(sites_of_kernel(kernel.substr(at + kBetween.size())), std::back_inserter(out));
    for (auto& site : out) site.beside = true;
    return out;
  }
  constexpr std::string_view kDots[] = {"matmul_", "batched_", "experts_"},
                             kTiles[] = {"tiles_", "batched_tiles_", "expert_tiles_"};
  const auto begins = [&](std::string_view prefix) { return kernel.starts_with(prefix); };
  const bool tiles = std::ranges::any_of(kTiles, begins);
  if (!tiles && std::ranges::none_of(kDots, begins)) return {};
  std::string_view before;
  for (const auto part : std::views::split(kernel, '_')) {
    const std::string_view text(part.begin(), part.end());
    std::int64_t experts = 1;
    if (auto site = site_of_texts(before, text, experts)) {
      // As choose_tiles decides; a wrong guess gives candidates that cannot be used.
      const bool few = site->tokens / experts <= (experts > 1 ? codegen::kStripsSlotsMost : codegen::kStripsTokensMost);
      site->kind = !tiles ? TuneKind::kDots : few ? TuneKind::kStrips : TuneKind::kTiles;
      return {*site};
    }
    before = text;
  }
  return {};
}

std::vector<TuneSettings> tune_candidates(const TuneSite& site, std::size_t group, const TuneTarget& target) {
  std::vector<TuneSettings> out;
  const auto all = [&](const char* key, std::initializer_list<std::int64_t> values) {
    for (const auto value : values) out.push_back({{key, value}});
  };
  const auto parts_of_k = [&](std::initializer_list<std::int64_t> values, std::int64_t step) {
    for (const auto value : values)
      if (!site.experts && (value == 1 || (site.k % (value * step) == 0 && site.k / value >= 512)))
        out.push_back({{"k_splits", value}});
  };
  switch (site.kind) {
    case TuneKind::kDots:
      if (group == 0)
        // Blocks of 128 to 512 threads. Waves share rows only where a step has few tokens.
        for (const std::int64_t threads : {128, 256, 512})
          for (const std::int64_t split : {1, 2, 4})
            if (threads / target.wave % split == 0 && (split == 1 || site.tokens <= 2))
              out.push_back({{"waves", threads / target.wave}, {"split", split}});
      if (group == 1) all("units", {1, 2, 4, 8});
      if (group == 2) all("rows", {1, 2, 4});
      break;
    case TuneKind::kStrips:
      if (group == 0)
        for (const auto& [rows, waves] : {std::pair<std::int64_t, std::int64_t>{64, 4}, {128, 4}, {128, 8}, {64, 2}})
          out.push_back({{"block_rows", rows}, {"waves_down", waves}});
      if (group == 1) parts_of_k({1, 2, 4, 8}, 128);
      if (group == 2) all("ahead", {1, 2, 3});
      if (group == 3) all("stages", {2, 3});
      if (group == 4 && target.mma) all("min_blocks", {0, 2, 4});
      break;
    case TuneKind::kTiles:
      if (group == 0)
        for (const auto& [rows, tokens] :
             {std::pair<std::int64_t, std::int64_t>{128, 256}, {128, 128}, {128, 64}, {64, 128}, {64, 64}, {256, 128}})
          if (rows <= site.rows && tokens <= site.tokens && (target.mma || rows * tokens <= 128 * 128))
            out.push_back({{"block_rows", rows}, {"block_tokens", tokens}});
      if (group == 1) parts_of_k({1, 2, 4}, 64);
      if (group == 2)
        for (const auto& [down, across] : {std::pair<std::int64_t, std::int64_t>{2, 4}, {4, 2}, {2, 2}, {4, 4}})
          out.push_back({{"waves_down", down}, {"waves_across", across}});
      if (group == 3 && target.copies)
        for (const auto& [slabs, stages] : {std::pair<std::int64_t, std::int64_t>{1, 3}, {1, 4}, {2, 2}, {2, 3}})
          if (site.k % (slabs * 32) == 0) out.push_back({{"slabs", slabs}, {"stages", stages}});
      if (group == 4 && target.mma) all("min_blocks", {0, 1, 2});
      break;
  }
  return out;
}

TuneResult search_tuning(TuneMeasurer& measurer, const TuneTarget& target, const TuneLimits& limits,
                         const std::function<void(const std::string&)>& told) {
  return Search(measurer, target, limits, told).run();
}

}  // namespace forge::tools
