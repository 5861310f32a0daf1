#pragma once
// The masks of a step's constrained rows, computed on a thread of their own while the step runs: a step is then no
// longer than the longer of both.
//
//   caller:        begin(rows)  forward ......................  wait()  sample with the masks, accept
//   this thread:                mask of row 0, of row 1, ...

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "runtime/token_constraint.h"
#include "support/error.h"

namespace forge::runtime {

/// A sequence's constraint and its mask of the step. The mask thread touches it between begin and wait only, and the
/// caller only then not; shared, because a request can end while its masks are computed.
struct Constrained {
  std::shared_ptr<TokenConstraint> constraint;
  std::span<const std::uint32_t> mask;  ///< for the token after all accepted ones; empty: every token may come
  std::optional<Error> error;           ///< why there is no mask
};

/// See the head of this file.
class MaskThread {
 public:
  MaskThread() = default;
  MaskThread(const MaskThread&) = delete;
  MaskThread& operator=(const MaskThread&) = delete;
  ~MaskThread();

  /// Starts to compute the mask of each. The thread is made at the first call. Precondition: none is being computed.
  void begin(std::vector<std::shared_ptr<Constrained>>& rows);
  /// Returns when all masks of the last begin are there.
  void wait();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Constrained>> rows_;
  bool busy_ = false, stopped_ = false;
  std::thread thread_;
};

}  // namespace forge::runtime
