#pragma once
// Requests by id, for /status/{id} and /cancel/{id}: those that run, and the final state of the last 1024.

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

  /// Registers a running request for as long as the ticket lives. Its destructor records the final state and the
  /// request's metrics.
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

  // Called on the network thread, which also reads the generations. OpenAI's id prefixes ("cmpl-", "chatcmpl-") are
  // optional.
  [[nodiscard]] std::optional<RequestStatus> status(std::string_view id) const;
  /// True: cancelled. False: the request had already ended. nullopt: unknown id.
  [[nodiscard]] std::optional<bool> cancel(std::string_view id);

 private:
  static constexpr std::size_t kKept = 1024;  ///< ended requests whose state is kept
  [[nodiscard]] static RequestStatus status_of(const Generation& generation);

  Metrics& metrics_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Generation*> running_;
  std::unordered_map<std::string, RequestStatus> finished_;
  std::deque<std::string> order_;  ///< ids in finished_, oldest first
};

}  // namespace forge::serve
