#pragma once
// Race detection for a block's shared memory: for each byte, which lane last wrote and read it, and since which
// barrier.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace forge::gpu_host {

/// The rule: two accesses of one byte by different lanes, at least one of them a write, need a barrier between them,
/// and a byte must be written before it is read in a block.
/// The state of a byte is two stamps, epoch * kStamps + lane + 1, of its last write and its last read. Each barrier
/// begins a new epoch, so barriers and new blocks cost O(1); only when the epoch counter reaches `epochs_max` are all
/// stamps reset.
class Shadow {
 public:
  static constexpr int kLanesMax = 1024;

  explicit Shadow(int epochs_max = INT32_MAX / kStamps - 1) : epochs_max_(epochs_max) {}

  /// Begins a block with `bytes` of shared memory.
  void start(std::size_t bytes) {
    if (bytes > written_.size()) {
      written_.resize(bytes);
      read_.resize(bytes);
    }
    barrier();
    block_ = epoch_ * kStamps;
  }

  /// Begins a new epoch: all earlier accesses are ordered before all later ones.
  void barrier() {
    if (++epoch_ < epochs_max_) return;
    for (std::int32_t& stamp : written_) stamp = stamp > block_ ? 1 : 0;
    read_.assign(read_.size(), 0);
    block_ = 0;
    epoch_ = 1;
  }

  /// Checks a read. Returns nullptr, or a description of the mistake. lane < kLanesMax.
  const char* read(std::size_t at, std::size_t bytes, int lane) {
    const std::int32_t epoch = epoch_ * kStamps, me = epoch + lane + 1;
    bool unwritten = false, raced = false;
    for (std::size_t i = at; i < at + bytes; ++i) {
      unwritten |= written_[i] <= block_;
      raced |= written_[i] > epoch && written_[i] != me;
      read_[i] = read_[i] > epoch && read_[i] != me ? epoch + kMany : me;
    }
    if (unwritten) return "shared memory is read that nobody has written";
    if (raced) return "shared memory is read that another lane wrote, with no barrier between";
    return nullptr;
  }
  const char* write(std::size_t at, std::size_t bytes, int lane) {
    const std::int32_t epoch = epoch_ * kStamps, me = epoch + lane + 1;
    bool wrote = false, read = false;
    for (std::size_t i = at; i < at + bytes; ++i) {
      wrote |= written_[i] > epoch && written_[i] != me;
      read |= read_[i] > epoch && read_[i] != me;
      written_[i] = me;
    }
    if (wrote) return "shared memory is written by two lanes, with no barrier between";
    if (read) return "shared memory is written that another lane read, with no barrier between";
    return nullptr;
  }

 private:
  static constexpr std::int32_t kMany = kLanesMax + 1, kStamps = 2 * kLanesMax;
  std::vector<std::int32_t> written_, read_;
  std::int32_t epochs_max_, epoch_ = 0, block_ = 0;
};

}  // namespace forge::gpu_host
