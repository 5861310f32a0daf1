// engine_check: many concurrent requests through the engine, on a GPU or the CPU, with one model. Run by hand; not part
// of tools/check, because the results depend on the machine.
//
//   engine_check MODEL --device cuda:0 [--parallel 32] [--prompt 64] [--tokens 256] [--same 24] [--rate-min R]
//                [--no-prefix-cache]
//
// - same: concurrent greedy requests get the tokens that each gets alone. A device that sums in another order for
//   batches may diverge, but only at a near-tie: at the first difference, the other token's log-probability in the run
//   alone (or the lowest one reported, if it was not reported) is within twice the largest difference that
//   log-probabilities of equal tokens have between the two runs. This noise must itself look like rounding: most of the
//   top tokens of one run are among the top tokens of the other, and the root mean square of their differences is below
//   a quarter of the spread between the first and the last of them
// - rate: tokens per second of all streams together, from the moment when each has its first token; and the CPU cores
//   used
// - churn: requests of all lengths, some with several samples, log-probabilities or penalties, a third of them
//   cancelled; everything that they allocated is returned
// - allocations: no device memory is allocated after the engine is ready, by the driver layer's count, which must have
//   counted the engine's own allocations
// Ends with 'N passed, N failed'.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "runtime/engine/engine.h"
#include "session/session.h"
#include "support/error.h"
#include "support/os/console.h"
#include "tests/device/verdicts.h"
#include "tools/cli/entry.h"
#include "tools/cli/options.h"
#include "tools/run/run_report.h"

namespace {

using namespace forge;
using namespace forge::tools;
using engine::Engine;
using engine::Request;
using engine::RequestHandle;
using Clock = std::chrono::steady_clock;

struct CheckRequest {
  std::string model, device = "auto";
  std::int64_t context = 2048, parallel = 32, prompt = 64, tokens = 256, same = 24, churn = 200, threads = 0;
  float rate_min = 0;
  bool profile = false, no_prefix_cache = false;
};

/// The result of a request.
struct Answer {
  std::vector<std::int32_t> tokens;
  std::vector<std::vector<engine::TokenLogprob>> top_logprobs;  ///< per token, where requested
  std::string error;
};

RequestHandle submit(Engine& engine, Request request) {
  auto handle = engine.submit(std::move(request));
  if (!handle) throw Error(ErrorCode::kInternal, "a request was refused", handle.error().message);
  return *std::move(handle);
}

Answer wait(RequestHandle& handle) {
  Answer answer;
  while (true) {
    const auto event = handle.next(std::chrono::seconds(60));
    if (!event) break;
    if (event->token >= 0) {
      answer.tokens.push_back(event->token);
      answer.top_logprobs.push_back(event->top_logprobs);
    }
    if (!event->error.empty()) answer.error = event->error;
    if (event->finish != engine::FinishReason::kNone && handle.finished()) break;
  }
  return answer;
}

class Check {
 public:
  Check(const CheckRequest& request, Engine& engine, Verdicts& verdicts)
      : request_(request),
        engine_(engine),
        verdicts_(verdicts),
        vocab_(engine.executor().vocab()),
        allocations_(engine.executor().device_allocations()) {}

  void same();
  void rate();
  void churn();
  void end();

 private:
  std::vector<Answer> answers(std::size_t count, std::size_t tokens, bool at_once, bool logprobs);
  [[nodiscard]] Request of(std::size_t number, std::size_t tokens) const {
    std::mt19937 random(static_cast<unsigned>(number) + 1);
    Request request;
    // Prompts of all lengths; those with even numbers share a prefix.
    const std::size_t length =
        static_cast<std::size_t>(request_.prompt) / 2 + number * 7 % static_cast<std::size_t>(request_.prompt);
    for (std::size_t i = 0; i < length; ++i) {
      const auto id = static_cast<std::int32_t>(random() % vocab_);
      request.prompt.push_back(number % 2 == 0 && i < 40 ? static_cast<std::int32_t>((i * 977 + 13) % vocab_) : id);
    }
    request.max_tokens = tokens;
    return request;
  }

