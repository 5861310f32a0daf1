#pragma once
// Measures the machine's memory read rate: how fast threads sum up a block of memory that is larger than the caches.
// Decode reads every weight once per token, so this rate is an upper bound of its speed.

#include <cstddef>

#include "runtime/memory_block.h"
#include "runtime/thread_pool.h"

namespace forge::tools {

/// A block of memory and the threads that read it.
class ReadRate {
 public:
  /// Default size of the block: larger than the caches of a desktop CPU or of one server die.
  static constexpr std::size_t kBytes = std::size_t{256} << 20;

  /// `threads` as for ThreadPool. Allocates `bytes` and writes them once. Errors: kMemory.
  explicit ReadRate(std::size_t threads, std::size_t bytes = kBytes);

  /// Reads the block once on all threads; returns bytes per second.
  double measure();
  /// The median of `passes` measurements, after one warm-up.
  double median(int passes);
  /// The sum of all words of the last measurement; keeps the compiler from removing the reads.
  [[nodiscard]] std::uint64_t sum() const { return sum_; }

 private:
  runtime::ThreadPool pool_;
  runtime::MemoryBlock block_;
  std::uint64_t sum_ = 0;
};

}  // namespace forge::tools
