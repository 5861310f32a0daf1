#pragma once
// WeightPart maps one source of a weight (WeightSource in plan.fbs) to byte ranges of the model file. Used by the CPU
// and GPU loaders.

#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>

#include "runtime/plan/plan_generated.h"
#include "runtime/weights/weight_source.h"

namespace forge::runtime {

/// The rectangle of rows and columns that a source takes of each of its matrices, seen as one sequence of bytes: row
/// after row, matrix after matrix. Loaders address bytes of this sequence; this class finds them in the file.
///
///   tensor, one matrix            part (bytes 0..)
///   . . . . . . . .
///   . . a a a . . .               a a a b b b c c c
///   . . b b b . . .       ->
///   . . c c c . . .               each row is a run; with whole columns all rows are one run
class WeightPart {
 public:
  /// Why a source is refused: it leaves its tensor, the tensor leaves the file, the file does not exist, or columns are
  /// not cut at whole quantisation blocks.
  using Refusal = const char*;
  /// Checks a source against the model's files. `model` must have the files that the plan was compiled for.
  [[nodiscard]] static std::expected<WeightPart, Refusal> of(const plan::WeightT& weight,
                                                             const plan::WeightSourceT& source,
                                                             const WeightSource& model);

  [[nodiscard]] std::uint32_t file() const { return file_; }
  /// Offset of the part's first byte in the file.
  [[nodiscard]] std::uint64_t offset() const { return offset_; }
  [[nodiscard]] std::size_t row_bytes() const { return row_bytes_; }
  [[nodiscard]] std::uint64_t rows() const { return rows_; }  ///< over all matrices
  [[nodiscard]] std::uint64_t bytes() const { return rows_ * row_bytes_; }

  /// Copies the part's bytes [first, first + out.size()). Errors: those of model.read.
  void read(const WeightSource& model, std::uint64_t first, std::span<std::byte> out) const;
  /// Hints that the part's bytes [first, first + bytes) will be read soon.
  void prefetch(const WeightSource& model, std::uint64_t first, std::uint64_t bytes) const noexcept;

 private:
  /// Position of the part's byte `at` in the file, and the number of consecutive bytes from there.
  struct Run {
    std::uint64_t offset = 0, bytes = 0;
  };
  [[nodiscard]] Run run_at(std::uint64_t at) const;

  std::uint32_t file_ = 0;
  std::uint64_t offset_ = 0, rows_ = 0;
  std::size_t row_bytes_ = 0;
  // Geometry of the runs: each is run_bytes_ long; there are runs_ per matrix, run_stride_ bytes apart.
  std::uint64_t run_bytes_ = 0, run_stride_ = 0, runs_ = 1, matrix_stride_ = 0;
};

}  // namespace forge::runtime