  const CheckRequest& request_;
  Engine& engine_;
  Verdicts& verdicts_;
  std::size_t vocab_;
  std::uint64_t allocations_;
};

/// Runs `count` requests, all at once or one after the other.
std::vector<Answer> Check::answers(std::size_t count, std::size_t tokens, bool at_once, bool logprobs) {
  std::vector<Answer> out;
  std::vector<RequestHandle> handles;
  for (std::size_t i = 0; i < count; ++i) {
    auto request = of(i, tokens);
    request.logprobs = logprobs;
    request.top_logprobs = logprobs ? engine::kTopLogprobsMax : 0;
    handles.push_back(submit(engine_, std::move(request)));
    if (!at_once) out.push_back(wait(handles.back()));
  }
  for (std::size_t i = out.size(); i < count; ++i) out.push_back(wait(handles[i]));
  return out;
}

/// How much lower the log-probability of `token` was than the highest one. If it was not reported, the difference to
/// the lowest reported one, a lower bound: with random weights many tokens are about as likely.
double gap_of(const std::vector<engine::TokenLogprob>& top, std::int32_t token) {
  const auto found = std::ranges::find(top, token, &engine::TokenLogprob::token);
  const auto& it = found == top.end() ? top.back() : *found;
  return static_cast<double>(top.front().logprob) - it.logprob;
}

/// Differences between two runs in the log-probabilities of equal tokens after equal prefixes.
struct Noise {
  double largest = 0, squares = 0;
  double spread_squares = 0;       ///< spread from the first to the last reported one, per position
  std::size_t told = 0, both = 0;  ///< tokens reported in one run, and in both
  std::size_t positions = 0;

  void add(const Answer& a, const Answer& b);
  [[nodiscard]] double root() const { return std::sqrt(squares / static_cast<double>(std::max<std::size_t>(both, 1))); }
  [[nodiscard]] double spread() const {
    return std::sqrt(spread_squares / static_cast<double>(std::max<std::size_t>(positions, 1)));
  }
  /// True if the differences can be rounding. Logits of something else would have other top tokens.
  [[nodiscard]] bool is_rounding() const { return positions > 0 && 2 * both > told && root() <= spread() / 4; }
};

void Noise::add(const Answer& a, const Answer& b) {
  for (std::size_t i = 0; i < std::min(a.top_logprobs.size(), b.top_logprobs.size()); ++i) {
    ++positions;
    told += a.top_logprobs[i].size();
    const double between = gap_of(a.top_logprobs[i], runtime::Sampler::kNoToken);
    spread_squares += between * between;
    for (const auto& one : a.top_logprobs[i]) {
      const auto other = std::ranges::find(b.top_logprobs[i], one.token, &engine::TokenLogprob::token);
      if (other == b.top_logprobs[i].end()) continue;
      const double apart = std::abs(static_cast<double>(one.logprob) - other->logprob);
      largest = std::max(largest, apart);
      squares += apart * apart;
      ++both;
    }
    if (a.tokens[i] != b.tokens[i]) break;  // from here on the prefixes differ
  }
}

void Check::same() {
  const auto count = static_cast<std::size_t>(request_.parallel), tokens = static_cast<std::size_t>(request_.same);
  const auto alone = answers(count, tokens, false, true), told = answers(count, tokens, true, true),
             got = answers(count, tokens, true, false);
  Noise noise;
  for (std::size_t i = 0; i < count; ++i) noise.add(alone[i], told[i]);
  double widest = 0;
  std::size_t equal = 0, near = 0, as_told = 0, wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    as_told += got[i].tokens == told[i].tokens;
    if (!got[i].error.empty() || !alone[i].error.empty() || !told[i].error.empty() ||
        got[i].tokens.size() != alone[i].tokens.size()) {
      ++wrong;
      continue;
    }
    const auto [a, b] = std::ranges::mismatch(got[i].tokens, alone[i].tokens);
    if (a == got[i].tokens.end()) {
      ++equal;
      continue;
    }
    const double gap = gap_of(alone[i].top_logprobs[static_cast<std::size_t>(b - alone[i].tokens.begin())], *a);
    widest = std::max(widest, gap);
    ++(gap <= 2 * noise.largest ? near : wrong);
  }
  verdicts_.add(
      wrong == 0,
      fmt::format("same: of {} requests {} get the tokens they get alone, {} part where two are as likely "
                  "({:.3f} apart at most; log-probabilities differ by up to {:.3f}), {} elsewhere; {} get what "
                  "they get at once with log-probabilities",
                  count, equal, near, widest, noise.largest, wrong, as_told));
  verdicts_.add(
      noise.is_rounding(),
      fmt::format("rounding: {} of {} most likely tokens alone are so at once as well (more than half), their "
                  "log-probabilities differ by {:.4f} in the mean (at most a quarter of {:.3f}, from the first "
                  "to the last of {}), at {} positions",
                  noise.both, noise.told, noise.root(), noise.spread(), engine::kTopLogprobsMax, noise.positions));
}

