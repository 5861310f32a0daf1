#include "serve/registry.h"

#include <algorithm>
#include <utility>

namespace forge::serve {
namespace {

std::string bare(std::string_view id) {
  for (const std::string_view prefix : {"chatcmpl-", "cmpl-"})
    if (id.starts_with(prefix)) id.remove_prefix(prefix.size());
  return std::string(id);
}

}  // namespace

Registry::Ticket::Ticket(Registry& registry, std::string id, std::shared_ptr<Generation> generation)
    : registry_(registry), id_(std::move(id)), generation_(std::move(generation)) {
  const std::lock_guard lock(registry_.mutex_);
  registry_.running_[id_] = generation_.get();
}

Registry::Ticket::~Ticket() {
  auto status = status_of(*generation_);
  if (generation_->ended()) {
    for (const auto& usage : generation_->usages()) registry_.metrics_.request_ended(usage);
  } else {  // the client disconnected
    status.finish = engine::FinishReason::kCancelled;
  }
  status.state = RequestStatus::State::kFinished;
  const std::lock_guard lock(registry_.mutex_);
  registry_.running_.erase(id_);
  registry_.finished_[id_] = status;
  registry_.order_.push_back(id_);
  if (registry_.order_.size() <= kKept) return;
  registry_.finished_.erase(registry_.order_.front());
  registry_.order_.pop_front();
}

RequestStatus Registry::status_of(const Generation& generation) {
  using State = RequestStatus::State;
  return {.state = generation.tokens() > 0 ? State::kRunning : State::kWaiting,
          .prompt_tokens = generation.prompt_tokens(),
          .generated_tokens = generation.tokens(),
          .finish = generation.last_finish()};
}

std::optional<RequestStatus> Registry::status(std::string_view id) const {
  const std::lock_guard lock(mutex_);
  const auto name = bare(id);
  if (const auto found = running_.find(name); found != running_.end()) return status_of(*found->second);
  const auto found = finished_.find(name);
  return found == finished_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<bool> Registry::cancel(std::string_view id) {
  const std::lock_guard lock(mutex_);
  const auto name = bare(id);
  if (const auto found = running_.find(name); found != running_.end()) {
    found->second->cancel();
    return true;
  }
  return finished_.contains(name) ? std::optional(false) : std::nullopt;
}

}  // namespace forge::serve
