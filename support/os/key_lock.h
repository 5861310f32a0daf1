#pragma once
// One process at a time for one key of a cache.

#include <filesystem>
#include <functional>

#include "support/os/unique_fd.h"

namespace forge {

/// The exclusive lock of one key, held until destruction or death. The file is removed by its holder; a waiter that
/// gets the lock of a file that is no longer there starts over, so that two holders never exist.
class KeyLock {
 public:
  /// `waiting` is called once when another process holds it, before waiting. `error()` is not 0 when locking is
  /// impossible (read-only directory, a file system without locks).
  KeyLock(std::filesystem::path path, const std::function<void()>& waiting);
  KeyLock(const KeyLock&) = delete;
  KeyLock& operator=(const KeyLock&) = delete;
  ~KeyLock();

  [[nodiscard]] int error() const { return error_; }

 private:
  int acquire(const std::function<void()>& waiting);

  std::filesystem::path path_;
  UniqueFd fd_;
  int error_ = 0;
};

}  // namespace forge
