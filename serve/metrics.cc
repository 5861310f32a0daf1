#include "serve/metrics.h"

#include <prometheus/text_serializer.h>

#include <utility>
#include <vector>

namespace forge::serve {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

/// Its bounds go from `first`, below a decode step of a small model, to a long answer of a large one.
prometheus::Histogram& histogram(prometheus::Registry& registry, double first, const char* name, const char* help) {
  std::vector<double> bounds;
  for (double decade = first; bounds.size() < 18; decade *= 10)
    for (const double step : {1.0, 2.5, 5.0}) bounds.push_back(decade * step);
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, bounds);
}

ClientMetric counted(std::uint64_t value) {
  ClientMetric metric;
  metric.counter.value = static_cast<double>(value);
  return metric;
}

void add_engine(std::vector<MetricFamily>& families, const engine::EngineStatus& status) {
  const auto& m = status.metrics;
  const auto gauge = [&](const char* name, const char* help, auto value) {
    ClientMetric metric;
    metric.gauge.value = static_cast<double>(value);
    families.push_back({name, help, MetricType::Gauge, {metric}});
  };
  const auto counter = [&](const char* name, const char* help, std::uint64_t value) {
    families.push_back({name, help, MetricType::Counter, {counted(value)}});
  };
  gauge("forge_num_requests_running", "Sequences in the batch.", m.running);
  gauge("forge_num_requests_waiting", "Requests that wait.", m.waiting);
  const auto used = m.kv_blocks - m.kv_blocks_free;
  gauge("forge_kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.",
        m.kv_blocks == 0 ? 0.0 : static_cast<double>(used) / static_cast<double>(m.kv_blocks));
  gauge("forge_kv_cache_blocks", "KV blocks of the pool.", m.kv_blocks);
  gauge("forge_kv_cache_blocks_free", "KV blocks that can be taken, cached prefixes included.", m.kv_blocks_free);
  gauge("forge_kv_cache_blocks_cached", "Free KV blocks that hold a prefix.", m.kv_blocks_idle);
  if (m.state_slots > 0) {
    gauge("forge_state_slots", "Slots of recurrent state.", m.state_slots);
    gauge("forge_state_slots_free", "Slots that can be taken, snapshots included.", m.state_slots_free);
    gauge("forge_state_snapshots", "Slots that hold a snapshot.", m.state_snapshots);
    counter("forge_state_snapshots_kept_total", "Snapshots kept.", m.states_kept);
    counter("forge_state_hits_total", "Sequences that started from a snapshot.", m.state_hits);
    counter("forge_state_evictions_total", "Snapshots given up for others or with their blocks.", m.state_evictions);
  }
  gauge("forge_requests_open", "Requests that have not ended.", status.open);
  gauge("forge_health", "0 healthy, 1 degraded, 2 unhealthy.", static_cast<int>(status.health));
  counter("forge_prefix_cache_queries_total", "Tokens looked for among cached prefixes.", m.prefix_queries);
  counter("forge_prefix_cache_hits_total", "Tokens found there.", m.prefix_hits);
  counter("forge_prompt_tokens_total", "Tokens of prompts.", m.prompt_tokens);
  counter("forge_generation_tokens_total", "Tokens generated.", m.generated_tokens);
  counter("forge_num_preemptions_total", "Sequences that gave up their blocks to others.", m.preemptions);
  counter("forge_request_retries_total", "Retries after steps that failed.", m.retries);
  counter("forge_engine_steps_total", "Steps of the engine.", m.steps);
  counter("forge_engine_steps_failed_total", "Steps that failed.", m.failed_steps);
  counter("forge_engine_steps_ahead_total", "Steps that a device ran without a plan between.", m.steps_ahead);
  counter("forge_device_allocations_total", "Allocations of device memory: none after /ready.", m.device_allocations);
  MetricFamily ended{"forge_request_success_total", "Samples that ended, by reason.", MetricType::Counter, {}};
  for (std::size_t reason = 1; reason < m.finished.size(); ++reason) {
    ended.metric.push_back(counted(m.finished[reason]));
    const auto name = engine::finish_reason_name(static_cast<engine::FinishReason>(reason));
    ended.metric.back().label.push_back({"finished_reason", std::string(name)});
  }
  families.push_back(std::move(ended));
}

}  // namespace

Metrics::Metrics()
    : first_token_(
          histogram(registry_, 0.001, "forge_time_to_first_token_seconds", "From arrival to the first token.")),
      inter_token_(histogram(registry_, 0.0001, "forge_inter_token_latency_seconds",
                             "Between two tokens of a sample, as they are sent.")),
      end_to_end_(histogram(registry_, 0.001, "forge_e2e_request_latency_seconds", "From arrival to the end.")),
      queue_(histogram(registry_, 0.001, "forge_request_queue_time_seconds", "From arrival to the first step.")),
      prefill_(
          histogram(registry_, 0.001, "forge_request_prefill_time_seconds", "From the first step to the first token.")),
      decode_(histogram(registry_, 0.001, "forge_request_decode_time_seconds", "From the first token to the end.")),
      responses_(prometheus::BuildCounter()
                     .Name("forge_http_responses_total")
                     .Help("Answers by HTTP status; 0: the client went before one.")
                     .Register(registry_)) {}

void Metrics::request_ended(const engine::Usage& usage) {
  constexpr engine::Time kNone{};
  if (usage.finished == kNone) return;
  end_to_end_.Observe(seconds(usage.finished - usage.submitted));
  if (usage.started == kNone) return;
  queue_.Observe(seconds(usage.started - usage.submitted));
  if (usage.first_token == kNone) return;
  first_token_.Observe(seconds(usage.first_token - usage.submitted));
  prefill_.Observe(seconds(usage.first_token - usage.started));
  decode_.Observe(seconds(usage.finished - usage.first_token));
}

void Metrics::between_tokens(std::chrono::nanoseconds time) {
  inter_token_.Observe(seconds(time));
}

void Metrics::http_ended(unsigned status) {
  responses_.Add({{"status", std::to_string(status)}}).Increment();
}

std::string Metrics::text(const engine::EngineStatus* status) const {
  std::vector<MetricFamily> families;
  if (status != nullptr) add_engine(families, *status);
  for (auto& family : registry_.Collect()) families.push_back(std::move(family));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace forge::serve
