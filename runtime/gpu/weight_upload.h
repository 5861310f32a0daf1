#pragma once
// Weights from the model file onto the device:
//
//   file -> pinned slot (threads read, in parallel) -> device slot (copy engine) -> weights (repack kernels, copies)
//
// Slots of 4 MiB form a ring; each is filled again only after the event behind its last use. Neighbouring slots go
// through two streams, so that one's repacking runs beside the other's copy. One thread, the conductor, speaks with the
// driver: it puts full slots on their streams and asks for events, for a driver that many threads call at once makes
// them wait for each other. The others only read, one piece after the other, and never meet; the conductor reads too
// while there is nothing to conduct. Who waits naps: the ring is long enough to be late in it. The order is the file's,
// whatever the plan's is, and what comes next is announced to the kernel ahead of time.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/driver/driver.h"
#include "runtime/gpu/gpu_program.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/thread_pool.h"
#include "runtime/weights/weight_part.h"
#include "runtime/weights/weight_source.h"

namespace forge::runtime {

inline constexpr std::size_t kStagingSlots = 8;

/// Bytes of a slot: less than 4 MiB for a small model, more where a row is larger. Errors: kPlan for absurd sizes.
[[nodiscard]] std::size_t staging_slot_bytes(const plan::ProgramT& program);

class WeightUpload {
 public:
  /// Checks all load steps. `weights` and `staging` are the executor's blocks; `ring` has need.staging bytes at least,
  /// which are the upload's as long as it lives.
  /// Errors: kPlan for a load step that does not fit its weight, its source or the device; kDevice.
  WeightUpload(const driver::Device& device, const plan::ProgramT& program, const GpuMemory& memory,
               const GpuKernels& kernels, const driver::Buffer& weights, const driver::Buffer& staging,
               const driver::PinnedBuffer& ring, const WeightSource& model);
  WeightUpload(const WeightUpload&) = delete;
  WeightUpload& operator=(const WeightUpload&) = delete;
  ~WeightUpload();

  /// Copies everything and waits for it. Errors: kIo when the model cannot be read; kDevice.
  LoadReport run(ThreadPool& pool);

 private:
  /// One source of one weight.
  struct Load {
    WeightPart source;
    std::size_t row_bytes = 0;        ///< 0: plain bytes, no kernel
    std::size_t weights_offset = 0;   ///< of a plain copy
    std::optional<GpuLaunch> repack;  ///< its args: those of gpu_io.h
    std::uint32_t blocks_per_row = 0;
  };
  /// Consecutive whole rows (or bytes) of a load in a slot.
  struct Piece {
    const Load* load = nullptr;
    std::uint64_t first = 0, bytes = 0;  ///< bytes from the load's start
    std::size_t slot_offset = 0;
  };
  struct Batch {
    std::vector<Piece> pieces;
    std::size_t bytes = 0;
  };
  /// A part of a piece that one thread reads.
  struct Read {
    std::size_t batch = 0;
    const WeightPart* source = nullptr;
    std::uint64_t first = 0;  ///< bytes from the source's start
    std::size_t slot_offset = 0, bytes = 0;
    bool is_first = false;  ///< of its batch
  };

  Load decode(const plan::StepT& step) const;
  void decode_repack(const plan::StepT& step, const plan::RepackT& repack, const plan::WeightT& weight,
                     Load& load) const;
  void cut_into_batches();
  void cut_into_reads();
  void conduct();
  [[nodiscard]] bool is_slot_free(std::size_t batch) const;
  void read_pieces();
  bool read_one();
  void read(const Read& part);
  void give_up(std::exception_ptr error);
  void announce(std::size_t batch) const;
  void enqueue(const Batch& batch, std::size_t slot);
  void upload_constants();
  void drain() noexcept;

  const plan::ProgramT& program_;
  const GpuMemory& memory_;
  const GpuKernels& kernels_;
  const driver::Buffer& weights_;
  const driver::Buffer& staging_;
  const WeightSource& model_;
  std::vector<Load> loads_;
  std::vector<Batch> batches_;
  std::vector<Read> reads_;
  std::vector<std::atomic<std::size_t>> reads_left_;  ///< [batches]
  std::atomic<std::size_t> claimed_ = 0;              ///< of reads_, in order
  std::atomic<std::size_t> usable_ = kStagingSlots;   ///< batches whose slots may be filled, from the first on
  std::atomic<bool> stopped_ = false;                 ///< something failed
  std::mutex mutex_;
  std::exception_ptr failed_;  ///< the first one; under mutex_
  const driver::PinnedBuffer& ring_;
  std::vector<driver::Stream> streams_;
  std::vector<driver::Event> slot_free_;
};

}  // namespace forge::runtime
