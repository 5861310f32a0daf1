#include "tools/bench/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "session/card_rates.h"
#include "support/error.h"
#include "support/os/console.h"
#include "support/os/interrupt.h"
#include "tools/bench/read_rate.h"
#include "tools/bench/roofline.h"
#include "tools/bench/statistics.h"
#include "tools/run/run_report.h"

namespace forge::tools {

std::vector<std::int32_t> varied_tokens(std::int64_t count, std::size_t vocab) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  std::uint64_t state = 0x9E3779B97F4A7C15ULL;
  for (auto& id : ids) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;  // Knuth's linear congruential generator
    id = static_cast<std::int32_t>((state >> 33) % vocab);
  }
  return ids;
}

std::int64_t context_for(std::int64_t tokens) {
  constexpr std::int64_t kStep = 512;
  return (tokens + kStep - 1) / kStep * kStep;
}

void generate_tokens(session::Sequences& sequences, std::int64_t steps, std::span<const std::int32_t> ids,
                     std::span<const runtime::Sampler> samplers) {
  const bool on_device = sequences.can_sample(samplers.size(), samplers.front().params());
  std::vector<std::int32_t> next(samplers.size());
  for (std::int64_t i = 0; i < steps; ++i) {
    check_interrupt();
    if (i == 0 || !on_device)
      for (std::size_t s = 0; s < next.size(); ++s) next[s] = ids[(static_cast<std::size_t>(i) + s) % ids.size()];
    if (on_device) {
      if (i == 0) sequences.begin(next, samplers, steps);
      (void)sequences.next();
    } else {
      (void)sequences.decode(next);
    }
  }
  sequences.end();
}

namespace {

/// Prefills `ids` into each sequence; logits are computed for the last token only.
void feed(session::Sequences& sequences, std::span<const std::int32_t> ids) {
  if (ids.empty()) return;
  for (std::size_t s = 0; s < sequences.count(); ++s) (void)sequences.prefill(s, ids);
}

void measure_once(session::Sequences& sequences, const BenchCase& what, std::span<const std::int32_t> ids,
                  std::span<const runtime::Sampler> samplers) {
  if (what.prompt > 0) {
    feed(sequences, ids.first(static_cast<std::size_t>(what.prompt)));
    return;
  }
  generate_tokens(sequences, what.predict, ids, samplers);
}

/// Adds what the executor's steps took since `before` to `sum`, which is empty at first.
void add_steps(const std::vector<runtime::StepProfile>& before, std::vector<runtime::StepProfile> now,
               std::vector<runtime::StepProfile>& sum) {
  const auto add = [&](auto runtime::StepProfile::* count) {
    for (std::size_t i = 0; i < now.size(); ++i)
      now[i].*count = now[i].*count - before[i].*count + (sum.empty() ? 0 : sum[i].*count);
  };
  add(&runtime::StepProfile::calls);
  add(&runtime::StepProfile::nanoseconds);
  add(&runtime::StepProfile::filled);
  add(&runtime::StepProfile::kv_bytes);
  add(&runtime::StepProfile::kv_flops);
  sum = std::move(now);
}

/// Measures a row: one warm-up run, then `repetitions` timed ones. With `reading`, the read rate is measured after each
/// timed generation; with `roofline`, what each step took.
void measure(session::Sequences& sequences, BenchResult& result, std::int64_t repetitions,
             const runtime::Executor& executor, ReadRate* reading, bool roofline) {
  const auto vocab = executor.vocab();
  const auto& what = result.what;
  const auto ids = varied_tokens(std::max({what.prompt, what.predict, what.depth}), vocab);
  for (std::size_t s = 0; s < sequences.count(); ++s) sequences.trim(s, 0);
  feed(sequences, std::span(ids).first(static_cast<std::size_t>(what.depth)));
  const std::vector<runtime::Sampler> samplers(sequences.count(), runtime::Sampler(vocab, {}));
  for (std::int64_t r = -1; r < repetitions; ++r) {  // r = -1 is the warm-up
    const auto before = roofline ? executor.profile() : std::vector<runtime::StepProfile>();
    const auto begin = std::chrono::steady_clock::now();
    measure_once(sequences, what, ids, samplers);
    const auto took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (r >= 0) result.seconds.push_back(took);
    if (r >= 0 && roofline) add_steps(before, executor.profile(), result.steps);
    for (std::size_t s = 0; s < sequences.count(); ++s)
      if (sequences.trim(s, what.depth) < what.depth)  // sliding windows have released it: prefill again
        (void)sequences.prefill(s, std::span(ids).first(static_cast<std::size_t>(what.depth)));
    if (r >= 0 && what.predict > 0 && reading != nullptr) result.read_rates.push_back(reading->measure());
  }
}

/// Bytes of weights that one decode step of `batch` sequences reads.
std::int64_t decode_weight_bytes(const runtime::Executor& executor, std::int64_t batch) {
  for (const auto& variant : executor.program().variants) {
    const auto& bounds = variant->bounds;
    if (bounds.tokens() < batch || bounds.rows() < batch || bounds.sequences() < batch) continue;
    std::int64_t bytes = 0;
    for (const auto& step : executor.profile())
      if (step.variant == variant->name) bytes += step.weight_bytes;
    return bytes;
  }
  return 0;
}

std::unique_ptr<ReadRate> open_read_rate(session::Session& session) {
  if (!session.executor().facts().on_host)
    throw Error(ErrorCode::kUsage, "--read-rate works on the CPU only, and a GPU runs the model", {},
                "give --device cpu, or --profile for shares of the GPU's bandwidth");
  return std::make_unique<ReadRate>(session.executor().threads());
}

/// Measures a GPU, before its rows, so that what cannot be measured is said at once; nothing on the CPU.
std::optional<session::CardRates> rates_of_card(const session::Session& session) {
  if (!session.gpu()) return std::nullopt;
  progress("measuring the rates of " + printable(session.gpu()->info().name));
  return session::measure_card_rates(*session.gpu(), session.model().program->target);
}

/// The limits that --roofline compares with. card: empty on the CPU, which is measured with each row.
void add_limits(const runtime::Executor& executor, const std::optional<session::CardRates>& card, BenchResult& result) {
  result.memory_rate = card ? card->read : memory_rate(executor).bytes_a_second;
  result.matrix_rate = card ? card->matrix : 0;
  result.memory_bandwidth = executor.memory_bandwidth();
}

/// The context that the rows with this batch size need, rounded up to a multiple of 512, so that different benchmarks
/// share cached plans.
std::int64_t context_needed(const std::vector<BenchCase>& cases, std::int64_t batch) {
  std::int64_t most = 1;
  for (const auto& what : cases)
    if (what.batch == batch) most = std::max(most, what.depth + what.prompt + what.predict);
  return context_for(most);
}

}  // namespace

