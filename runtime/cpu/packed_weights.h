#pragma once
// A cache of packed weights on disk, so that a later start maps them instead of packing again. Files are
// <folder>/KEY.weights. KEY is a hash of everything that determines the bytes except the model's data: model identity,
// target, the program's weights and load steps, and forge's build. The model's data are too large to be hashed at each
// start; a stamp of the model file stands for them.
//
// File format: a header of kHeaderBytes with the key, the stamp, the size and checksums; then the weights block exactly
// as it is in memory. A file is complete or absent (it is renamed into place), and its checksums are verified before
// use. The mapping is read-only and shared by all processes that use the model, and its pages can be evicted without
// being written.
//
// As in the plan cache (runtime/plan/cache.h), a problem with the folder or a file is reported as one line, and the
// weights are packed.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "runtime/memory_block.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/thread_pool.h"

namespace forge::runtime {

inline constexpr const char* kPackedWeightsSuffix = ".weights";

/// Where and for which model packed weights are stored.
struct PackedWeightsOptions {
  std::filesystem::path folder;
  std::uint64_t bytes_max = 0;                   ///< limit of all files together
  std::string model;                             ///< model identity: hash of metadata and tensor table
  std::string stamp;                             ///< changes whenever the model file's bytes may have changed
  std::function<void(const std::string&)> note;  ///< called with one line for each problem
};

/// The cache entry of one program's weights.
class PackedWeights {
 public:
  /// Creates the folder. If it cannot be used, that is noted and the object neither finds nor stores anything.
  PackedWeights(PackedWeightsOptions options, const plan::ProgramT& program);

  /// Maps the program's weights and verifies their checksum on all threads. Returns an empty block if there are none.
  [[nodiscard]] MemoryBlock find(ThreadPool& pool) const;
  /// Writes the weights to a temporary file and renames it. Does nothing while another process is writing them. Evicts
  /// the least recently used entries beyond bytes_max.
  void keep(std::span<const std::byte> weights, ThreadPool& pool) const;

  /// The entry's file.
  [[nodiscard]] std::filesystem::path path() const;

 private:
  [[nodiscard]] std::string check_header(int fd, std::uint64_t& weights_hash) const;
  void note_unused(const std::string& why) const;
  void note_not_stored(const std::string& why) const;
  [[nodiscard]] std::string folder_problem() const;

  PackedWeightsOptions options_;
  std::uint64_t bytes_ = 0;
  std::string key_;
  bool usable_ = true;
};

}  // namespace forge::runtime
