#include "runtime/weights/weight_part.h"

#include <algorithm>

#include "kernels/quant/dtype.h"
#include "runtime/plan/weight_sources.h"

namespace forge::runtime {
namespace {

constexpr std::int64_t kDimMax = std::int64_t{1} << 28;

/// True if 1 <= count, [begin, begin + count) lies in [0, all) and `all` is a plausible dimension.
bool is_range_of(std::int64_t begin, std::int64_t count, std::int64_t all) {
  return all >= 1 && all <= kDimMax && count >= 1 && count <= all && begin >= 0 && begin <= all - count;
}

}  // namespace

std::expected<WeightPart, WeightPart::Refusal> WeightPart::of(const plan::WeightT& weight,
                                                              const plan::WeightSourceT& source,
                                                              const WeightSource& model) {
  const auto* type = find_dtype(weight.dtype);
  const auto matrices = plan::matrices_of(weight);
  if (type == nullptr || type->block_bytes == 0 || matrices < 1 || matrices > kDimMax)
    return std::unexpected("its type or shape is invalid");
  if (source.file >= model.files()) return std::unexpected("a source names a file that the model does not have");
  if (!is_range_of(source.row_begin, source.rows, source.tensor_rows))
    return std::unexpected("a source takes rows that its tensor does not have");
  if (!is_range_of(source.col_begin, source.cols, source.tensor_cols))
    return std::unexpected("a source takes columns that its tensor does not have");
  const auto block = std::int64_t{type->block_elems};
  if (source.tensor_cols % block != 0 || source.col_begin % block != 0 || source.cols % block != 0)
    return std::unexpected("a source's columns are not whole quantisation blocks");

  const auto bytes_of = [&](std::int64_t cols) {
    return std::uint64_t{forge::row_bytes(type->type, static_cast<std::size_t>(cols))};
  };
  const auto count = static_cast<std::uint64_t>(matrices), rows = static_cast<std::uint64_t>(source.rows);
  const auto tensor_row = bytes_of(source.tensor_cols);
  const auto matrix = static_cast<std::uint64_t>(source.tensor_rows) * tensor_row;  // below 2^59, so it cannot overflow
  const auto file_bytes = model.bytes(source.file);
  if (source.offset > file_bytes || matrix > (file_bytes - source.offset) / count)
    return std::unexpected("a source leaves the model file");

  WeightPart part;
  part.file_ = source.file;
  part.offset_ = source.offset + static_cast<std::uint64_t>(source.row_begin) * tensor_row + bytes_of(source.col_begin);
  part.rows_ = count * rows;
  part.row_bytes_ = bytes_of(source.cols);
  // A run is a stretch of consecutive bytes in the file: one row if columns are cut, all rows of a matrix if not, and
  // all matrices if rows are not cut either.
  part.run_bytes_ = part.row_bytes_;
  part.run_stride_ = tensor_row;
  part.runs_ = rows;
  part.matrix_stride_ = matrix;
  if (part.run_bytes_ == part.run_stride_) {
    part.run_bytes_ = rows * tensor_row;
    part.runs_ = 1;
    if (part.run_bytes_ == matrix) part.run_bytes_ *= count;
  }
  return part;
}

/// Converts a byte index of the part to a file offset.
WeightPart::Run WeightPart::run_at(std::uint64_t at) const {
  const auto run = at / run_bytes_, inside = at % run_bytes_;
  return {.offset = offset_ + run / runs_ * matrix_stride_ + run % runs_ * run_stride_ + inside,
          .bytes = run_bytes_ - inside};
}

void WeightPart::read(const WeightSource& model, std::uint64_t first, std::span<std::byte> out) const {
  while (!out.empty()) {
    const auto run = run_at(first);
    const auto now = std::min<std::uint64_t>(run.bytes, out.size());
    model.read(file_, run.offset, out.first(now));
    first += now;
    out = out.subspan(now);
  }
}

void WeightPart::prefetch(const WeightSource& model, std::uint64_t first, std::uint64_t bytes) const noexcept {
  if (bytes == 0) return;
  // One hint for the whole range including gaps: many small hints would take longer.
  const auto begin = run_at(first).offset;
  model.prefetch(file_, begin, run_at(first + bytes - 1).offset + 1 - begin);
}

}  // namespace forge::runtime
