#include "runtime/thread_pool.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <string>
#include <system_error>

#include "support/error.h"
#include "support/os/cpus.h"

// How a run works.
//
// claim_ holds [run number : 40 | unclaimed tasks : 24]. run_slice() stores a new number with the task count; threads
// claim a task by a compare-exchange that decrements the count. The number makes a stale claim fail: a worker that was
// delayed since an earlier run compares with an old number.
//
//   caller                                   worker
//   job_ = ...; pending_ = n
//   claim_ = [k | n]         (release)
//                                            claim_: [k | n] -> [k | n-1]     (acquire: sees job_)
//                                            run the task
//                                            pending_ -= tasks done           (release)
//   pending_ == 0            (acquire: sees what the tasks wrote)
//
// job_ is a plain struct. It is written only when no task is claimable (count 0) and none is running (pending_ 0), and
// it is read only by a thread that has claimed a task, which keeps pending_ above 0.
//
// Going to sleep (workers). Both sides store first and load afterwards, all sequentially consistent, so at least one of
// them sees the other:
//
//   caller:  store claim_;  load sleepers_;   if > 0: ++wake_count_, futex wake
//   worker:  ++sleepers_;   load wake_count_; load claim_;   if unchanged: futex wait while wake_count_ is as loaded
//
// If the caller does not see the sleeper, the sleeper sees the new claim and does not sleep. If the caller increments
// wake_count_ between the worker's load and its futex call, the kernel finds another value and returns at once.
//
// Waiting for the end (caller). The caller sets the top bit of pending_ before it sleeps; the worker whose decrement
// leaves only that bit wakes it.
namespace forge::runtime {
namespace {

constexpr unsigned kTaskBits = 24;
// Reserved claim value: workers exit.
constexpr std::uint64_t kClaimMax = (std::uint64_t{1} << kTaskBits) - 1;
constexpr std::uint64_t kStop = ~std::uint64_t{0};
constexpr std::uint32_t kCallerSleeps = std::uint32_t{1} << 31;

/// Waking a sleeping thread takes 5 to 50 us on Linux. Spinning for as long as a wake-up takes, and sleeping then,
/// costs at most twice the optimum (source: Karlin et al., "Competitive randomized algorithms for nonuniform problems",
/// 1990).
constexpr std::int64_t kSpinMaxNs = 50'000;
constexpr std::int64_t kSpinMinNs = 5'000;

/// Tasks of a claim word that are not claimed yet, and the number of its run.
std::uint64_t left_of(std::uint64_t claim) {
  return claim & kClaimMax;
}
std::uint64_t number_of(std::uint64_t claim) {
  return claim >> kTaskBits;
}

/// Tells the core that this is a spin loop: saves power and leaves resources to the sibling hyperthread.
void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Context of a run with an observer: wraps the user's task.
struct Observed {
  ThreadPool::Task task;
  void* context;
  ThreadPool::Observer* observer;
};

void run_observed(void* context, std::size_t task, std::size_t worker) {
  const auto& observed = *static_cast<const Observed*>(context);
  const std::int64_t begin = now_ns();
  observed.task(observed.context, task, worker);
  observed.observer->task(worker, task, begin, now_ns());
}

/// Spins until ready() is true or `limit_ns` has passed. Returns true if it became ready. The clock is read once per 16
/// checks, because reading it costs more than a check.
template <class Ready>
bool spin(std::int64_t limit_ns, Ready&& ready) {
  if (ready()) return true;
  if (limit_ns <= 0) return false;
  const std::int64_t end = now_ns() + limit_ns;
  do
    for (int i = 0; i < 16; ++i) {
      pause_cpu();
      if (ready()) return true;
    }
  while (now_ns() < end);
  return false;
}

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t), "futex words are plain words");

/// Sleeps while `word` equals `value`; may return early (spurious wake-up, signal).
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void futex_wake(std::atomic<std::uint32_t>& word, std::uint32_t count) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, static_cast<int>(std::min<std::uint32_t>(count, INT_MAX)), nullptr,
            nullptr, 0);
}

/// Blocks all signals during its lifetime. Threads started meanwhile inherit the mask, so signals are delivered to the
/// program's own threads and never interrupt a worker.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace

std::size_t ThreadPool::default_threads() {
  return std::min<std::size_t>(usable_cpus(), kThreadsMax);
}

ThreadPool::ThreadPool(std::size_t threads) {
  if (threads == 0) threads = default_threads();
  if (threads > kThreadsMax)
    throw Error(ErrorCode::kUsage, fmt::format("cannot use {} threads", threads),
                fmt::format("at most {} are supported", kThreadsMax), "omit --threads to use one thread per core");
  // With more threads than CPUs, a spinning thread would take the CPU from one that has work.
  if (threads <= allowed_cpus()) spin_max_ns_ = kSpinMaxNs;
  const SignalsBlocked blocked;
  try {
    workers_.reserve(threads - 1);
    for (std::size_t i = 1; i < threads; ++i) {
      workers_.emplace_back([this, i] { work(i); });
      ::pthread_setname_np(workers_.back().native_handle(), fmt::format("forge-{}", i).c_str());
    }
  } catch (const std::system_error& error) {
    const std::size_t started = workers_.size();
    claim_.store(kStop);
    wake_count_.fetch_add(1);
    futex_wake(wake_count_, INT_MAX);
    workers_.clear();
    throw Error(ErrorCode::kMemory, fmt::format("cannot start thread {} of {}", started + 2, threads), error.what(),
                "use fewer threads (--threads)");
  }
}