void Check::rate() {
  const auto count = static_cast<std::size_t>(request_.parallel), tokens = static_cast<std::size_t>(request_.tokens);
  const auto before = engine_.status().metrics;
  const auto submitted = Clock::now();
  std::vector<RequestHandle> handles;
  for (std::size_t i = 0; i < count; ++i) handles.push_back(submit(engine_, of(1000 + i, tokens)));
  std::size_t got = 0;
  for (auto& handle : handles)
    if (handle.next(std::chrono::seconds(60))) ++got;
  const auto begun = Clock::now();
  const double cpu = cpu_seconds(), to_first = std::chrono::duration<double>(begun - submitted).count();
  const auto at_first = engine_.status().metrics;
  for (auto& handle : handles) got += wait(handle).tokens.size();
  const double seconds = seconds_since(begun), share = (cpu_seconds() - cpu) / seconds;
  const auto after = engine_.status().metrics;
  const auto steps = after.steps - at_first.steps;
  const double decoded = static_cast<double>(after.generated_tokens - at_first.generated_tokens) / seconds;
  verdicts_.add(got == count * tokens && decoded >= request_.rate_min,
                fmt::format("rate: {:.0f} tokens/s of {} streams (at least {:.0f}), {:.3f} ms a step; {} steps, {} of "
                            "them ahead; all first tokens after {:.1f} ms; {:.0f} tokens/s with prompts; host {:.1f} % "
                            "of a core; {} of {} tokens",
                            decoded, count, request_.rate_min,
                            1e3 * seconds / static_cast<double>(std::max<std::uint64_t>(steps, 1)),
                            after.steps - before.steps, after.steps_ahead - before.steps_ahead, 1e3 * to_first,
                            static_cast<double>(got) / seconds_since(submitted), 100 * share, got, count * tokens));
}

