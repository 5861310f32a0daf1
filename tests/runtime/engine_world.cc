// EngineWorld: applies operations to the engine's core and checks the invariants after each one. See engine_world.h.
#include "tests/runtime/engine_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <stdexcept>
#include <utility>

namespace forge::test {
namespace {

using engine::FinishReason;
using engine::Time;
using std::chrono::milliseconds;

constexpr Time kAging = milliseconds(100);

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

std::string name_of(engine::SequenceKey key) {
  return fmt::format("request {}, sample {}", key.request, key.sample);
}

}  // namespace

std::ostream& operator<<(std::ostream& to, const Op& op) {
  constexpr const char* kNames[] = {"submit", "cancel", "step", "fault", "wait", "abandon"};
  return to << fmt::format("{}({}, {}, {}, {})", kNames[static_cast<std::size_t>(op.kind)], op.a, op.b, op.c, op.d);
}

EngineWorld::EngineWorld(const FakeShape& shape) : shape_(shape), executor_(shape) {
  core_ = std::make_unique<engine::EngineCore>(executor_,
                                               engine::EngineOptions{.prompt_tokens = shape.step_tokens / 2,
                                                                     .queue = 12,
                                                                     .aging = kAging,
                                                                     .state_interval = 2 * shape.block_tokens,
                                                                     .turn_ends = {5},
                                                                     .retries = 2,
                                                                     .backoff = milliseconds(3),
                                                                     .probation = milliseconds(20)},
                                               [this] { return now_; });
}

void EngineWorld::submit(const Op& op) {
  engine::Request request;
  // Two families of prompts that share their first 9 tokens, so that prefixes are found. With max_tokens some exceed
  // the context and must be refused.
  const std::size_t length = 1 + op.a % (shape_.context - 2);
  for (std::size_t i = 0; i < length; ++i)
    request.prompt.push_back(static_cast<std::int32_t>((i < 9 ? 0 : op.b % 2) + i) %
                             static_cast<std::int32_t>(shape_.vocab));
  request.max_tokens = 1 + op.b % 14;
  request.samples = op.c % 5 == 0 ? 1 + op.c % 3 : 1;
  request.priority = static_cast<int>(op.c % 7) - 3;
  request.sampling = {.temperature = op.d % 3 == 0 ? 0.0F : 0.9F,
                      .repeat_penalty = shape_.chooses && op.c % 11 > 0 ? 1.0F : 1.1F,
                      .seed = op.d % 4};
  if (op.d % 7 == 0) {
    constexpr engine::OutputKind kKinds[] = {engine::OutputKind::kMeanRow, engine::OutputKind::kLastRow,
                                             engine::OutputKind::kFirstRow};
    request.wants = kKinds[op.d / 7 % 3];
    request.max_tokens = 0;
    request.samples = 1;
  }
  if (op.d % 11 == 0) request.timeout = milliseconds(op.d % 60);
  Client client{.stream = nullptr,
                .prompt = request.prompt,
                .sampling = request.sampling,
                .max_tokens = request.max_tokens,
                .wants = request.wants,
                .rank = now_ - request.priority * kAging,
                .tokens = std::vector<std::vector<std::int32_t>>(request.samples)};
  auto prepared = core_->prepare(std::move(request));
  if (!prepared) return;
  client.stream = engine::EngineCore::stream_of(*prepared);
  const auto id = core_->submit(*std::move(prepared));
  if (!id) return;
  samples_ += client.tokens.size();
  clients_.emplace(*id, std::move(client));
}

void EngineWorld::apply(const Op& op) {
  const auto any = [&] {
    auto it = clients_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(op.a % clients_.size()));
    return it;
  };
  switch (op.kind) {
    case Op::Kind::kSubmit:
      submit(op);
      break;
    case Op::Kind::kCancel:
      if (clients_.empty()) break;
      if (op.b % 2 == 0) {
        core_->end(any()->first, FinishReason::kCancelled);
      } else {  // the request is cancelled while a step is in flight
        executor_.in_step = [this, id = any()->first] { core_->end(id, FinishReason::kCancelled); };
        step();
        executor_.in_step = nullptr;
      }
      break;
    case Op::Kind::kAbandon:
      if (!clients_.empty()) any()->second.stream->abandon();
      core_->end_abandoned();
      break;
    case Op::Kind::kStep:
      for (std::uint32_t i = 0; i <= op.a % 6; ++i) step();
      break;
    case Op::Kind::kFault:
      executor_.next_fault = static_cast<FakeExecutor::Fault>(op.a % 8 == 0 ? 2 + op.b % 2 : 1);
      break;
    case Op::Kind::kWait:
      now_ += milliseconds(op.b % 4 == 0 ? op.a : op.a % 40);  // sometimes longer than any priority's head start
      break;
  }
  core_->scheduler().audit();
  listen();
}

