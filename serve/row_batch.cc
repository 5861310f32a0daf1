#include "serve/row_batch.h"

#include <algorithm>
#include <utility>

#include "serve/generation.h"

namespace forge::serve {
namespace {

/// Inputs of one HTTP request that are in the engine at the same time: two steps of 16, so that the next step is full.
constexpr std::size_t kInFlightMax = 32;

}  // namespace

RowBatch::RowBatch(ServedModel& model, RowInputs inputs, Wake wake)
    : model_(model),
      inputs_(std::move(inputs)),
      wake_(std::move(wake)),
      deadline_(Clock::now() + inputs_.timeout),
      rows_(inputs_.ids.size()) {
  for (const auto& ids : inputs_.ids) tokens_ += ids.size();
  submit();
}

bool RowBatch::poll() {
  for (auto& running : running_)
    while (auto event = running.handle.next(engine::Time::zero()))
      if (event->finish != engine::FinishReason::kNone) take(running, *std::move(event));
  std::erase_if(running_, [](const auto& running) { return running.done; });
  if (!failure_) submit();
  return failure_ || done_ == rows_.size();
}

/// Inputs are submitted together, so that they share steps; the first too long one is named in the error.
void RowBatch::submit() {
  const std::size_t most = std::min(kInFlightMax, model_.engine().options().queue);
  const std::size_t first = next_;
  std::vector<engine::Request> requests;
  for (; next_ < rows_.size() && running_.size() + requests.size() < most; ++next_) {
    auto& request = requests.emplace_back(
        engine::Request{.prompt = std::move(inputs_.ids[next_]), .wants = *model_.pooling(), .on_event = wake_});
    request.timeout = std::max<engine::Time>(deadline_ - Clock::now(), engine::Time::zero());
  }
  if (requests.empty()) return;
  auto handles = model_.engine().submit_all(std::move(requests));
  if (!handles) {
    const auto& [refusal, index] = handles.error();
    const auto param = first + index == 0 ? inputs_.first : inputs_.others;
    failure_ = error_of(refusal, retry_after_s(model_.engine().status()), param);
    running_.clear();
    return;
  }
  for (std::size_t i = 0; i < handles->size(); ++i)
    running_.push_back({.input = first + i, .handle = std::move((*handles)[i])});
}

void RowBatch::take(Running& running, engine::StreamEvent event) {
  running.done = true;
  ++done_;
  if (event.finish == engine::FinishReason::kStop)
    rows_[running.input] = std::move(event.row);
  else
    failure_ = error_of(event.finish, event.error);
}

ApiError no_number() {
  return {.status = 503,
          .code = "no_number",
          .message = "the model's hidden states are NaN, infinite or all zero",
          .category = ErrorCategory::kDevice};
}

}  // namespace forge::serve
