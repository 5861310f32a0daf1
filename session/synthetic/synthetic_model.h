#pragma once
// Random-weight models of real shapes, for measuring speed without a model file. A model of one shape and type is the
// same bytes everywhere and every time.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "kernels/quant/dtype.h"
#include "session/synthetic/synthetic_pool.h"
#include "support/os/unique_fd.h"

namespace forge::session {

/// A dense llama.
struct SyntheticShape {
  std::string_view name;   ///< what --synthetic calls it
  std::string_view title;  ///< of the model that has this shape
  std::int64_t layers, width, ffn, heads, kv_heads, head_dim, vocab;
  bool tied;  ///< the embedding table is the output's, too
  float rope_base;
  std::int64_t context;
  double rope_factor;  ///< of Llama 3's long wavelengths; 0: no factors
};

struct SyntheticModel {
  const SyntheticShape* shape = nullptr;
  DType type{};
  /// "1b:q4_0". Errors: kUsage naming the shapes, or the types that a weight can have.
  static SyntheticModel parse(std::string_view text);
  [[nodiscard]] std::string name() const;
  [[nodiscard]] std::uint64_t weight_bytes() const;
};

/// The model as a GGUF file, piece by piece. Throws what `sink` throws, and Interrupted between tensors.
void write_synthetic(const SyntheticModel& model, const ByteSink& sink);

/// The model in memory: a file that stands in no folder and goes with this object.
class SyntheticFile {
 public:
  /// Errors: kMemory when it does not fit beside a copy of its weights; kIo.
  explicit SyntheticFile(const SyntheticModel& model);
  /// What open() takes, in this process.
  [[nodiscard]] std::string path() const;

 private:
  UniqueFd fd_;
};

/// The same as a file that appears whole or not at all. Errors: those of AtomicFile.
void save_synthetic(const SyntheticModel& model, const std::filesystem::path& path);

}  // namespace forge::session
