// See embed_sources.h. Each source becomes the inner part of a larger tensor of random bytes, so that a wrong offset,
// stride or row count reads noise.
#include "tests/e2e/embed_sources.h"

#include <algorithm>
#include <random>

#include "kernels/quant/dtype.h"
#include "runtime/plan/weight_sources.h"

namespace forge::tests {
namespace {

constexpr std::int64_t kRowsBefore = 3, kRowsBehind = 2, kBlocksLeft = 1, kBlocksRight = 2;

std::size_t size(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

void embed(const plan::WeightT& weight, plan::WeightSourceT& source, std::span<const std::byte> model,
           std::vector<std::byte>& file) {
  const auto type = static_cast<DType>(weight.dtype);
  const auto block = std::int64_t{dtype_info(type).block_elems};
  const std::size_t from_row = row_bytes(type, size(source.tensor_cols));
  const std::byte* from = model.data() + source.offset + size(source.row_begin) * from_row;
  const auto from_matrix = size(source.tensor_rows) * from_row;

  plan::WeightSourceT part = source;
  part.file = 1;
  part.offset = file.size() + 4;
  part.tensor_rows = kRowsBefore + source.rows + kRowsBehind;
  part.tensor_cols = (kBlocksLeft + kBlocksRight) * block + source.cols;
  part.row_begin = kRowsBefore;
  part.col_begin = kBlocksLeft * block;
  const std::size_t row = row_bytes(type, size(part.tensor_cols)), left = row_bytes(type, size(part.col_begin));
  const auto matrices = size(plan::matrices_of(weight));
  std::minstd_rand noise(static_cast<unsigned>(file.size()) + 1);
  file.resize(part.offset + matrices * size(part.tensor_rows) * row);
  std::generate(file.begin() + static_cast<std::ptrdiff_t>(part.offset), file.end(),
                [&] { return static_cast<std::byte>(noise()); });
  for (std::size_t m = 0; m < matrices; ++m)
    for (std::size_t r = 0; r < size(source.rows); ++r)
      std::copy_n(from + m * from_matrix + r * from_row, from_row,
                  file.begin() + static_cast<std::ptrdiff_t>(
                                     part.offset + (m * size(part.tensor_rows) + kRowsBefore + r) * row + left));
  source = std::move(part);
}

}  // namespace

std::vector<std::byte> embed_sources(plan::ProgramT& program, std::span<const std::byte> model) {
  std::vector<std::byte> file;
  for (auto& weight : program.weights)
    for (auto& source : weight->sources) embed(*weight, *source, model, file);
  return file;
}

}  // namespace forge::tests
