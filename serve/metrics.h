#pragma once
// What Prometheus reads: vLLM's names under forge_, so that dashboards made for it fit.

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <chrono>
#include <string>

#include "runtime/engine/engine.h"

namespace forge::serve {

/// From any thread. What is observed costs 40 ns, without an allocation, and locks nothing but its histogram.
class Metrics {
 public:
  Metrics();
  void request_ended(const engine::Usage& usage);
  void between_tokens(std::chrono::nanoseconds time);
  void http_ended(unsigned status);
  /// `status` null: no model is served yet.
  [[nodiscard]] std::string text(const engine::EngineStatus* status) const;

 private:
  prometheus::Registry registry_;
  prometheus::Histogram &first_token_, &inter_token_, &end_to_end_, &queue_, &prefill_, &decode_;
  prometheus::Family<prometheus::Counter>& responses_;
};

}  // namespace forge::serve
