#pragma once
// The machine's plain read rate: how fast threads add up memory that is in no cache. Decoding reads every weight once a
// token, so this is the wall that it can reach.

#include <cstddef>

#include "runtime/memory_block.h"
#include "runtime/thread_pool.h"

namespace forge::tools {

class ReadRate {
 public:
  /// More than the caches of a desktop or of one server die hold.
  static constexpr std::size_t kBytes = std::size_t{256} << 20;

  /// `threads` as for ThreadPool. Takes `bytes` of memory and writes them once. Errors: kMemory.
  explicit ReadRate(std::size_t threads, std::size_t bytes = kBytes);

  /// Reads all of it once on all threads, in order; bytes a second.
  double measure();
  /// The median of `passes`, after one that does not count.
  double median(int passes);
  /// The sum of all that was read: what proves that it was.
  [[nodiscard]] std::uint64_t sum() const { return sum_; }

 private:
  runtime::ThreadPool pool_;
  runtime::MemoryBlock block_;
  std::uint64_t sum_ = 0;
};

}  // namespace forge::tools
