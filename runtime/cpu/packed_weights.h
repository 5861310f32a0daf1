#pragma once
// Packed weights kept as files, so that a later start maps them instead of packing again: <folder>/KEY.weights, where
// the key is a hash of everything that decides the bytes but the model's own data: model identity, target, the
// program's weights and load steps, forge's build. The model's data are too large to be hashed at each start; a stamp
// of the model file stands for them. A file is whole or absent (rename), and its checksums are tested before it is
// used.
//
// The file: a header of kHeaderBytes, then the weights block as it lies in memory. A mapping of it is read-only, shared
// by all processes that have the model open, and its pages can leave memory without being written anywhere.
//
// As with plans (runtime/plan/cache.h), whatever is wrong with the folder or a file becomes one line, and the weights
// are packed.

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

struct PackedWeightsOptions {
  std::filesystem::path folder;
  std::uint64_t bytes_max = 0;                   ///< of all files together
  std::string model;                             ///< identity: hash of metadata and tensor table
  std::string stamp;                             ///< another one when the model file's bytes may be others
  std::function<void(const std::string&)> note;  ///< gets what went wrong, a line each
};

class PackedWeights {
 public:
  /// Makes the folder. Notes what keeps it from being used; then nothing is found or kept.
  PackedWeights(PackedWeightsOptions options, const plan::ProgramT& program);

  /// The program's weights, mapped and tested on all threads; an empty block when they are not there.
  [[nodiscard]] MemoryBlock find(ThreadPool& pool) const;
  /// Writes the weights beside their place and renames. Nothing is done while another process writes them.
  void keep(std::span<const std::byte> weights, ThreadPool& pool) const;

  [[nodiscard]] std::filesystem::path path() const;

 private:
  [[nodiscard]] std::string why_not(int fd, std::uint64_t& weights_hash) const;
  void refuse(const std::string& why) const;
  void cannot_keep(const std::string& why) const;
  [[nodiscard]] std::string why_unusable() const;

  PackedWeightsOptions options_;
  std::uint64_t bytes_ = 0;
  std::string key_;
  bool usable_ = true;
};

}  // namespace forge::runtime