ThreadPool::~ThreadPool() {
  claim_.store(kStop);
  wake_count_.fetch_add(1);
  futex_wake(wake_count_, INT_MAX);
  workers_.clear();
}

void ThreadPool::run(std::size_t tasks, Task task, void* context) {
  if (observer_ == nullptr) {
    run_all(tasks, task, context);
    return;
  }
  Observed observed{task, context, observer_};
  run_all(tasks, run_observed, &observed);
}

void ThreadPool::run_all(std::size_t tasks, Task task, void* context) {
  if (workers_.empty() || tasks <= 1) {
    for (std::size_t i = 0; i < tasks; ++i) task(context, i, 0);
    return;
  }
  for (std::size_t first = 0; first < tasks; first += kClaimMax)
    run_slice({task, context, first, std::min<std::size_t>(tasks - first, kClaimMax)});
}

void ThreadPool::run_slice(const Job& job) {
  job_ = job;
  pending_.store(static_cast<std::uint32_t>(job.tasks), std::memory_order_relaxed);
  // Never reuse kStop's number.
  std::uint64_t number = number_of(claim_.load(std::memory_order_relaxed)) + 1;
  if (number == number_of(kStop)) number = 0;
  const std::uint64_t claim = (number << kTaskBits) | job.tasks;
  // The counterpart of wait_for_run: either the worker sees this claim before it sleeps, or it is counted in sleepers_
  // here.
  claim_.store(claim, std::memory_order_seq_cst);
  if (const std::uint32_t sleepers = sleepers_.load(std::memory_order_seq_cst); sleepers > 0) {
    wake_count_.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(wake_count_, static_cast<std::uint32_t>(std::min<std::size_t>(sleepers, job.tasks - 1)));
  }
  execute(claim, 0);
  join();
}

/// Claims and runs tasks of the run of `claim` until none is left. Reports all its tasks with one decrement at the end.
void ThreadPool::execute(std::uint64_t claim, std::size_t worker) {
  const std::uint64_t number = number_of(claim);
  std::uint32_t done = 0;
  while (number_of(claim) == number && left_of(claim) > 0) {
    if (!claim_.compare_exchange_weak(claim, claim - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    // The claimed task keeps pending_ above 0, so job_ belongs to this run and does not change until `done` is
    // reported.
    job_.task(job_.context, job_.first + (job_.tasks - left_of(claim)), worker);
    ++done;
    claim = claim_.load(std::memory_order_acquire);
  }
  if (done == 0) return;
  const std::uint32_t before = pending_.fetch_sub(done, std::memory_order_acq_rel);
  if (before - done == kCallerSleeps) futex_wake(pending_, 1);
}

/// Waits for tasks that are still running on workers. A wake-up that comes late is harmless: the pool joins its workers
/// before pending_ is destroyed.
void ThreadPool::join() {
  const auto ended = [this] { return pending_.load(std::memory_order_acquire) == 0; };
  if (spin(spin_max_ns_, ended)) return;
  std::uint32_t pending = pending_.fetch_or(kCallerSleeps, std::memory_order_acq_rel) | kCallerSleeps;
  while (pending != kCallerSleeps) {
    futex_wait(pending_, pending);
    pending = pending_.load(std::memory_order_acquire);
  }
}

/// Thread function of a worker.
void ThreadPool::work(std::size_t worker) {
  std::int64_t spin_ns = spin_max_ns_;
  std::uint64_t claim = 0;
  while ((claim = wait_for_run(number_of(claim), spin_ns)) != kStop) execute(claim, worker);
}

/// Returns the claim word of a run other than `seen`, or kStop. `spin_ns` adapts: it doubles when spinning was enough
/// and halves when the worker had to sleep.
std::uint64_t ThreadPool::wait_for_run(std::uint64_t seen, std::int64_t& spin_ns) {
  std::uint64_t claim = 0;
  const auto changed = [&] {
    claim = claim_.load(std::memory_order_seq_cst);
    return number_of(claim) != seen;
  };
  if (spin(spin_ns, changed)) {
    spin_ns = std::min(spin_max_ns_, spin_ns * 2);
    return claim;
  }
  spin_ns = std::min(spin_max_ns_, std::max(kSpinMinNs, spin_ns / 2));
  while (true) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t wakes = wake_count_.load(std::memory_order_seq_cst);
    const bool ready = changed();
    if (!ready) futex_wait(wake_count_, wakes);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    if (ready || changed()) return claim;
  }
}

}  // namespace forge::runtime
