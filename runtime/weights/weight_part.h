#pragma once
// A source of a weight (plan.fbs) as bytes of its file, for every executor that loads weights.

#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>

#include "runtime/plan/plan_generated.h"
#include "runtime/weights/weight_source.h"

namespace forge::runtime {

/// The rows that a source takes, one behind the other, matrix by matrix: what loaders copy and repack. Bytes of a part
/// are counted so; where they lie in the file is this class's business.
class WeightPart {
 public:
  /// Why a source is none: it leaves its tensor, its tensor leaves the file, there is no such file, or columns are cut
  /// inside a block.
  using Refusal = const char*;
  [[nodiscard]] static std::expected<WeightPart, Refusal> of(const plan::WeightT& weight,
                                                             const plan::WeightSourceT& source,
                                                             const WeightSource& model);

  [[nodiscard]] std::uint32_t file() const { return file_; }
  /// Of its first byte in the file.
  [[nodiscard]] std::uint64_t offset() const { return offset_; }
  [[nodiscard]] std::size_t row_bytes() const { return row_bytes_; }
  [[nodiscard]] std::uint64_t rows() const { return rows_; }  ///< of all matrices
  [[nodiscard]] std::uint64_t bytes() const { return rows_ * row_bytes_; }

  /// Copies the part's bytes [first, first + out.size()). Errors: those of model.read.
  void read(const WeightSource& model, std::uint64_t first, std::span<std::byte> out) const;
  /// Says that they will be read soon.
  void prefetch(const WeightSource& model, std::uint64_t first, std::uint64_t bytes) const noexcept;

 private:
  /// Where the part's byte `at` lies in the file, and how many follow it there.
  struct Run {
    std::uint64_t offset = 0, bytes = 0;
  };
  [[nodiscard]] Run run_at(std::uint64_t at) const;

  std::uint32_t file_ = 0;
  std::uint64_t offset_ = 0, rows_ = 0;
  std::size_t row_bytes_ = 0;
  // Runs of bytes that follow each other in the file: `runs_` in each matrix.
  std::uint64_t run_bytes_ = 0, run_stride_ = 0, runs_ = 1, matrix_stride_ = 0;
};

}  // namespace forge::runtime
