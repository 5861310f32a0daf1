#include "runtime/engine/engine_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/engine/prepared.h"
#include "runtime/thread_pool.h"
#include "support/error.h"

namespace forge::engine {

namespace {

/// Returns the effective value of an option: `most` if it is 0. Errors: kUsage above `most`.
std::size_t option_within(std::size_t wanted, std::size_t most, const char* what) {
  if (wanted > most)
    throw Error(ErrorCode::kUsage, fmt::format("{} {} are requested", wanted, what),
                fmt::format("the plan was compiled for {}", most), "request fewer, or compile the model for more");
  return wanted == 0 ? most : wanted;
}

std::expected<Request, Refusal> refused(std::string why, std::size_t asked = 0, std::size_t limit = 0) {
  return std::unexpected(
      Refusal{.kind = RefusalKind::kInvalid, .asked = asked, .limit = limit, .message = std::move(why)});
}

RequestSpec spec_of(const Request& request, Time now) {
  return {.prompt = request.prompt,
          .max_tokens = request.max_tokens,
          .samples = request.samples,
          .priority = request.priority,
          .deadline = request.timeout >= kNever - now ? kNever : now + request.timeout,
          .wants = request.wants,
          .extra_hash = request.extra_hash};
}

/// Validates the request's own numbers and fills in defaults.
std::expected<Request, Refusal> checked(Request request, std::size_t vocab, std::size_t context) {
  for (const auto* ids : {&request.prompt, &request.stop_tokens})
    for (const auto id : *ids)
      if (id < 0 || static_cast<std::size_t>(id) >= vocab)
        return refused(fmt::format("token {} is not in the vocabulary of {}", id, vocab));
  if (request.top_logprobs > kTopLogprobsMax)
    return refused(fmt::format("{} log probabilities per token are requested, at most {} are possible",
                               request.top_logprobs, kTopLogprobsMax),
                   request.top_logprobs, kTopLogprobsMax);
  if (request.wants != OutputKind::kTokens) return request;
  if (request.max_tokens == 0 && request.prompt.size() < context) request.max_tokens = context - request.prompt.size();
  if (request.max_tokens == 0) request.max_tokens = 1;  // too long anyway; check() then refuses it for its length
  return request;
}

}  // namespace

void EngineCore::PreparedDeleter::operator()(Prepared* prepared) const {
  delete prepared;
}

EngineCore::EngineCore(runtime::Executor& executor, const EngineOptions& options, Clock clock, StepWatch* watch)
    : executor_(executor),
      options_(options),
      clock_(std::move(clock)),
      watch_(watch),
      batch_limits_(BatchLimits::of(executor)),
      pool_({.blocks = static_cast<std::size_t>(executor.kv_blocks()),
             .block_tokens = static_cast<std::size_t>(executor.kv_block_tokens()),
             .sequences_max = option_within(options.sequences, batch_limits_.sequences, "sequences at once"),
             .tokens_max = batch_limits_.context,
             .windows = executor.kv_windows(),
             .min_partial_tokens = std::max<std::size_t>(static_cast<std::size_t>(executor.kv_block_tokens()) / 8, 1),
             .states = {.slots = executor.state_slots(), .snapshots = options.state_snapshots}}),
      scheduler_(pool_,
                 {.step_tokens = option_within(options.step_tokens, batch_limits_.tokens, "tokens per step"),
                  .prompt_tokens = options.prompt_tokens > 0 ? options.prompt_tokens
                                                             : static_cast<std::size_t>(executor.facts().prompt_tokens),
                  .long_prompt = executor.long_prompt(),
                  .sequences = pool_.limits().sequences_max,
                  .queue = options.queue,
                  .aging = options.aging,
                  .reuse_prefixes = options.reuse_prefixes && !batch_limits_.whole_prompts,
                  .state_interval = options.state_interval,
                  .turn_ends = options.turn_ends,
                  .whole_prompts = batch_limits_.whole_prompts}),
      batch_(batch_limits_),
      scratch_(executor.vocab()),
      device_(executor.decode_loop()),
      masks_beside_steps_(device_ != nullptr || executor.threads() < runtime::ThreadPool::default_threads()) {
  samplers_.reserve(batch_limits_.sequences);
  for (auto* rows : {&mask_rows_, &row_masks_}) rows->reserve(batch_limits_.sequences);
  mask_keys_.reserve(batch_limits_.sequences);
  forced_.reserve(batch_limits_.sequences);
  masks_.reserve(batch_limits_.sequences);
}

EngineCore::~EngineCore() {
  static_cast<void>(drop_loop());
}

/// Runs on client threads: const, touches nothing that a step changes.
std::expected<EngineCore::PreparedPtr, Refusal> EngineCore::prepare(Request request) const {
  auto good = checked(std::move(request), executor_.vocab(), batch_limits_.context);
  if (!good) return std::unexpected(std::move(good.error()));
  if (good->wants != OutputKind::kTokens && executor_.hidden_width() == 0)
    return std::unexpected(Refusal{.message = "the plan was compiled without hidden rows, which embeddings need"});
  if (good->wants == OutputKind::kTokens && encodes())
    return std::unexpected(Refusal{.message = "the model is an encoder, which generates no text"});
  if (auto refusal = scheduler_.check(spec_of(*good, Time{}))) return std::unexpected(*std::move(refusal));
  PreparedPtr prepared(new Prepared{.request = *std::move(good)});
  auto& r = prepared->request;
  try {
    auto params = r.sampling;
    for (std::size_t s = 0; s < r.samples; ++s) {
      // Sample s draws like a request of its own with seed + s.
      params.seed = r.sampling.seed + s;
      auto& sampler = prepared->samples.emplace_back(runtime::Sampler(executor_.vocab(), params)).sampler;
      for (const auto id : r.prompt) sampler.accept(id);
      if (!r.constraint) continue;
      auto& constrained = prepared->samples.back().constrained = std::make_shared<runtime::Constrained>();
      constrained->constraint = r.constraint();
      constrained->vocab = executor_.vocab();
    }
  } catch (const Error& error) {
    return std::unexpected(Refusal{.kind = RefusalKind::kInvalid, .asked = 0, .limit = 0, .message = error.line()});
  } catch (const std::exception& error) {
    return std::unexpected(
        Refusal{.kind = RefusalKind::kInternal,
                .message = fmt::format("error[internal]: preparing a request: {}", printable(error.what()))});
  }
  prepared->stream = std::make_shared<Stream>(r.samples, std::move(r.on_event));
  prepared->usage.prompt_tokens = r.prompt.size();
  return prepared;
}

const std::shared_ptr<Stream>& EngineCore::stream_of(const PreparedPtr& prepared) {
  return prepared->stream;
}

std::expected<RequestId, Refusal> EngineCore::submit(PreparedPtr prepared) {
  const auto now = clock_();
  auto id = scheduler_.submit(spec_of(prepared->request, now), now);
  if (!id) {
    ++metrics_.refused;
    return id;
  }
  ++metrics_.submitted;
  metrics_.prompt_tokens += prepared->usage.prompt_tokens;
  prepared->id = *id;
  prepared->usage.submitted = now;
  // A request that could be admitted now ends the decode loop, so that the next step is planned with it.
  if (scheduler_.could_admit(now)) ahead_.ending = true;
  const std::lock_guard lock(streams_mutex_);
  requests_.emplace(*id, std::move(prepared));
  return id;
}

/// The single way in which a request ends early. The scheduler releases its KV blocks, also while its step is in
/// flight.
bool EngineCore::end(RequestId request, FinishReason reason, const std::string& error) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) return false;
  scheduler_.cancel(request);
  ahead_.ending = true;
  auto& open = *found->second;
  metrics_.finished[static_cast<std::size_t>(reason)] += open.samples.size() - open.ended;
  open.usage.finished = clock_();
  open.stream->set_usage(open.usage);
  open.stream->end(reason, error);
  close(open);
  return true;
}

