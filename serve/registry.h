#pragma once
// Requests by their ids: those that run, and how the last ones ended.

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "serve/generation.h"
#include "serve/metrics.h"

namespace forge::serve {

struct RequestStatus {
  enum class State : std::uint8_t { kWaiting, kRunning, kFinished };
  State state = State::kWaiting;
  std::size_t prompt_tokens = 0, generated_tokens = 0;
  engine::FinishReason finish = engine::FinishReason::kNone;
};

class Registry {
 public:
  explicit Registry(Metrics& metrics) : metrics_(metrics) {}

  /// A request that is known until it dies; then how it ended is kept, and measured.
  class Ticket {
   public:
    Ticket(Registry& registry, std::string id, std::shared_ptr<Generation> generation);
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    ~Ticket();
    [[nodiscard]] Generation& generation() const { return *generation_; }

   private:
    Registry& registry_;
    std::string id_;
    std::shared_ptr<Generation> generation_;
  };

  // On the network's thread, where generations are used. OpenAI's prefixes of ids may be there or not.
  [[nodiscard]] std::optional<RequestStatus> status(std::string_view id) const;
  /// Nothing: nobody knows it. False: it had ended.
  [[nodiscard]] std::optional<bool> cancel(std::string_view id);

 private:
  static constexpr std::size_t kKept = 1024;
  [[nodiscard]] static RequestStatus status_of(const Generation& generation);

  Metrics& metrics_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Generation*> running_;
  std::unordered_map<std::string, RequestStatus> finished_;
  std::deque<std::string> order_;  ///< of finished_, the oldest first
};

}  // namespace forge::serve
