#include "runtime/mask_thread.h"

namespace forge::runtime {
namespace {

void compute(Constrained& row) {
  try {
    row.mask = row.constraint->mask();
  } catch (const Error& error) {
    row.error = error;
  } catch (const std::exception& error) {
    row.error = Error(ErrorCode::kInternal, "a mask could not be computed", printable(error.what()));
  }
}

}  // namespace

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
  {
    const std::lock_guard lock(mutex_);
    invariant(!busy_, "RT-020", "masks are waited for before others are begun");
    rows_.swap(rows);
    busy_ = true;
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
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
    for (const auto& row : rows_) compute(*row);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace forge::runtime