void EngineCore::end_all(FinishReason reason, const std::string& error) {
  while (!requests_.empty()) end(requests_.begin()->first, reason, error);
}

void EngineCore::end_abandoned() {
  std::vector<RequestId> gone;
  for (const auto& [id, open] : requests_)
    if (open->stream->abandoned()) gone.push_back(id);
  for (const auto id : gone) end(id, FinishReason::kCancelled);
}

void EngineCore::end_streams(FinishReason reason, const std::string& error) {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    const std::lock_guard lock(streams_mutex_);
    for (const auto& [id, open] : requests_) streams.push_back(open->stream);
  }
  for (const auto& stream : streams) stream->end(reason, error);  // without the lock: put() calls the client's on_event
}

void EngineCore::end_expired() {
  const auto expired = scheduler_.expired(clock_());
  for (const auto id : std::vector(expired.begin(), expired.end())) end(id, FinishReason::kDeadline);
}

/// Removes a request whose samples have all ended.
void EngineCore::close(Prepared& open) {
  metrics_.end_to_end += open.usage.finished - open.usage.submitted;
  const std::lock_guard lock(streams_mutex_);
  requests_.erase(open.id);
}

/// One step: either the next one of a running decode loop, or a newly planned one, which may start a loop.
bool EngineCore::step() {
  end_expired();
  if (ahead_.plan != nullptr) return step_ahead();
  const auto& plan = scheduler_.plan(clock_());
  if (plan.parts.empty()) return false;
  const auto begin = clock_();
  for (const auto& part : plan.parts)
    if (auto& open = *requests_.at(part.key.request); !std::exchange(open.begun, true)) {
      open.usage.started = begin;
      metrics_.queued += begin - open.usage.submitted;
    }
  const bool on_device = choose_samplers(plan);
  if (on_device && try_run_ahead(plan)) return step_ahead();
  StepRows rows;
  find_masks(plan);
  if (masks_beside_steps_) begin_masks();
  const bool ran = run([&] {
    stop_loop();
    const auto batch = batch_.build(plan);
    if (on_device) {
      const auto chosen = device_->forward_and_sample(batch, samplers_, masks_of_step());
      rows = {.tokens = chosen.tokens, .logits = chosen.logits};
    } else {
      rows = {.tokens = {}, .logits = executor_.forward(batch)};
    }
  });
  if (ran && !masks_beside_steps_) begin_masks();
  end_masks();
  if (!ran) return true;
  metrics_.fed_tokens += plan.tokens;
  watch_tokens([&] {
    finish_step(rows, plan.hidden);
    append_forced();
  });
  return true;
}

