#pragma once
// StepTrace records when each thread ran which task, for timeline pictures (--profile-trace). It keeps forwards and
// steps of the calling thread and tasks (chunks of a step) of every thread. Recording costs two clock reads per task.
// Memory is allocated once; each ring overwrites its oldest events.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/thread_pool.h"

namespace forge::runtime {

/// Implements ThreadPool::Observer, so the pool reports every task to it. Each thread writes to a ring of its own,
/// hence no synchronisation.
class StepTrace final : public ThreadPool::Observer {
 public:
  static constexpr std::size_t kEvents = std::size_t{1} << 18;       ///< default capacity of one ring
  static constexpr std::size_t kEventsOfAll = std::size_t{1} << 20;  ///< most task events over all threads

  /// Times are nanoseconds of the steady clock.
  struct Event {
    std::int64_t begin_ns = 0, end_ns = 0;
    std::uint32_t what = 0;  ///< task: its index; step: its index in the variant; forward: its tokens
    std::uint32_t variant = 0;
  };
  /// Fixed-size ring of the newest events, oldest first.
  class Ring {
   public:
    explicit Ring(std::size_t events) : events_(events) {}
    void push(const Event& event) { events_[count_++ % events_.size()] = event; }
    [[nodiscard]] std::size_t size() const { return count_ < events_.size() ? count_ : events_.size(); }
    /// True if older events have been overwritten.
    [[nodiscard]] bool lost() const { return count_ > events_.size(); }
    [[nodiscard]] const Event& operator[](std::size_t i) const {
      return events_[lost() ? (count_ + i) % events_.size() : i];
    }

   private:
    std::vector<Event> events_;
    std::size_t count_ = 0;
  };

  /// Takes memory for `threads` threads with up to `events` events each.
  explicit StepTrace(std::size_t threads, std::size_t events = kEvents);

  static std::int64_t now_ns();
  void task(std::size_t worker, std::size_t task, std::int64_t begin_ns, std::int64_t end_ns) noexcept override;
  void step(std::size_t variant, std::size_t step, std::int64_t begin_ns, std::int64_t end_ns);
  void forward(std::size_t variant, std::size_t tokens, std::int64_t begin_ns, std::int64_t end_ns);

  // Readers: must not be called while a forward runs.
  [[nodiscard]] std::size_t threads() const { return chunks_.size(); }
  [[nodiscard]] const Ring& chunks(std::size_t thread) const { return chunks_[thread]; }
  [[nodiscard]] const Ring& steps() const { return steps_; }
  [[nodiscard]] const Ring& forwards() const { return forwards_; }
  /// Time from which all rings are complete, i.e. no event after it has been overwritten.
  [[nodiscard]] std::int64_t complete_from_ns() const;

 private:
  std::vector<Ring> chunks_;  ///< one per thread, written by that thread only
  Ring steps_, forwards_;
};

}  // namespace forge::runtime
