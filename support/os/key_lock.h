#pragma once
// Mutual exclusion between processes that would build the same cache entry.

#include <filesystem>
#include <functional>

#include "support/os/unique_fd.h"

namespace forge {

/// An exclusive flock(2) on a lock file, held until the object is destroyed or the process dies. The holder deletes the
/// file when it is done. A waiter may thus get the lock of a deleted file; it then opens the path again, so there are
/// never two holders.
class KeyLock {
 public:
  /// Waits until the lock is free. `waiting` is called once before the first wait, e.g. to tell the user. If locking is
  /// impossible (a read-only directory, a file system without locks) error() is not 0, and the caller goes on without a
  /// lock.
  KeyLock(std::filesystem::path path, const std::function<void()>& waiting);
  KeyLock(const KeyLock&) = delete;
  KeyLock& operator=(const KeyLock&) = delete;
  ~KeyLock();

  /// 0 if the lock is held, otherwise the errno that prevented it.
  [[nodiscard]] int error() const { return error_; }

 private:
  int acquire(const std::function<void()>& waiting);

  std::filesystem::path path_;
  UniqueFd fd_;
  int error_ = 0;
};

}  // namespace forge