/// Fills samplers_ [rows of the step]: the sampler if the device samples the row, nullptr if the host needs its logits
/// (log probabilities, penalties, several samples from one row). Returns true if the device samples any row.
bool EngineCore::choose_samplers(const StepPlan& plan) {
  samplers_.clear();
  if (device_ == nullptr || plan.hidden) return false;
  bool any = false;
  for (const auto& part : plan.parts) {
    if (part.rows == 0) continue;
    const auto& open = *requests_.at(part.key.request);
    const auto& sampler = open.samples[part.key.sample].sampler;
    const bool on_device = part.samples == 1 && !open.request.logprobs && device_->can_sample(sampler.params());
    samplers_.push_back(on_device ? &sampler : nullptr);
    any = any || on_device;
  }
  return any;
}

/// Distributes a step's results to the sequences that the scheduler names.
void EngineCore::finish_step(const StepRows& rows, bool hidden) {
  ++metrics_.steps;
  failures_in_row_ = 0;
  ++steps_since_failure_;
  const std::size_t width = executor_.hidden_width();
  for (const auto& given : scheduler_.complete())
    hidden ? add_hidden_rows(given, rows.logits.subspan(given.row * width, given.count * width))
           : handle_token(given, rows);
}

/// Runs `call` under the watchdog and with error handling. Returns false if the step failed or was given up; its
/// requests have then been retried or ended.
bool EngineCore::guard(void (*call)(void*), void* body) {
  const auto begin = clock_();
  bool recoverable = false;
  std::string line;
  stuck_before_masks_ = false;
  if (watch_ != nullptr) watch_->begin(StepWatch::Part::kDevice);
  try {
    call(body);
  } catch (const runtime::RecoverableError& error) {
    recoverable = true;
    line = error.line();
  } catch (const Error& error) {
    line = error.line();
  } catch (const std::exception& error) {
    line = fmt::format("error[internal]: a step failed: {}", printable(error.what()));
  }
  const bool stuck = (watch_ != nullptr && watch_->end()) || stuck_before_masks_;
  metrics_.in_steps += clock_() - begin;
  if (stuck) {
    failed(false, line);
    end_stuck("error[device]: a step took too long");
    return false;
  }
  if (line.empty()) return true;
  failed(recoverable, line);
  return false;
}

