#pragma once
// Uploads weights from the model file to the device and repacks them there:
//
//   model file --threads read--> pinned slot --copy engine--> device slot --repack kernels, copies--> weights block
//
// Slots of up to 4 MiB form a ring of 8. A slot is filled again only after the event recorded behind its last use.
// Slots alternate between two streams, so that repacking one overlaps with copying the next:
//
//   slot       0      1      2      3    ...
//   stream 0   copy 0 repack 0      copy 2 repack 2
//   stream 1          copy 1 repack 1      copy 3 ...
//
// Threads: one, the dispatcher, makes all driver calls (enqueues full slots, queries events), because drivers serialise
// threads that call them concurrently. The other threads only read: each claims the next read from an atomic counter,
// so they never wait for each other. The dispatcher reads too when it has nothing to enqueue. Waiting threads sleep;
// the ring is long enough that waking up late does not matter. Reads are in file order whatever the order of the plan,
// and the next batches are announced to the operating system (readahead).

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

/// Slots in the staging ring.
inline constexpr std::size_t kStagingSlots = 8;

/// Bytes of one slot: up to 4 MiB, less for a small model, more if a row is larger. Errors: kPlan when a size is out of
/// range.
[[nodiscard]] std::size_t staging_slot_bytes(const plan::ProgramT& program);

/// Loads all weights of a program once.
class WeightUpload {
 public:
  /// Checks all load steps. `weights` and `staging` are the executor's device blocks; `ring` is pinned memory of at
  /// least need.staging bytes, used exclusively until the upload is destroyed. Errors: kPlan for a load step that does
  /// not match its weight, its source or the device; kDevice.
  WeightUpload(const driver::Device& device, const plan::ProgramT& program, const GpuMemory& memory,
               const GpuKernels& kernels, const driver::Buffer& weights, const driver::Buffer& staging,
               const driver::PinnedBuffer& ring, const WeightSource& model);
  WeightUpload(const WeightUpload&) = delete;
  WeightUpload& operator=(const WeightUpload&) = delete;
  ~WeightUpload();

  /// Loads everything and waits until the device has finished. Errors: kIo if the model cannot be read; kDevice.
  LoadReport run(ThreadPool& pool);

 private:
  /// One source of one weight: what is copied and how it is repacked.
  struct Load {
    WeightPart source;
    std::size_t row_bytes = 0;        ///< 0: copied as plain bytes without a kernel
    std::size_t weights_offset = 0;   ///< destination of a plain copy, in the weights block
    std::optional<GpuLaunch> repack;  ///< repack launch; its arguments are described in gpu_io.h
    std::uint32_t blocks_per_row = 0;
  };
  /// Consecutive whole rows (or bytes) of a load that are in one slot.
  struct Piece {
    const Load* load = nullptr;
    std::uint64_t first = 0, bytes = 0;  ///< byte range relative to the load's start
    std::size_t slot_offset = 0;
  };
  /// The contents of one slot.
  struct Batch {
    std::vector<Piece> pieces;
    std::size_t bytes = 0;
  };
  /// The unit that one thread reads: a part of a piece.
  struct Read {
    std::size_t batch = 0;
    const WeightPart* source = nullptr;
    std::uint64_t first = 0;  ///< relative to the source's start
    std::size_t slot_offset = 0, bytes = 0;
    bool is_first = false;  ///< first read of its batch
  };

  Load decode(const plan::StepT& step) const;
  void decode_repack(const plan::StepT& step, const plan::RepackT& repack, const plan::WeightT& weight,
                     Load& load) const;
  void cut_into_batches();
  void cut_into_reads();
  void dispatch_uploads();
  [[nodiscard]] bool is_slot_free(std::size_t batch) const;
  void read_pieces();
  bool read_one();
  void read(const Read& part);
  void give_up(std::exception_ptr error);
  void prefetch_batch(std::size_t batch) const;
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
  std::vector<std::atomic<std::size_t>> reads_left_;  ///< [batches]; 0: the batch is complete
  std::atomic<std::size_t> claimed_ = 0;              ///< index of the next unclaimed entry of reads_
  /// Number of batches, from the first on, whose slots may be filled.
  std::atomic<std::size_t> usable_ = kStagingSlots;
  std::atomic<bool> stopped_ = false;  ///< an error occurred; all threads stop
  std::mutex mutex_;
  std::exception_ptr failed_;  ///< first error; protected by mutex_
  const driver::PinnedBuffer& ring_;
  std::vector<driver::Stream> streams_;
  // [kStagingSlots], recorded behind the last use of each slot.
  std::vector<driver::Event> slot_free_;
};

}  // namespace forge::runtime
