#pragma once
// A fork-join thread pool for steps of a few microseconds. No allocation, no lock and no std::function per run. Used by
// the CPU executor for every step and by the GPU executor to load weights.
//
// Dynamic scheduling: threads claim tasks one by one from an atomic counter, so a slow or busy core takes fewer of
// them. A worker that has not woken up by the time the last task is claimed is not waited for.
//
// Waiting: idle workers (for the next run) and the caller (for the last task) spin for up to 50 us and then sleep on a
// futex. Steps that follow each other closely cost no system call, and an idle pool costs no CPU time. The protocol is
// described in thread_pool.cc.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace forge::runtime {

class ThreadPool {
 public:
  /// context: as given to run. task: in [0, tasks). worker: in [0, size()), 0 is the calling thread; an index into
  /// per-thread scratch memory. A task must not throw and must not call run.
  using Task = void (*)(void* context, std::size_t task, std::size_t worker);

  /// Called after every task, on the thread that ran it. Times are nanoseconds of the steady clock.
  class Observer {
   public:
    virtual void task(std::size_t worker, std::size_t task, std::int64_t begin_ns, std::int64_t end_ns) noexcept = 0;

   protected:
    ~Observer() = default;
  };

  static constexpr std::size_t kThreadsMax = 1024;

  /// `threads` includes the calling thread; 0 means default_threads(). With 1 no worker is started. Errors:
  /// Error(kUsage) above kThreadsMax, Error(kMemory) when a thread cannot be started.
  explicit ThreadPool(std::size_t threads = 0);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  /// Number of CPUs in the process's affinity mask, limited by its cgroup's CPU quota (rounded up).
  [[nodiscard]] static std::size_t default_threads();

  [[nodiscard]] std::size_t size() const { return workers_.size() + 1; }

  /// Sets the observer from the next run on; nullptr removes it, and then observation costs nothing. The observer must
  /// outlive the pool or be removed first.
  void observe(Observer* observer) { observer_ = observer; }

  /// Runs all tasks and returns when the last one has ended. Acts as a fence in both directions: tasks see what the
  /// caller wrote before, the caller sees what tasks wrote. Only one thread may call run at a time. Not usable after
  /// fork().
  void run(std::size_t tasks, Task task, void* context);

  /// The same for any callable body(task, worker). The callable is referenced, not copied.
  template <class Body>
    requires std::is_invocable_v<Body&, std::size_t, std::size_t>
  void run(std::size_t tasks, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run(
        tasks,
        [](void* context, std::size_t task, std::size_t worker) { (*static_cast<Plain*>(context))(task, worker); },
        const_cast<void*>(static_cast<const void*>(std::addressof(body))));
  }

 private:
  /// One run, or one slice of a run with more than kClaimMax tasks.
  struct Job {
    Task task = nullptr;
    void* context = nullptr;
    std::size_t first = 0;  ///< index of the slice's first task
    std::size_t tasks = 0;
  };

  void run_all(std::size_t tasks, Task task, void* context);
  void run_slice(const Job& job);
  void work(std::size_t worker);
  std::uint64_t wait_for_run(std::uint64_t seen, std::int64_t& spin_ns);
  void execute(std::uint64_t claim, std::size_t worker);
  void join();

  // The atomics are on separate cache lines: claim_ is contended by all threads, pending_ is used at the end of a run,
  // sleepers_ is written only by threads that go to sleep.
  //
  // Upper 40 bits: number of the run. Lower 24 bits: tasks of it that are not claimed yet.
  alignas(64) std::atomic<std::uint64_t> claim_{0};
  Job job_;  ///< written while no task is claimable or running; read only after a successful claim
  /// Tasks of the run that have not ended. The top bit is set while the caller sleeps.
  alignas(64) std::atomic<std::uint32_t> pending_{0};
  /// Workers that sleep or are about to.
  alignas(64) std::atomic<std::uint32_t> sleepers_{0};
  /// Futex word of sleeping workers; incremented to wake them.
  std::atomic<std::uint32_t> wake_count_{0};
  /// Longest time to spin; 0 if there are more threads than CPUs.
  std::int64_t spin_max_ns_ = 0;
  Observer* observer_ = nullptr;
  std::vector<std::jthread> workers_;
};

}  // namespace forge::runtime
