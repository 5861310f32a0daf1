#include "runtime/mask_thread.h"

#include <algorithm>
#include <new>
#include <system_error>

namespace forge::runtime {

void compute_mask(Constrained& row) {
  row.mask = {};
  try {
    if (row.forced.empty()) {
      row.mask = row.constraint->mask();
      return;
    }
    const auto token = static_cast<std::size_t>(row.forced.front());
    row.only.assign((row.vocab + 31) / 32, 0);
    row.only.at(token / 32) = 1U << token % 32;
    row.mask = row.only;
  } catch (const Error& error) {
    row.error = error;
  } catch (const std::bad_alloc&) {
    row.error = Error(ErrorCode::kMemory, "a mask could not be computed", "out of memory");
  } catch (const std::exception& error) {
    row.error = Error(ErrorCode::kInternal, "a mask could not be computed", printable(error.what()));
  }
}

MaskThreads::MaskThreads(std::size_t threads)
    : most_(threads > 0 ? threads : std::clamp<std::size_t>(std::thread::hardware_concurrency() / 2, 1, 4)) {
  threads_.reserve(kThreadsMax);
}

MaskThreads::~MaskThreads() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  begun_.notify_all();
  for (auto& thread : threads_) thread.join();
}

/// As many threads as have work and may run at once, besides lost ones. False: there is none at all.
bool MaskThreads::add_threads() {
  const auto wanted = std::min(lost_ + std::min(most_, open_), kThreadsMax);
  try {
    while (threads_.size() < wanted) threads_.emplace_back([this] { run(); });
  } catch (const std::system_error&) {
    return threads_.size() > lost_;  // no more threads: slower, but the same
  }
  return threads_.size() > lost_;
}

void MaskThreads::begin(std::span<const std::shared_ptr<Constrained>> rows) {
  if (rows.empty()) return;
  bool works = true;
  {
    const std::lock_guard lock(mutex_);
    invariant(open_ == 0, "RT-020", "masks are waited for before others are begun");
    rows_.assign(rows.begin(), rows.end());
    for (const auto& row : rows_) row->stage = Constrained::Stage::kWaiting;
    next_ = 0;
    open_ = rows_.size();
    works = add_threads();
    if (!works && lost_ == 0) next_ = rows_.size();
  }
  if (works || lost_ > 0) return begun_.notify_all();
  for (const auto& row : rows) compute_mask(*row);
  const std::lock_guard lock(mutex_);
  for (const auto& row : rows) row->stage = Constrained::Stage::kIdle;
  open_ = 0;
}

bool MaskThreads::wait_for(std::chrono::nanoseconds time) {
  std::unique_lock lock(mutex_);
  if (!done_.wait_for(lock, time, [&] { return open_ == 0; })) {
    // Rows do not wait for one that takes long.
    most_ = std::max(most_, open_);
    static_cast<void>(add_threads());
    return false;
  }
  rows_.clear();
  next_ = 0;
  return true;
}

void MaskThreads::wait() {
  while (!wait_for(std::chrono::hours(1))) {
  }
}

void MaskThreads::give_up(Constrained& row) {
  const std::lock_guard lock(mutex_);
  if (row.stage != Constrained::Stage::kWaiting && row.stage != Constrained::Stage::kRunning) return;
  lost_ += row.stage == Constrained::Stage::kRunning ? 1 : 0;
  row.stage = Constrained::Stage::kGivenUp;
  --open_;
  static_cast<void>(add_threads());
}

bool MaskThreads::is_late(const Constrained& row) const {
  const std::lock_guard lock(mutex_);
  return row.stage != Constrained::Stage::kIdle;
}

bool MaskThreads::is_running(const Constrained& row) const {
  const std::lock_guard lock(mutex_);
  return row.stage == Constrained::Stage::kRunning;
}

/// The mutex is not held while a mask is computed; the row's stage says whose it is.
void MaskThreads::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    begun_.wait(lock, [&] { return stopped_ || next_ < rows_.size(); });
    if (stopped_) return;
    const auto row = rows_[next_++];
    if (row->stage == Constrained::Stage::kGivenUp) continue;
    row->stage = Constrained::Stage::kRunning;
    lock.unlock();
    compute_mask(*row);
    lock.lock();
    if (row->stage == Constrained::Stage::kGivenUp) {
      --lost_;
      continue;
    }
    row->stage = Constrained::Stage::kIdle;
    if (--open_ == 0) done_.notify_all();
  }
}

}  // namespace forge::runtime
