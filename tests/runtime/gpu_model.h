#pragma once
// A hand-made GPU program of three kernels for the null driver: a language model whose next token depends on every
// token before it through the paged KV pool, and whose weights come through the staging ring.

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

struct GpuModelOptions {
  driver::NullOptions driver;
  std::int64_t large_rows = 0;  ///< rows of 4096 bytes of one more weight, to fill the ring
  bool prefill_samples = false;
};

/// A driver with the kernels, the program and the model's bytes.
class GpuModel {
 public:
  explicit GpuModel(const GpuModelOptions& options = {});

  /// The program may be changed before it is opened.
  std::shared_ptr<plan::ProgramT> program;
  std::vector<std::byte> file;
  std::shared_ptr<driver::NullControl> control;

  [[nodiscard]] driver::Driver driver() const { return driver::open_null(control); }
  [[nodiscard]] std::unique_ptr<runtime::GpuExecutor> open(const driver::Driver& driver,
                                                           runtime::ExecutorOptions options = {.threads = 2}) const;

  /// The likeliest token behind `tokens`, computed from the file's bytes alone.
  [[nodiscard]] std::int32_t next(const std::vector<std::int32_t>& tokens) const;
  /// The logits there.
  [[nodiscard]] std::vector<float> logits(const std::vector<std::int32_t>& tokens) const;
  /// What the large weight must look like on the device.
  [[nodiscard]] std::vector<std::byte> large_weight() const;

  /// What the kernels saw; they write, tests read between steps.
  struct Seen {
    std::vector<driver::NullLaunch> repacks;
    std::uint64_t forwards = 0, overlaps = 0, sampled = 0;
    std::uint64_t wrong_lengths = 0;        ///< a row whose kv_length is not behind its position
    std::uint64_t k = 0, v = 0, large = 0;  ///< addresses
    std::int32_t counts[4] = {}, padding_position = 0;
  };
  std::shared_ptr<Seen> seen = std::make_shared<Seen>();

 private:
  [[nodiscard]] std::uint32_t weight_of(std::int32_t token) const;
  void add_kernels();
  void add_weights(std::int64_t large_rows);
  void add_variant(const char* name, std::int64_t tokens, std::int64_t rows, std::int64_t sequences, bool samples);
};

/// Feeds all but what is already in the KV pool, in steps of `chunk`, over blocks 0, 1, ...; logits of the last token.
std::vector<float> feed(runtime::Executor& executor, const std::vector<std::int32_t>& tokens, std::size_t from = 0,
                        std::size_t chunk = 8);

/// A block table of one sequence: blocks 0, 1, ...
std::vector<std::int32_t> first_blocks();
/// The same tables for both KV groups.
std::vector<std::int32_t> of_both_groups(std::vector<std::int32_t> tables);

/// The error line that `body` ends in; empty when it ends well.
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
