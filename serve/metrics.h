#pragma once
// What Prometheus reads (text format 0.0.4, https://prometheus.io/docs/instrumenting/exposition_formats): vLLM's names
// under forge_, so that dashboards made for it fit.

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/engine/engine.h"

namespace forge::serve {

/// Of seconds. Bounds rise.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void observe(double seconds);
  void write(std::string& text, std::string_view name, std::string_view help) const;

 private:
  std::vector<double> bounds_;
  std::vector<std::uint64_t> counts_;
  double sum_ = 0;
};

/// From any thread.
class Metrics {
 public:
  Metrics();
  void request_ended(const engine::Usage& usage);
  void between_tokens(std::chrono::nanoseconds time);
  void http_ended(unsigned status);
  /// `status` null: no model is served yet.
  [[nodiscard]] std::string text(const engine::EngineStatus* status) const;

 private:
  mutable std::mutex mutex_;
  Histogram first_token_, inter_token_, end_to_end_, queue_, prefill_, decode_;
  std::map<unsigned, std::uint64_t> responses_;
};

}  // namespace forge::serve
