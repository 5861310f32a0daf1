#pragma once
// The masks of a step's constrained rows, computed on threads of their own while the step runs: a step is then no
// longer than the longer of both.
//
//   caller:        begin(rows)  forward ......................  wait_for()  sample with the masks, accept
//   threads:                    mask of row 0, of row 2, ...
//                               mask of row 1, ...
//
// A mask that takes too long can be given up. It cannot be interrupted, so its thread is lost until it is done, and
// another takes its place.

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

/// A sequence's constraint and its mask of the step. The mask threads touch it between begin and wait only, and the
/// caller only then not; shared, because a request can end while its masks are computed. One that was given up is the
/// threads' for good.
struct Constrained {
  std::shared_ptr<TokenConstraint> constraint;
  std::span<const std::uint32_t> mask;  ///< for the token after all accepted ones; empty: every token may come
  std::optional<Error> error;           ///< why there is no mask
  std::size_t vocab = 0;
  /// Tokens that must follow and are not appended yet: the first is then the only one that its mask allows.
  std::vector<std::int32_t> forced = {};
  std::vector<std::uint32_t> only = {};  ///< that mask
  enum class Stage : std::uint8_t { kIdle, kWaiting, kRunning, kGivenUp };
  Stage stage = Stage::kIdle;  ///< of MaskThreads, under its mutex
};

/// Sets `mask` or `error` for the next token.
void compute_mask(Constrained& row);

/// See the head of this file.
class MaskThreads {
 public:
  /// `threads`: at once, at least 1; 0: one for each two cores, up to 4. More if a mask is waited for in vain.
  explicit MaskThreads(std::size_t threads = 0);
  MaskThreads(const MaskThreads&) = delete;
  MaskThreads& operator=(const MaskThreads&) = delete;
  /// Waits for masks that are being computed, also for those that were given up.
  ~MaskThreads();

  /// So that begin() with so many rows allocates nothing but threads.
  void reserve(std::size_t rows) { rows_.reserve(rows); }
  /// Starts to compute the mask of each. Precondition: none is waited for.
  void begin(std::span<const std::shared_ptr<Constrained>> rows);
  /// Waits for the masks of the last begin that were not given up. False: some are not there after this time.
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds time);
  void wait();
  /// The row's mask is not waited for any more. Does nothing if it is there.
  void give_up(Constrained& row);
  /// The row's mask is not there, or was given up.
  [[nodiscard]] bool is_late(const Constrained& row) const;
  /// A thread computes the row's mask.
  [[nodiscard]] bool is_running(const Constrained& row) const;

 private:
  static constexpr std::size_t kThreadsMax = 32;
  bool add_threads();
  void run();

  std::size_t most_;
  mutable std::mutex mutex_;
  std::condition_variable begun_, done_;
  std::vector<std::shared_ptr<Constrained>> rows_;
  std::size_t next_ = 0;  ///< of rows_, not begun
  std::size_t open_ = 0;  ///< rows that are waited for
  std::size_t lost_ = 0;  ///< threads that compute what was given up
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace forge::runtime
