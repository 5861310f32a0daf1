// The measuring side of forge-bench --tune.

#include <algorithm>
#include <array>
#include <utility>

#include "session/sequences.h"
#include "support/error.h"
#include "support/os/interrupt.h"
#include "tools/bench/tune.h"

namespace forge::tools {
namespace {

constexpr int kRepetitions = 3, kWholeRepetitions = 5;
constexpr std::int64_t kCheckedSteps = 3;  ///< decode steps of which the last one's logits are compared

std::int64_t most(std::span<const BenchCase> workloads, std::int64_t BenchCase::* number) {
  std::int64_t most = 1;
  for (const auto& what : workloads) most = std::max(most, what.*number);
  return most;
}

/// Sequences for all workloads on an executor, and how to run one of them.
class Workloads {
 public:
  Workloads(runtime::Executor& executor, std::span<const BenchCase> workloads)
      : sequences_(executor, tune_context(workloads), most_sequences(workloads)),
        ids_(varied_tokens(std::max(most(workloads, &BenchCase::prompt), most(workloads, &BenchCase::predict)),
                           executor.vocab())),
        samplers_(sequences_.count(), runtime::Sampler(executor.vocab(), {})) {}

  void run(const BenchCase& what) {
    if (what.prompt > 0)
      (void)sequences_.prefill(0, std::span(ids_).first(static_cast<std::size_t>(what.prompt)));
    else
      generate_tokens(sequences_, what.predict, ids_, std::span(samplers_).first(static_cast<std::size_t>(what.batch)));
    clear();
  }

  /// Logits after fixed tokens.
  std::vector<float> logits(const BenchCase& what) {
    std::span<const float> rows;
    if (what.prompt > 0) rows = sequences_.prefill(0, std::span(ids_).first(static_cast<std::size_t>(what.prompt)));
    for (std::int64_t step = 0; what.prompt == 0 && step < kCheckedSteps; ++step) {
      std::vector<std::int32_t> next;
      for (std::int64_t s = 0; s < what.batch; ++s)
        next.push_back(ids_[static_cast<std::size_t>(step + s) % ids_.size()]);
      rows = sequences_.decode(next);
    }
    std::vector<float> out(rows.begin(), rows.end());
    clear();
    return out;
  }

 private:
  void clear() {
    for (std::size_t s = 0; s < sequences_.count(); ++s) sequences_.trim(s, 0);
    check_interrupt();
  }

  session::Sequences sequences_;
  std::vector<std::int32_t> ids_;
  std::vector<runtime::Sampler> samplers_;
};

/// Adds what the steps of one repetition took to the sites: seconds[site] gets one value more.
void add_sites(const std::vector<runtime::StepProfile>& before, const std::vector<runtime::StepProfile>& now,
               TuneProfile& sites, std::map<std::string, std::vector<double>>& seconds) {
  std::map<std::string, double> took;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i].calls == before[i].calls) continue;
    for (auto& site : sites_of_kernel(now[i].kernel)) {
      const auto name = site.name();
      auto& kept = sites.try_emplace(name, std::move(site)).first->second;
      const auto kernel = std::string(now[i].kernel) + "\n";
      kept.beside = kept.beside || kernel.contains("_and_");
      if (!kept.kernels.contains(kernel)) kept.kernels += kernel;
      took[name] += static_cast<double>(now[i].nanoseconds - before[i].nanoseconds) * 1e-9;
    }
  }
  for (const auto& [name, value] : took) seconds[name].push_back(value);
}

/// Runs `body`; an Error of what it opens or runs becomes its text. Errors: kInternal.
template <class Body>
auto usable(Body&& body) -> std::expected<decltype(body()), std::string> {
  try {
    return body();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInternal) throw;
    return std::unexpected(strip_error_code(error.line()));
  }
}

}  // namespace

std::int64_t tune_context(std::span<const BenchCase> workloads) {
  return context_for(
      std::max({most(workloads, &BenchCase::prompt), most(workloads, &BenchCase::predict), kCheckedSteps}));
}

std::int64_t most_sequences(std::span<const BenchCase> workloads) {
  return most(workloads, &BenchCase::batch);
}

std::vector<BenchCase> tune_workloads(const BenchRequest& request) {
  constexpr std::int64_t kSteps = 32;
  std::vector<BenchCase> out;
  for (const auto batch : request.batch) out.push_back({.predict = kSteps, .batch = batch});
  for (const auto prompt : request.prompt)
    if (prompt > 0) out.push_back({.prompt = prompt});
  return out;
}

std::expected<TuneProfile, std::string> ExecutorMeasurer::profile(const std::string& tune) {
  return usable([&] {
    const auto executor = open_(tune, true);
    Workloads workloads(*executor, workloads_);
    TuneProfile sites;
    for (std::size_t w = 0; w < workloads_.size(); ++w) {
      TuneProfile here;
      std::map<std::string, std::vector<double>> seconds;
      workloads.run(workloads_[w]);  // a warm-up
      for (int r = 0; r < kRepetitions; ++r) {
        const auto before = executor->profile();
        workloads.run(workloads_[w]);
        add_sites(before, executor->profile(), here, seconds);
      }
      for (auto& [name, site] : here) {
        site.time = timing_of(std::move(seconds[name]));
        site.workload = w;
        auto& kept = sites.try_emplace(name, site).first->second;
        if (kept.workload != w && kept.time.median < site.time.median) kept = site;
      }
    }
    return sites;
  });
}

std::expected<std::vector<TuneWhole>, std::string> ExecutorMeasurer::whole(const std::string& tune) {
  return usable([&] {
    const auto executor = open_(tune, false);
    Workloads workloads(*executor, workloads_);
    std::vector<TuneWhole> out;
    for (const auto& what : workloads_) {
      workloads.run(what);
      std::vector<double> seconds;
      for (int r = 0; r < kWholeRepetitions; ++r) {
        const auto begin = std::chrono::steady_clock::now();
        workloads.run(what);
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
      }
      out.push_back({.time = timing_of(std::move(seconds)), .logits = workloads.logits(what)});
    }
    return out;
  });
}

double ExecutorMeasurer::seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

}  // namespace forge::tools
