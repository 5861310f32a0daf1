#pragma once
// A hand-made GPU program of three kernels for the null driver: a language model whose next token depends on every
// earlier token through the paged KV pool, and whose weights are uploaded through the staging ring. Used by the tests
// of the GPU executor, the engine and the session.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/gpu/executor.h"
#include "runtime/sampler.h"
#include "runtime/weights/weight_source.h"
#include "tests/null_driver/null_driver.h"

namespace forge::test {

inline constexpr std::int32_t kVocab = 16;
inline constexpr std::int64_t kBlockTokens = 4, kContext = 64;

/// Options of the model; `prefill_samples`: the prefill variant has sample steps too.
struct GpuModelOptions {
  driver::NullOptions driver;
  std::int64_t large_rows =
      0;  ///< rows of 4096 bytes of an additional weight that is larger than the staging ring; 0: none
  bool prefill_samples = false;
};

/// The null driver with the model's kernels, the program, and the model's file.
class GpuModel {
 public:
  explicit GpuModel(const GpuModelOptions& options = {});

  /// Tests may change the program before they open it.
  std::shared_ptr<plan::ProgramT> program;
  std::vector<std::byte> file;
  std::shared_ptr<driver::NullControl> control;

  [[nodiscard]] driver::Driver driver() const { return driver::open_null(control); }
  [[nodiscard]] std::unique_ptr<runtime::GpuExecutor> open(const driver::Driver& driver,
                                                           runtime::ExecutorOptions options = {.threads = 2}) const;

  /// The most likely token after `tokens`, computed from the file's bytes alone: the reference for greedy decoding.
  [[nodiscard]] std::int32_t next(const std::vector<std::int32_t>& tokens) const;
  /// Logits [kVocab] after `tokens`, computed the same way.
  [[nodiscard]] std::vector<float> logits(const std::vector<std::int32_t>& tokens) const;
  /// The bytes of the large weight on the device after repacking.
  [[nodiscard]] std::vector<std::byte> large_weight() const;

  /// What the kernels observed. Kernels write it during a step; tests read it between steps.
  struct Seen {
    std::vector<driver::NullLaunch> repacks;
    std::uint64_t forwards = 0, overlaps = 0, sampled = 0;
    std::uint64_t wrong_lengths = 0;        ///< rows whose kv_length is not their position + 1
    std::uint64_t k = 0, v = 0, large = 0;  ///< addresses that the kernels got
    std::int32_t counts[4] = {}, padding_position = 0;
  };
  std::shared_ptr<Seen> seen = std::make_shared<Seen>();

 private:
  [[nodiscard]] std::uint32_t weight_of(std::int32_t token) const;
  void add_kernels();
  void add_weights(std::int64_t large_rows);
  void add_variant(const char* name, std::int64_t tokens, std::int64_t rows, std::int64_t sequences, bool samples);
};

/// Feeds `tokens` from position `from` on in steps of `chunk` tokens, into blocks 0, 1, ...; returns the last token's
/// logits. Tokens before `from` must already be in the KV pool.
std::vector<float> feed(runtime::Executor& executor, const std::vector<std::int32_t>& tokens, std::size_t from = 0,
                        std::size_t chunk = 8);

/// Block table of one sequence: blocks 0, 1, ...
std::vector<std::int32_t> first_blocks();
/// `tables` repeated for both KV groups.
std::vector<std::int32_t> of_both_groups(std::vector<std::int32_t> tables);

/// The error line that `body` throws with this code, or an empty string if it does not throw.
template <class Body>
std::string error_line(Body&& body, ErrorCode code) {
  try {
    body();
  } catch (const Error& error) {
    if (error.code() != code || error.line().find('\n') != std::string::npos) return "another error: " + error.line();
    return error.line();
  }
  return {};
}

}  // namespace forge::test