void Check::churn() {
  std::mt19937 random(7);
  const auto total = static_cast<std::size_t>(request_.churn);
  const auto before = engine_.status().metrics;
  const auto begin = Clock::now();
  std::vector<RequestHandle> open;
  std::size_t submitted = 0, failed = 0;
  while (submitted < total || !open.empty()) {
    if (submitted < total && open.size() < static_cast<std::size_t>(2 * request_.parallel)) {
      auto request = of(2000 + submitted, 4 + random() % 60);
      if (submitted % 5 == 1) request.sampling = {.temperature = 0.8F, .top_k = 40, .top_p = 0.95F, .seed = submitted};
      if (submitted % 11 == 2) request.sampling.repeat_penalty = 1.1F;
      if (submitted % 13 == 3) request.logprobs = true;
      if (submitted % 17 == 4) request.samples = 3;
      open.push_back(submit(engine_, std::move(request)));
      ++submitted;
      continue;
    }
    const auto at = static_cast<std::ptrdiff_t>(random() % open.size());
    if (random() % 3 != 0) failed += !wait(open[static_cast<std::size_t>(at)]).error.empty();
    open.erase(open.begin() + at);  // for a third of the requests the client disconnects
  }
  for (int i = 0; i < 2000 && engine_.status().open > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto status = engine_.status();
  const auto& after = status.metrics;
  verdicts_.add(
      failed == 0 && status.open == 0 && after.kv_blocks_free == after.kv_blocks,
      fmt::format("churn: {} requests in {:.2f} s, {} failed, {} left open, {} of {} blocks free; {:.0f} "
                  "tokens/s; {} steps, {} ahead, {} preemptions, {} reused prompt tokens",
                  total, seconds_since(begin), failed, status.open, after.kv_blocks_free, after.kv_blocks,
                  static_cast<double>(after.generated_tokens - before.generated_tokens) / seconds_since(begin),
                  after.steps - before.steps, after.steps_ahead - before.steps_ahead, after.preemptions,
                  after.prefix_hits - before.prefix_hits));
}

void Check::end() {
  const auto now = engine_.executor().device_allocations();
  const bool counts = now > 0 || engine_.executor().device_name() == "CPU";  // the CPU has no driver that could count
  verdicts_.add(
      counts && now == allocations_,
      fmt::format("allocations of device memory since the engine was ready: {} (of {})", now - allocations_, now));
}

int check(int argc, char** argv) {
  CheckRequest request;
  Options options("engine_check", "Runs many requests at once through the engine, and each alone.");
  options.positional("MODEL", request.model, "MODEL.gguf")
      .text("--device", request.device, "NAME", "auto, cpu, hip:N, cuda:N; default auto")
      .integer("--context", request.context, 64, forge::session::kContextMax, "positions of a sequence; default 2048")
      .integer("--parallel", request.parallel, 1, forge::session::kSequencesMax, "requests at once; default 32")
      .integer("--prompt", request.prompt, 2, forge::session::kContextMax,
               "tokens of a prompt, half to three halves; default 64")
      .integer("--tokens", request.tokens, 2, forge::session::kContextMax,
               "that each stream of the rate gets; default 256")
      .integer("--same", request.same, 2, forge::session::kContextMax, "tokens that are compared; default 24")
      .integer("--churn", request.churn, 0, 1 << 20, "requests that come and go; default 200")
      .integer("-t,--threads", request.threads, 0, 1024, "default: what this process may use")
      .real("--rate-min", request.rate_min, 0, 1e9F, "bound of the rate, tokens/s")
      .flag("--no-prefix-cache", request.no_prefix_cache,
            "compute each prompt anew: without it most of a prompt is read alone and found by those at once")
      .flag("--profile", request.profile, "time each kind of step; a table on stderr, and slower results");
  if (!options.parse(argc, argv)) return 0;
  forge::session::Stages stages;
  session::Session::Options session_options;
  session_options.model.path = request.model;
  session_options.model.context = request.context;
  session_options.model.sequences = request.parallel;
  session_options.device = request.device;
  session_options.threads = request.threads;
  session_options.profile = request.profile;
  session::Session session(session_options, stages);
  note_device(session);
  Output output;
  Verdicts verdicts(output);
  {
    Engine engine(session.take_executor(), {.reuse_prefixes = !request.no_prefix_cache});
    Check checks(request, engine, verdicts);
    checks.same();
    checks.rate();
    if (request.churn > 0) checks.churn();
    checks.end();
    if (request.profile) fmt::print(stderr, "{}", profile_text(engine.executor(), memory_rate(engine.executor())));
  }
  return verdicts.end();
}

}  // namespace

int main(int argc, char** argv) {
  return run_tool([&] { return check(argc, argv); });
}
