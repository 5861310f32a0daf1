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

namespace forge::runtime {
namespace {

constexpr unsigned kTaskBits = 24;
constexpr std::uint64_t kClaimMax = (std::uint64_t{1} << kTaskBits) - 1;
constexpr std::uint64_t kStop = ~std::uint64_t{0};
constexpr std::uint32_t kCallerSleeps = std::uint32_t{1} << 31;

/// Waking a sleeper costs 5 to 50 us on Linux. Spinning for as long as that is the classic bound of twice the best
/// (source: Karlin et al., "Competitive randomized algorithms for nonuniform problems", 1990).
constexpr std::int64_t kSpinMaxNs = 50'000;
constexpr std::int64_t kSpinMinNs = 5'000;

std::uint64_t left_of(std::uint64_t claim) {
  return claim & kClaimMax;
}
std::uint64_t number_of(std::uint64_t claim) {
  return claim >> kTaskBits;
}

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

/// A run whose tasks are told to an observer.
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

/// Spins until `ready()` or for `limit_ns`. Answers whether it became ready.
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

/// Sleeps while `word` is `value`; may return early.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void futex_wake(std::atomic<std::uint32_t>& word, std::uint32_t count) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, static_cast<int>(std::min<std::uint32_t>(count, INT_MAX)), nullptr,
            nullptr, 0);
}

/// Blocks all signals for the life of this object: workers inherit the mask and leave signals to the program's threads.
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
                fmt::format("at most {} are supported", kThreadsMax), "leave --threads away for one a core");
  // With more threads than cores a spinning one takes the core from one that has work.
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
  std::uint64_t number = number_of(claim_.load(std::memory_order_relaxed)) + 1;
  if (number == number_of(kStop)) number = 0;
  const std::uint64_t claim = (number << kTaskBits) | job.tasks;
  // Together with wait_for_run: either the worker sees this claim before it sleeps, or it is seen here as a sleeper.
  claim_.store(claim, std::memory_order_seq_cst);
  if (const std::uint32_t sleepers = sleepers_.load(std::memory_order_seq_cst); sleepers > 0) {
    wake_count_.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(wake_count_, static_cast<std::uint32_t>(std::min<std::size_t>(sleepers, job.tasks - 1)));
  }
  execute(claim, 0);
  join();
}

/// Claims and runs tasks of the run that `claim` belongs to until none is left to claim.
void ThreadPool::execute(std::uint64_t claim, std::size_t worker) {
  const std::uint64_t number = number_of(claim);
  std::uint32_t done = 0;
  while (number_of(claim) == number && left_of(claim) > 0) {
    if (!claim_.compare_exchange_weak(claim, claim - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    // A claimed task keeps its run alive, so job_ is of this run and does not change until `done` is reported.
    job_.task(job_.context, job_.first + (job_.tasks - left_of(claim)), worker);
    ++done;
    claim = claim_.load(std::memory_order_acquire);
  }
  if (done == 0) return;
  const std::uint32_t before = pending_.fetch_sub(done, std::memory_order_acq_rel);
  if (before - done == kCallerSleeps) futex_wake(pending_, 1);
}

/// Waits for the tasks that workers hold. The pool outlives its workers, so a late wake hits a living word.
void ThreadPool::join() {
  const auto ended = [this] { return pending_.load(std::memory_order_acquire) == 0; };
  if (spin(spin_max_ns_, ended)) return;
  std::uint32_t pending = pending_.fetch_or(kCallerSleeps, std::memory_order_acq_rel) | kCallerSleeps;
  while (pending != kCallerSleeps) {
    futex_wait(pending_, pending);
    pending = pending_.load(std::memory_order_acquire);
  }
}

void ThreadPool::work(std::size_t worker) {
  std::int64_t spin_ns = spin_max_ns_;
  std::uint64_t claim = 0;
  while ((claim = wait_for_run(number_of(claim), spin_ns)) != kStop) execute(claim, worker);
}

/// The claim word of a run after `seen`, or kStop. `spin_ns` learns: it grows when spinning was enough.
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
