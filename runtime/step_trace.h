#pragma once
// What each thread did and when: forwards and steps of the caller, chunks (tasks) of every thread. Recording costs two
// clock readings a chunk; memory is taken once, and the oldest events make room for new ones.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/thread_pool.h"

namespace forge::runtime {

class StepTrace final : public ThreadPool::Observer {
 public:
  static constexpr std::size_t kEvents = std::size_t{1} << 18;  ///< a thread keeps, and steps
  static constexpr std::size_t kEventsOfAll = std::size_t{1} << 20;

  /// Times are of the steady clock, in nanoseconds.
  struct Event {
    std::int64_t begin_ns = 0, end_ns = 0;
    std::uint32_t what = 0;  ///< chunk: its task; step: its place in the variant; forward: its tokens
    std::uint32_t variant = 0;
  };
  /// The newest events of one kind, oldest first.
  class Ring {
   public:
    explicit Ring(std::size_t events) : events_(events) {}
    void push(const Event& event) { events_[count_++ % events_.size()] = event; }
    [[nodiscard]] std::size_t size() const { return count_ < events_.size() ? count_ : events_.size(); }
    [[nodiscard]] bool lost() const { return count_ > events_.size(); }
    [[nodiscard]] const Event& operator[](std::size_t i) const {
      return events_[lost() ? (count_ + i) % events_.size() : i];
    }

   private:
    std::vector<Event> events_;
    std::size_t count_ = 0;
  };

  /// For `threads` threads, each of which keeps `events`.
  explicit StepTrace(std::size_t threads, std::size_t events = kEvents);

  static std::int64_t now_ns();
  void task(std::size_t worker, std::size_t task, std::int64_t begin_ns, std::int64_t end_ns) noexcept override;
  void step(std::size_t variant, std::size_t step, std::int64_t begin_ns, std::int64_t end_ns);
  void forward(std::size_t variant, std::size_t tokens, std::int64_t begin_ns, std::int64_t end_ns);

  // Not while a forward runs.
  [[nodiscard]] std::size_t threads() const { return chunks_.size(); }
  [[nodiscard]] const Ring& chunks(std::size_t thread) const { return chunks_[thread]; }
  [[nodiscard]] const Ring& steps() const { return steps_; }
  [[nodiscard]] const Ring& forwards() const { return forwards_; }
  /// From here on nothing has been lost.
  [[nodiscard]] std::int64_t complete_from_ns() const;

 private:
  std::vector<Ring> chunks_;  ///< each written by its thread alone
  Ring steps_, forwards_;
};

}  // namespace forge::runtime
