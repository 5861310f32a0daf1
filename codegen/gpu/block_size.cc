#include "codegen/gpu/block_size.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <span>
#include <vector>

namespace forge::codegen {
namespace {

/// A block size of mma.sync with what it takes on an H100: nanoseconds for a column of k, of a block that has a unit
/// for itself (alone) and per block where several share one (shared), as many as `resident`; microseconds for the rest
/// of a block (ends), and for each part that shares its k (part). Fitted to 1,170 measured times: 1B Q8_0 and BF16, 8B
/// and Gemma 3 4B Q4_K_M, 128, 512 and 2,048 tokens, all sizes in 1, 2 and 4 parts. The choice is 0.7 % slower
/// than the fastest in the mean, 11 % at most.
struct MmaSize {
  TileSize size;
  double alone, shared;
  std::int64_t resident;
  double ends, part;
};
constexpr MmaSize kMmaSizes[] = {{{128, 256}, 28.2, 27.3, 1, 12.5, 2.83},
                                 {{128, 128}, 25.2, 15.8, 2, 7.95, 2.80},
                                 {{64, 128}, 17.9, 5.56, 2, 7.86, 0.14},
                                 {{128, 64}, 18.5, 12.8, 4, 5.38, 1.15},
                                 {{64, 64}, 15.0, 6.74, 5, 3.05, 1.00}};

/// Microseconds that the units take for a grid of such blocks, `splits` of which share k.
double time_of(const MmaSize& mma, const TilesProblem& problem, std::int64_t splits) {
  constexpr std::int64_t kUnits = 132;
  constexpr double kSplit = 8.36;  // for adding up parts, however many
  const auto columns = static_cast<double>(problem.k) / static_cast<double>(splits);
  const auto together = [&](std::int64_t blocks) {
    const auto column = std::max(mma.alone, static_cast<double>(blocks) * mma.shared);
    return column * 1e-3 * columns + mma.ends + (splits > 1 ? static_cast<double>(splits) * mma.part : 0.0);
  };
  const auto blocks = (problem.blocks(mma.size) * splits + kUnits - 1) / kUnits, rest = blocks % mma.resident;
  const auto full = blocks / mma.resident;
  return static_cast<double>(full) * together(mma.resident) + (rest > 0 ? together(rest) : 0.0) +
         (splits > 1 ? kSplit : 0.0);
}

/// The size, and the number of blocks that share k, that take the least time.
SplitSize fastest(std::span<const MmaSize> sizes, const TilesProblem& problem) {
  constexpr std::int64_t kPartLeast = 512;
  std::optional<SplitSize> best;
  double least = 0;
  for (const auto& mma : sizes)
    for (const std::int64_t splits : {1, 2, 4}) {
      if (splits > 1 && (problem.k % (splits * 64) != 0 || problem.k / splits < kPartLeast)) break;
      const auto time = time_of(mma, problem, splits);
      if (!best || time < least) best = SplitSize{mma.size, splits}, least = time;
    }
  return *best;
}

/// A block size of mma.sync for experts, and its products per time, relative to each other: large blocks move fewer
/// bytes between shared memory and registers per product.
struct ExpertSize {
  TileSize size;
  double rate;
};
constexpr ExpertSize kMmaExpertSizes[] = {
    {{128, 128}, 0.85}, {{128, 64}, 0.65}, {{64, 64}, 0.5}, {{128, 32}, 0.4}, {{64, 32}, 0.3}};

/// The size for experts, whose grids are large: time goes by the tiles of an average expert, of which the last is half
/// empty.
TileSize fastest(std::span<const ExpertSize> sizes, const TilesProblem& problem) {
  const auto slots = static_cast<double>(problem.rows_of_out()) / static_cast<double>(problem.experts);
  const auto time = [&](const ExpertSize& of) {
    const auto tokens = static_cast<double>(of.size.tokens);
    return std::max(1.0, slots / tokens + 0.5) * tokens / of.rate;
  };
  return std::ranges::min_element(sizes, std::less<>(), time)->size;
}

/// The largest size whose grid has work for the target, where need be with several blocks that share k; else the last.
SplitSize largest_with_work(std::span<const TileSize> sizes, const GpuTarget& target, const TilesProblem& problem) {
  constexpr std::int64_t kWavesWmma = 128, kWavesMfma = 512, kPartLeast = 256;
  const auto wasted = [&](const TileSize& size) { return (size.rows - problem.rows % size.rows) % size.rows; };
  for (const auto& size : sizes)
    for (const std::int64_t splits : {1, 2, 4}) {
      if (wasted(size) * 16 > problem.rows) break;
      if (splits > 1 && (problem.k % (splits * 32) != 0 || problem.k / splits < kPartLeast)) break;
      const auto waves = problem.blocks(size) * splits * (size.rows / kWaveTile) * (size.tokens / kWaveTile);
      if (waves >= (is_wmma(target.matrix) ? kWavesWmma : kWavesMfma)) return {size, splits};
    }
  return {sizes.back()};
}

/// The largest size whose tiles the slots of an average expert fill, nearly; else the last.
TileSize largest_filled(std::span<const TileSize> sizes, const TilesProblem& problem) {
  for (const auto& size : sizes)
    if (problem.rows_of_out() / problem.experts * 3 / 2 >= size.tokens || size.tokens == 32) return size;
  return sizes.back();
}

TileSize size_of(const TileSize& size) {
  return size;
}
template <class Measured>
TileSize size_of(const Measured& measured) {
  return measured.size;
}
/// Those of `all` that fit.
template <class Size, std::size_t N>
std::vector<Size> fitting(const Size (&all)[N], const TilesProblem& problem, const EpilogueShape& shape) {
  std::vector<Size> out;
  std::ranges::copy_if(all, std::back_inserter(out),
                       [&](const Size& one) { return fits(size_of(one), problem, shape); });
  return out;
}

}  // namespace

bool fits(const TileSize& size, const TilesProblem& problem, const EpilogueShape& shape) {
  return size.rows % shape.multiple_of == 0 && (shape.divides == 0 || shape.divides % size.rows == 0) &&
         problem.rows >= size.rows;
}

std::optional<SplitSize> choose_size(const GpuTarget& target, const TilesProblem& problem, const EpilogueShape& shape) {
  constexpr TileSize kSizes[] = {{128, 128}, {64, 128}, {64, 64}},
                     kExpertSizes[] = {{128, 64}, {64, 64}, {128, 32}, {64, 32}};
  const bool mma = target.matrix == MatrixKind::kMma;
  if (mma && problem.experts > 1) {
    const auto sizes = fitting(kMmaExpertSizes, problem, shape);
    return sizes.empty() ? std::nullopt : std::optional(SplitSize{fastest(sizes, problem)});
  }
  if (mma) {
    auto sizes = fitting(kMmaSizes, problem, shape);
    // The largest blocks have few registers left to hide the latency of memory, so they need four steps at once.
    std::erase_if(sizes, [&](const MmaSize& one) {
      return one.size.rows * one.size.tokens > 128 * 128 &&
             4 * 2 * (one.size.rows + one.size.tokens) * 64 > target.lds_bytes_per_block;
    });
    return sizes.empty() ? std::nullopt : std::optional(fastest(sizes, problem));
  }
  const auto sizes = problem.experts > 1 ? fitting(kExpertSizes, problem, shape) : fitting(kSizes, problem, shape);
  if (sizes.empty()) return std::nullopt;
  return problem.experts > 1 ? SplitSize{largest_filled(sizes, problem)} : largest_with_work(sizes, target, problem);
}

}  // namespace forge::codegen
