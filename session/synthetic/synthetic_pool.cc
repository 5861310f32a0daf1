#include "session/synthetic/synthetic_pool.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "kernels/quant/rows.h"
#include "kernels/quant/x16_codes.h"

namespace forge::session {
namespace {

constexpr float kDeviation = 0.02F;  ///< standard deviation; about that of trained weights of a small model

/// A nearly normal number: the sum of four uniform ones (Irwin-Hall distribution). The arithmetic is exact, so the
/// result is the same on every machine.
float random_weight(Random& random) {
  const std::uint64_t bits = random.next();
  const auto sum = static_cast<float>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48));
  constexpr float kSumDeviation = 0.57735F;  // sqrt(4 / 12): of the sum of four uniform numbers in [0, 1)
  return (sum / 65536 - 2) * (kDeviation / kSumDeviation);
}

/// Sets the scale of a block. If the block type has a minimum, it is set so that the mean weight is about 0.
template <class Block>
void put_scale(Block& block, float scale) {
  const float mean = static_cast<float>(quant::raw_max<Block>()) / 2;
  if constexpr (requires { block.e; })
    block.e = static_cast<quant::u8>(128 + std::ilogb(scale * std::numbers::sqrt2_v<float>));  // the nearest power
  else
    block.d = quant::f16_of_f32(scale);
  if constexpr (requires { block.dmin; }) block.dmin = quant::f16_of_f32(scale * mean);
  if constexpr (requires { block.m; }) block.m = quant::f16_of_f32(-scale * mean);
}
/// Of the codes 0 to 3 of two bits, 1 stands for zero. A random 3, which TQ2_0 does not have, becomes 1.
template <class Block>
void put_ternary_scale(Block& block, float scale) {
  for (auto& byte : block.qs) byte = static_cast<quant::u8>(byte & ~((byte & byte >> 1 & 0x55) << 1));
  block.d = quant::f16_of_f32(scale);
}
void put_scale(quant::BlockTQ2_0& block, float scale) {
  put_ternary_scale(block, scale);
}
void put_scale(quant::BlockQ2_0& block, float scale) {
  put_ternary_scale(block, scale);
}
/// NVFP4's four scales: the nearest number in E4M3. Below 2^-6 these are multiples of 2^-9; above, eighths of a power
/// of two, where a fraction rounded up to 1 gives the next power.
void put_scale(quant::BlockNVFP4& block, float scale) {
  const int exponent = std::max(std::ilogb(scale), -6);
  const auto eighths = std::lround(std::ldexp(scale, 3 - exponent));  // 8 .. 16; less for subnormal numbers
  std::ranges::fill(block.d, static_cast<quant::u8>(std::min(8L * (exponent + 6) + eighths, 0x7eL)));
}
/// IQ1_M stores the f16 scale in the top nibbles of its four 16-bit scale words.
void put_scale(quant::BlockIQ1_M& block, float scale) {
  const unsigned bits = quant::f16_of_f32(scale);
  for (std::size_t word = 0; word < 4; ++word) {
    auto& byte = block.scales[2 * word + 1];
    byte = static_cast<quant::u8>((byte & 15U) | (bits >> (4 * word) & 15U) << 4);
  }
}

template <class Block>
void random_blocks(std::span<std::byte> out) {
  Random random;
  for (std::size_t at = 0; at < out.size(); at += 8) {
    const auto word = random.next();
    std::memcpy(out.data() + at, &word, std::min<std::size_t>(8, out.size() - at));
  }
  const auto scale_all = [&](std::size_t blocks, float scale) {
    for (std::size_t b = 0; b < blocks; ++b) {
      Block block;
      std::memcpy(&block, out.data() + b * sizeof block, sizeof block);
      put_scale(block, scale);
      std::memcpy(out.data() + b * sizeof block, &block, sizeof block);
    }
  };
  // Dequantise a few blocks with scale 1 and measure their deviation; from it follows the scale for kDeviation.
  const std::size_t blocks = out.size() / sizeof(Block), few = std::min<std::size_t>(blocks, 64);
  scale_all(few, 1);
  std::vector<float> values(few * Block::kElems);
  quant::dequantize_blocks<Block>(out.data(), values.size(), values.data());
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
  scale_all(blocks, kDeviation / static_cast<float>(std::sqrt(squares / static_cast<double>(values.size()))));
}

}  // namespace

std::optional<SyntheticPool> SyntheticPool::make(DType type, std::size_t elems) {
  if (!quant::has_kernels(type)) return {};
  SyntheticPool pool;
  pool.bytes_.resize(row_bytes(type, elems));
  pool.block_bytes_ = dtype_info(type).block_bytes;
  Random random;
  std::vector<float> values(elems);
  for (auto& value : values) value = random_weight(random);
  if (quant::quantize_row(type, values.data(), elems, pool.bytes_.data())) return pool;
  quant::with_block(type, [&]<class Block>(std::type_identity<Block>) {
    if constexpr (quant::HasPacking<Block>) random_blocks<Block>(pool.bytes_);
  });
  return pool;
}

void SyntheticPool::write(std::uint64_t bytes, Random& random, const ByteSink& sink) const {
  std::size_t from = random.next() % (bytes_.size() / block_bytes_) * block_bytes_;
  while (bytes > 0) {
    const auto piece = std::min<std::uint64_t>(bytes, bytes_.size() - from);
    sink(std::span(bytes_).subspan(from, piece));
    bytes -= piece;
    from = 0;
  }
}

}  // namespace forge::session