std::vector<BenchCase> bench_cases(const BenchRequest& request) {
  std::vector<BenchCase> cases;
  for (const auto threads : request.threads)
    for (const auto batch : request.batch)
      for (const auto depth : request.depth) {
        for (const auto prompt : request.prompt)
          if (prompt > 0) cases.push_back({.prompt = prompt, .depth = depth, .batch = batch, .threads = threads});
        for (const auto predict : request.predict)
          if (predict > 0) cases.push_back({.predict = predict, .depth = depth, .batch = batch, .threads = threads});
      }
  return cases;
}

void summarise(BenchResult& result) {
  const auto tokens = static_cast<double>((result.what.prompt + result.what.predict) * result.what.batch);
  result.rates.clear();
  for (const double seconds : result.seconds) result.rates.push_back(tokens / seconds);
  const auto summary = summary_of(result.rates);
  result.rate = summary.mean;
  result.rate_deviation = summary.deviation;
  result.rate_median = summary.median;
}

double BenchResult::read_rate() const {
  return summary_of(read_rates).median;
}

double BenchResult::read_share() const {
  const double steps = rate_median / static_cast<double>(what.batch);
  return read_rates.empty() ? 0 : steps * static_cast<double>(weight_bytes) / read_rate();
}

void run_bench(const BenchRequest& request, const std::function<bool(const BenchResult&)>& done) {
  const auto cases = bench_cases(request);
  std::unique_ptr<session::Session> session;
  std::unique_ptr<session::Sequences> sequences;
  std::unique_ptr<ReadRate> reading;
  std::optional<session::CardRates> card;
  std::int64_t batch = -1, threads = -1;
  session::Stages stages;
  const auto close = [&] {
    if (session) session->trace_end();
    if (session && request.profile) say(profile_text(session->executor(), memory_rate(session->executor())));
    reading.reset();
    sequences.reset();
    session.reset();
  };
  for (const auto& what : cases) {
    if (what.batch != batch || what.threads != threads) {
      close();
      batch = what.batch;
      threads = what.threads;
      const auto context = context_needed(cases, batch);
      session = std::make_unique<session::Session>(
          session::Session::Options{.model = {.path = request.path,
                                              .model = request.model,
                                              .context = context,
                                              .sequences = batch,
                                              .kv_type = request.kv_type,
                                              .attention = request.attention,
                                              .tune = request.tune,
                                              .no_tuned = request.no_tuned,
                                              .deterministic = request.deterministic},
                                    .device = request.device,
                                    .threads = threads,
                                    .profile = request.profile || request.roofline,
                                    .repack_cache = request.repack_cache,
                                    .trace = request.trace},
          stages);
      sequences = std::make_unique<session::Sequences>(session->executor(), context, batch);
      if (request.read_rate) reading = open_read_rate(*session);
      note_device(*session);
      if (request.roofline && !card) card = rates_of_card(*session);
    }
    progress(fmt::format("measuring {} of {} tokens at depth {}", what.prompt > 0 ? "prefill" : "generation",
                         what.prompt + what.predict, what.depth));
    BenchResult result{.what = what};
    result.what.threads = static_cast<std::int64_t>(session->executor().threads());
    measure(*sequences, result, request.repetitions, session->executor(), reading.get(), request.roofline);
    result.weight_bytes = decode_weight_bytes(session->executor(), what.batch);
    result.model_path = request.shown_path.empty() ? session->model().path.native() : request.shown_path;
    result.model_name = session->file().get<std::string>("general.name", {});
    result.target = session->model().program->target;
    result.api = session->executor().facts().api;
    result.on_host = session->executor().facts().on_host;
    result.device = session->executor().device_name();
    result.model_bytes = session->file().bytes();
    for (const auto& tensor : session->file().tensors()) result.parameters += tensor.elems();
    summarise(result);
    if (request.roofline) {
      add_limits(session->executor(), card, result);
      result.kernels = measured_kernels(result, session->executor().program());
    }
    end_progress();
    if (!done(result)) break;
  }
  close();
}

}  // namespace forge::tools
