#pragma once
// Fork-join over a few threads, made for steps of some microseconds: no allocation, no locks, no std::function.
//
// Tasks are claimed one by one from an atomic counter, so a core that is slow or busy elsewhere takes fewer of them. A
// worker that has not woken up when the last task is claimed is not waited for. Whoever waits (idle workers for a run,
// the caller for the last task) spins for some ten microseconds and then sleeps in the kernel: steps that follow each
// other closely cost no system call, and an idle pool costs nothing.

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
  /// context as given to run; task in [0, tasks); worker in [0, size()), 0 being the caller: for scratch memory.
  /// A task must not throw and must not call run.
  using Task = void (*)(void* context, std::size_t task, std::size_t worker);

  /// Told of every task by the thread that ran it, with times of the steady clock.
  class Observer {
   public:
    virtual void task(std::size_t worker, std::size_t task, std::int64_t begin_ns, std::int64_t end_ns) noexcept = 0;

   protected:
    ~Observer() = default;
  };

  static constexpr std::size_t kThreadsMax = 1024;

  /// `threads` counts the caller; 0 means default_threads(). With one thread no worker is started.
  /// Errors: Error(kUsage) above kThreadsMax, Error(kMemory) when a thread cannot be started.
  explicit ThreadPool(std::size_t threads = 0);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  /// CPUs in this process's affinity mask, and no more than its control group's CPU quota allows (rounded up).
  [[nodiscard]] static std::size_t default_threads();

  [[nodiscard]] std::size_t size() const { return workers_.size() + 1; }

  /// From the next run on; nullptr for nobody, which costs nothing. It outlives the pool or is taken away before.
  void observe(Observer* observer) { observer_ = observer; }

  /// Runs all tasks and returns when the last one has ended. What tasks wrote is then visible to the caller, and what
  /// the caller wrote before is visible to tasks. One run at a time: not for two threads at once. Not after fork().
  void run(std::size_t tasks, Task task, void* context);

  /// The same for anything callable as body(task, worker); it is referred to, not copied.
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
  struct Job {
    Task task = nullptr;
    void* context = nullptr;
    std::size_t first = 0;  ///< index of the first task: runs above kClaimMax tasks are cut
    std::size_t tasks = 0;
  };

  void run_all(std::size_t tasks, Task task, void* context);
  void run_slice(const Job& job);
  void work(std::size_t worker);
  std::uint64_t wait_for_run(std::uint64_t seen, std::int64_t& spin_ns);
  void execute(std::uint64_t claim, std::size_t worker);
  void join();

  // One cache line each: what all threads fight for, what only the end of a run needs, what sleepers need.
  /// Number of the run (upper 40 bits) and tasks of it not yet claimed (lower 24 bits).
  alignas(64) std::atomic<std::uint64_t> claim_{0};
  Job job_;  ///< written while no task is claimable or running; read after a successful claim only
  /// Tasks that have not ended; the top bit says that the caller sleeps.
  alignas(64) std::atomic<std::uint32_t> pending_{0};
  alignas(64) std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<std::uint32_t> wake_count_{0};
  std::int64_t spin_max_ns_ = 0;
  Observer* observer_ = nullptr;
  std::vector<std::jthread> workers_;
};

}  // namespace forge::runtime
