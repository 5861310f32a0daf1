#pragma once
// The hidden rows of the inputs of one HTTP request: what /v1/embeddings and /v1/rerank ask of the engine.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "serve/http/http.h"
#include "serve/protocol/request_json.h"
#include "serve/served_model.h"

namespace forge::serve {

struct RowInputs {
  std::vector<std::vector<std::int32_t>> ids;  ///< of each input
  std::chrono::milliseconds timeout{};
  std::string_view first = "input", others = "input";  ///< the body's members with the inputs, for errors
};

/// Submits the inputs to the engine, only some at a time, so that one request with many inputs does not fill its queue.
/// Destroying it cancels what still runs.
class RowBatch {
 public:
  /// May be called from any thread. The model must have a pooling and outlive the batch.
  RowBatch(ServedModel& model, RowInputs inputs, Wake wake);

  /// Takes the rows that are ready and submits more inputs. True when all rows are there, or when one has failed.
  [[nodiscard]] bool poll();
  [[nodiscard]] const std::optional<ApiError>& failure() const { return failure_; }
  /// [inputs][hidden width], pooled as the model says; complete once poll() is true without a failure.
  [[nodiscard]] const std::vector<std::vector<float>>& rows() const { return rows_; }
  [[nodiscard]] std::size_t tokens() const { return tokens_; }  ///< of all inputs

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    std::size_t input = 0;
    engine::RequestHandle handle;
    bool done = false;
  };

  void submit();
  void take(Running& running, engine::StreamEvent event);

  ServedModel& model_;
  RowInputs inputs_;
  Wake wake_;
  Clock::time_point deadline_;
  std::size_t tokens_ = 0, next_ = 0, done_ = 0;
  std::vector<std::vector<float>> rows_;
  std::vector<Running> running_;
  std::optional<ApiError> failure_;
};

/// The error for rows of which no vector of length 1 or no score can be made.
[[nodiscard]] ApiError no_number();

}  // namespace forge::serve
