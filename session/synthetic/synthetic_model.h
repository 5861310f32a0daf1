#pragma once
// Models with random weights in the shapes of real models, written as GGUF: for forge-bench --synthetic, tests, and the
// GPU self-test. The same shape and type give the same bytes on every machine.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "kernels/quant/dtype.h"
#include "session/synthetic/synthetic_pool.h"
#include "support/os/unique_fd.h"

namespace forge::session {

/// The shape of a dense llama.
struct SyntheticShape {
  std::string_view name;   ///< name for --synthetic
  std::string_view title;  ///< the model that has this shape
  std::int64_t layers, width, ffn, heads, kv_heads, head_dim, vocab;
  bool tied;  ///< the output projection is the embedding table
  float rope_base;
  std::int64_t context;
  double rope_factor;  ///< Llama 3's RoPE scaling factor of long wavelengths; 0: none
};

struct SyntheticModel {
  const SyntheticShape* shape = nullptr;
  DType type{};
  /// Parses SHAPE:TYPE, "1b:q4_0". Errors: kUsage, with the list of shapes or types.
  static SyntheticModel parse(std::string_view text);
  [[nodiscard]] std::string name() const;
  [[nodiscard]] std::uint64_t weight_bytes() const;
};

/// Writes the model as a GGUF file to `sink`, piece by piece. Throws what `sink` throws, and Interrupted between
/// tensors.
void write_synthetic(const SyntheticModel& model, const ByteSink& sink);

/// The model as an anonymous file in memory (memfd_create), which is gone when this object is destroyed.
class SyntheticFile {
 public:
  /// Errors: kMemory when there is no room for it and a second copy of its weights, which a CPU executor makes; kIo.
  explicit SyntheticFile(const SyntheticModel& model);
  /// A path that this process can open: /proc/self/fd/N.
  [[nodiscard]] std::string path() const;

 private:
  UniqueFd fd_;
};

/// Writes the model to `path` atomically. Errors: those of AtomicFile.
void save_synthetic(const SyntheticModel& model, const std::filesystem::path& path);

}  // namespace forge::session