/// Cleans up what the watchdog gave up; it has told the streams already.
void EngineCore::end_stuck(const char* line) {
  ++metrics_.stuck_steps;
  end_all(FinishReason::kError, line);
}

/// After a failed step the KV contents are unknown: the scheduler puts all running sequences back into the queue.
/// Requests of the failed step are retried after a pause of backoff * 2^(retries so far), at most backoff_max, or
/// ended.
void EngineCore::failed(bool recoverable, const std::string& line) {
  const auto now = clock_();
  ++metrics_.failed_steps;
  ever_failed_ = true;
  steps_since_failure_ = 0;
  if (++failures_in_row_ >= options_.failures_unhealthy) unhealthy_until_ = now + options_.probation;
  ahead_ = {};
  static_cast<void>(drop_loop());
  RequestId seen = 0;
  const auto aborted = scheduler_.abort();
  for (const auto& key : std::vector(aborted.begin(), aborted.end())) {
    const auto found = requests_.find(key.request);
    if (found == requests_.end() || std::exchange(seen, key.request) == key.request) continue;
    auto& open = *found->second;
    if (!recoverable || open.attempts >= options_.retries) {
      end(key.request, FinishReason::kError, line);
      continue;
    }
    const auto doublings = std::min<std::size_t>(open.attempts++, 30);
    ++open.usage.retries;
    ++metrics_.retries;
    const auto wait = options_.backoff > options_.backoff_max / (std::int64_t{1} << doublings)
                          ? options_.backoff_max
                          : options_.backoff * (std::int64_t{1} << doublings);
    scheduler_.delay(key.request, now + wait);
  }
}

/// Collects hidden rows for an embedding. Rows are summed in the order of their tokens, so the mean does not depend on
/// how the prompt was cut into steps. A request for the first row ends with it.
void EngineCore::add_hidden_rows(const StepOutput& given, std::span<const float> rows) {
  auto& open = *requests_.at(given.key.request);
  const std::size_t width = executor_.hidden_width();
  if (given.position == 0 || open.request.wants != OutputKind::kMeanRow) open.sum.assign(width, 0);
  for (std::size_t i = 0; i < rows.size(); ++i) open.sum[i % width] += rows[i];
  open.attempts = 0;
  if (!given.last) return;
  open.usage.first_token = clock_();
  open.usage.cached_tokens = scheduler_.reused_tokens(given.key);
  metrics_.cached_tokens += open.usage.cached_tokens;
  const double count = open.request.wants == OutputKind::kMeanRow ? static_cast<double>(open.request.prompt.size()) : 1;
  StreamEvent event{.finish = FinishReason::kStop};
  for (const auto value : open.sum) event.row.push_back(static_cast<float>(value / count));
  end_sample(open, std::move(event));
}

/// Unhealthy: several steps failed in a row, until probation ends. Degraded: a step failed within the last
/// steps_healthy steps.
Health EngineCore::health() const {
  if (failures_in_row_ >= options_.failures_unhealthy && clock_() < unhealthy_until_) return Health::kUnhealthy;
  if (ever_failed_ && steps_since_failure_ < options_.steps_healthy) return Health::kDegraded;
  return Health::kHealthy;
}

EngineMetrics EngineCore::metrics() const {
  auto metrics = metrics_;
  const auto& counts = scheduler_.counts();
  metrics.preemptions = counts.preemptions;
  metrics.prefix_queries = counts.prefix_queries;
  metrics.prefix_hits = counts.prefix_hits;
  metrics.evictions = pool_.evictions();
  metrics.running = scheduler_.running();
  metrics.waiting = scheduler_.waiting();
  metrics.kv_blocks = pool_.limits().blocks;
  metrics.kv_blocks_free = pool_.blocks_free();
  metrics.kv_blocks_idle = pool_.blocks_idle();
  if (const auto* states = pool_.states()) {
    metrics.state_slots = states->limits().slots;
    metrics.state_slots_free = states->slots_free();
    metrics.state_snapshots = states->snapshots();
    metrics.states_kept = states->kept();
    metrics.state_hits = states->hits();
    metrics.state_evictions = states->evictions();
  }
  metrics.device_allocations = executor_.device_allocations();
  return metrics;
}

}  // namespace forge::engine
