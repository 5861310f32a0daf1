#pragma once
// forge-bench --tune: measures kernel choices on a card for a model, and stores the best ones in the cache, where later
// compilations for the card find them (session/tuned/tuned_choices.h).

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/executor.h"
#include "support/os/console.h"
#include "tools/bench/bench.h"
#include "tools/bench/tune_search.h"
#include "tools/cli/records.h"

namespace forge::tools {

/// Opens the model with a tuning; `profile`: as ExecutorOptions. Errors: those of Session.
using OpenForTuning = std::function<std::shared_ptr<runtime::Executor>(const std::string& tune, bool profile)>;

/// Times workloads on an executor. An Error while a tuning is opened or run makes it one that cannot be used.
class ExecutorMeasurer final : public TuneMeasurer {
 public:
  /// workloads: prefill in one sequence, or decode in `batch` of them; each begins with empty sequences.
  /// begin: from when on seconds() counts.
  ExecutorMeasurer(OpenForTuning open, std::vector<BenchCase> workloads,
                   std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now())
      : open_(std::move(open)), workloads_(std::move(workloads)), begin_(begin) {}
  std::expected<TuneProfile, std::string> profile(const std::string& tune) override;
  std::expected<std::vector<TuneWhole>, std::string> whole(const std::string& tune) override;
  [[nodiscard]] double seconds() override;

 private:
  OpenForTuning open_;
  std::vector<BenchCase> workloads_;
  std::chrono::steady_clock::time_point begin_;
};

/// What --tune measures: a prefill of each of request.prompt, decode of each of request.batch.
[[nodiscard]] std::vector<BenchCase> tune_workloads(const BenchRequest& request);

/// The context and the sequences that workloads need.
[[nodiscard]] std::int64_t tune_context(std::span<const BenchCase> workloads);
[[nodiscard]] std::int64_t most_sequences(std::span<const BenchCase> workloads);

/// Tunes the request's model on its device within `seconds`, stores the choice, and writes a table line or a record for
/// each workload. Errors: kUsage for a device that is no GPU, and for a plan; kCache if the choice cannot be stored;
/// kDevice and kMemory if the model does not run at all.
void tune_card(const BenchRequest& request, double seconds, RecordFormat format, Output& output);

}  // namespace forge::tools
