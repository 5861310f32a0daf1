#include "runtime/mask_thread.h"

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
  } catch (const std::exception& error) {
    row.error = Error(ErrorCode::kInternal, "a mask could not be computed", printable(error.what()));
  }
}

MaskThread::~MaskThread() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void MaskThread::begin(std::vector<std::shared_ptr<Constrained>>& rows) {
  if (rows.empty()) return;
  try {
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {  // no more threads: slower, but the same
    for (const auto& row : rows) compute_mask(*row);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    invariant(!busy_, "RT-020", "masks are waited for before others are begun");
    rows_.swap(rows);
    busy_ = true;
  }
  changed_.notify_all();
}

void MaskThread::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy_; });
  rows_.clear();
}

/// The mutex is not held while a mask is computed; `busy_` says whose the rows are.
void MaskThread::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopped_ || busy_; });
    if (stopped_) return;
    lock.unlock();
    for (const auto& row : rows_) compute_mask(*row);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace forge::runtime
