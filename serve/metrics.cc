#include "serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace forge::serve {
namespace {

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

/// From below a decode step of a small model to a long answer of a large one.
std::vector<double> bounds(double first) {
  std::vector<double> bounds;
  for (double decade = first; bounds.size() < 18; decade *= 10)
    for (const double step : {1.0, 2.5, 5.0}) bounds.push_back(decade * step);
  return bounds;
}

class Text {
 public:
  explicit Text(std::string& text) : text_(text) {}
  void head(std::string_view name, std::string_view type, std::string_view help) {
    fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  template <class T>
  void one(std::string_view name, std::string_view type, std::string_view help, T value) {
    head(name, type, help);
    fmt::format_to(std::back_inserter(text_), "{} {}\n", name, value);
  }
  void counter(std::string_view name, std::string_view help, std::uint64_t value) { one(name, "counter", help, value); }
  template <class T>
  void gauge(std::string_view name, std::string_view help, T value) {
    one(name, "gauge", help, value);
  }

 private:
  std::string& text_;
};

void write_engine(std::string& out, const engine::EngineStatus& status) {
  const auto& m = status.metrics;
  Text text(out);
  text.gauge("forge_num_requests_running", "Sequences in the batch.", m.running);
  text.gauge("forge_num_requests_waiting", "Requests that wait.", m.waiting);
  const auto used = m.kv_blocks - m.kv_blocks_free;
  text.gauge("forge_kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.",
             m.kv_blocks == 0 ? 0.0 : static_cast<double>(used) / static_cast<double>(m.kv_blocks));
  text.gauge("forge_kv_cache_blocks", "KV blocks of the pool.", m.kv_blocks);
  text.gauge("forge_kv_cache_blocks_free", "KV blocks that can be taken, cached prefixes included.", m.kv_blocks_free);
  text.gauge("forge_kv_cache_blocks_cached", "Free KV blocks that hold a prefix.", m.kv_blocks_idle);
  text.gauge("forge_requests_open", "Requests that have not ended.", status.open);
  text.gauge("forge_health", "0 healthy, 1 degraded, 2 unhealthy.", static_cast<int>(status.health));
  text.counter("forge_prefix_cache_queries_total", "Tokens looked for among cached prefixes.", m.prefix_queries);
  text.counter("forge_prefix_cache_hits_total", "Tokens found there.", m.prefix_hits);
  text.counter("forge_prompt_tokens_total", "Tokens of prompts.", m.prompt_tokens);
  text.counter("forge_generation_tokens_total", "Tokens generated.", m.generated_tokens);
  text.counter("forge_num_preemptions_total", "Sequences that gave up their blocks to others.", m.preemptions);
  text.counter("forge_request_retries_total", "Retries after steps that failed.", m.retries);
  text.counter("forge_engine_steps_total", "Steps of the engine.", m.steps);
  text.counter("forge_engine_steps_failed_total", "Steps that failed.", m.failed_steps);
  text.counter("forge_engine_steps_ahead_total", "Steps that a device ran without a plan between.", m.steps_ahead);
  text.counter("forge_device_allocations_total", "Allocations of device memory: none after /ready.",
               m.device_allocations);
  text.head("forge_request_success_total", "counter", "Samples that ended, by reason.");
  for (std::size_t reason = 1; reason < m.finished.size(); ++reason)
    fmt::format_to(std::back_inserter(out), "forge_request_success_total{{finished_reason=\"{}\"}} {}\n",
                   engine::finish_reason_name(static_cast<engine::FinishReason>(reason)), m.finished[reason]);
}

}  // namespace

void Histogram::observe(double seconds) {
  const auto bucket = std::ranges::lower_bound(bounds_, seconds) - bounds_.begin();
  ++counts_[static_cast<std::size_t>(bucket)];
  sum_ += seconds;
}

void Histogram::write(std::string& text, std::string_view name, std::string_view help) const {
  Text(text).head(name, "histogram", help);
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    const auto bound = i < bounds_.size() ? fmt::format("{:g}", bounds_[i]) : "+Inf";
    fmt::format_to(std::back_inserter(text), "{}_bucket{{le=\"{}\"}} {}\n", name, bound, below);
  }
  fmt::format_to(std::back_inserter(text), "{}_sum {}\n{}_count {}\n", name, sum_, name, below);
}

Metrics::Metrics()
    : first_token_(bounds(0.001)),
      inter_token_(bounds(0.0001)),
      end_to_end_(bounds(0.001)),
      queue_(bounds(0.001)),
      prefill_(bounds(0.001)),
      decode_(bounds(0.001)) {}

void Metrics::request_ended(const engine::Usage& usage) {
  constexpr engine::Time kNone{};
  const std::lock_guard lock(mutex_);
  if (usage.finished == kNone) return;
  end_to_end_.observe(seconds(usage.finished - usage.submitted));
  if (usage.started == kNone) return;
  queue_.observe(seconds(usage.started - usage.submitted));
  if (usage.first_token == kNone) return;
  first_token_.observe(seconds(usage.first_token - usage.submitted));
  prefill_.observe(seconds(usage.first_token - usage.started));
  decode_.observe(seconds(usage.finished - usage.first_token));
}

void Metrics::between_tokens(std::chrono::nanoseconds time) {
  const std::lock_guard lock(mutex_);
  inter_token_.observe(seconds(time));
}

void Metrics::http_ended(unsigned status) {
  const std::lock_guard lock(mutex_);
  ++responses_[status];
}

std::string Metrics::text(const engine::EngineStatus* status) const {
  std::string out;
  if (status != nullptr) write_engine(out, *status);
  const std::lock_guard lock(mutex_);
  first_token_.write(out, "forge_time_to_first_token_seconds", "From arrival to the first token.");
  inter_token_.write(out, "forge_inter_token_latency_seconds", "Between two tokens of a sample, as they are sent.");
  end_to_end_.write(out, "forge_e2e_request_latency_seconds", "From arrival to the end.");
  queue_.write(out, "forge_request_queue_time_seconds", "From arrival to the first step.");
  prefill_.write(out, "forge_request_prefill_time_seconds", "From the first step to the first token.");
  decode_.write(out, "forge_request_decode_time_seconds", "From the first token to the end.");
  Text(out).head("forge_http_responses_total", "counter", "Answers by HTTP status; 0: the client went before one.");
  for (const auto& [code, count] : responses_)
    fmt::format_to(std::back_inserter(out), "forge_http_responses_total{{status=\"{}\"}} {}\n", code, count);
  return out;
}

}  // namespace forge::serve