void EngineWorld::step() {
  now_ += milliseconds(1);
  core_->step();
  ++steps_;
  core_->scheduler().audit();
  check_order();
  listen();
}

/// Invariant SIM-001: no request is admitted before one of better rank (arrival time minus priority * aging). This
/// rules out starvation: only requests that arrive within a bounded time after a request can overtake it. A fork of a
/// sample is not an admission; it got its place together with the request's first sample.
void EngineWorld::check_order() {
  std::set<engine::SequenceKey> now, known;
  Time worst_admitted = Time::min(), best_waiting = Time::max();
  engine::SequenceKey admitted, waiting;
  for (const auto& state : core_->scheduler().states()) {
    const auto found = clients_.find(state.key.request);
    if (found == clients_.end()) continue;
    known.insert(state.key);
    const Time rank = found->second.rank;
    if (state.running) {
      now.insert(state.key);
      const bool parted = state.key.sample > 0 && !known_.contains(state.key);
      if (!running_.contains(state.key) && !parted && rank > worst_admitted) {
        worst_admitted = rank;
        admitted = state.key;
      }
    } else if (state.delayed_until <= now_ && rank < best_waiting) {
      best_waiting = rank;
      waiting = state.key;
    }
  }
  running_ = std::move(now);
  known_ = std::move(known);
  require(
      worst_admitted <= best_waiting || worst_admitted == Time::min(),
      fmt::format("SIM-001: {} was let in before {}, which has a better rank", name_of(admitted), name_of(waiting)));
}

void EngineWorld::check_row(const Client& client, std::span<const float> row) {
  const bool mean = client.wants == engine::OutputKind::kMeanRow;
  std::vector<double> sum(FakeExecutor::kHiddenWidth);
  const bool first = client.wants == engine::OutputKind::kFirstRow;
  const std::size_t last = first ? 1 : client.prompt.size();
  for (std::size_t end = mean ? 1 : last; end <= last; ++end) {
    const auto one = FakeExecutor::row_of(std::span(client.prompt).first(end));
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
  }
  const double count = mean ? static_cast<double>(client.prompt.size()) : 1;
  bool same = row.size() == sum.size();
  for (std::size_t i = 0; same && i < sum.size(); ++i) same = row[i] == static_cast<float>(sum[i] / count);
  require(same, "SIM-007: a request got another row than alone");
  ++compared_;
}

void EngineWorld::check_tokens(const Client& client, std::uint32_t sample, FinishReason finish) {
  auto params = client.sampling;
  params.seed += sample;
  const auto& got = client.tokens[sample];
  const auto alone = executor_.alone(client.prompt, params, got.size());
  require(got == alone, fmt::format("SIM-002: sample {} got other tokens than alone", sample));
  require(finish != FinishReason::kLength || got.size() == client.max_tokens,
          "SIM-003: a sample that ended by its length has all its tokens");
  require(got.size() <= client.max_tokens, "SIM-003: a sample has more tokens than it may");
  ++compared_;
}

void EngineWorld::listen() {
  for (auto it = clients_.begin(); it != clients_.end();) {
    auto& client = it->second;
    while (const auto event = client.stream->next(Time::zero())) {
      if (event->token != runtime::Sampler::kNoToken) client.tokens[event->sample].push_back(event->token);
      if (event->finish == FinishReason::kNone) continue;
      ++ended_;
      if (client.wants == engine::OutputKind::kTokens)
        check_tokens(client, event->sample, event->finish);
      else if (event->finish == FinishReason::kStop)
        check_row(client, event->row);
    }
    it = client.stream->finished() ? clients_.erase(it) : std::next(it);
  }
}

void EngineWorld::finish() {
  executor_.next_fault = FakeExecutor::Fault::kNone;
  // Bound on the number of steps until everything has finished: each step of a single sequence feeds at least one
  // token, so no sequence takes more steps than when all sequences run one after the other.
  std::uint64_t bound = 64;
  for (const auto& [id, client] : clients_)
    bound += 2 * (client.prompt.size() + client.max_tokens) * client.tokens.size() + 8;
  for (std::uint64_t i = 0; i < bound && !clients_.empty(); ++i) step();
  require(clients_.empty(), fmt::format("SIM-004: {} requests have not ended within {} steps", clients_.size(), bound));
  const auto metrics = core_->metrics();
  require(
      metrics.kv_blocks_free == metrics.kv_blocks && metrics.state_slots_free == metrics.state_slots && core_->idle(),
      "SIM-005: something was not given back");
  std::uint64_t counted = 0;
  for (const auto n : metrics.finished) counted += n;
  require(counted == samples_ && ended_ == samples_, "SIM-006: every sample ends once");
}

}  // namespace forge::test
