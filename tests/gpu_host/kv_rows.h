#pragma once
// A pool of keys or values as kernels/gpu/kv_pool.h lays it out, written and read by the definition of its type.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "kernels/quant/dtype.h"
#include "kernels/quant/f16.h"
#include "tests/gpu_host/buffer.h"

namespace forge::gpu_host {

/// Rows of `dim` elements, [blocks][heads] of so many: f16 [block_tokens][dim]; for Q8_0 int8 [block_tokens][dim] and
/// then f16 scales [dim / 32][block_tokens]; for Q4_0 bytes [block_tokens][dim / 2] and such scales. Byte 4 i + j of a
/// row of Q4_0 has element 8 i + j in its low bits and element 8 i + 4 + j in its high ones. Fresh memory is NaN,
/// scales too.
class KvRows {
 public:
  KvRows(DType type, int blocks, int heads, int block_tokens, int dim)
      : type_(type),
        block_tokens_(block_tokens),
        dim_(dim),
        memory_(static_cast<std::size_t>(blocks) * heads * block_tokens * row_bytes(type, dim) / 2) {}

  [[nodiscard]] std::uint16_t* data() { return memory_.data(); }
  [[nodiscard]] const std::uint16_t* data() const { return memory_.data(); }
  [[nodiscard]] const Buffer<std::uint16_t>& memory() const { return memory_; }

  /// Row number `row` counts over [blocks][heads][block_tokens].
  void put(std::size_t row, std::span<const float> values) {
    for (int d = 0; d < dim_ && type_ == DType::kF16; ++d) memory_[row * dim_ + d] = quant::f16_of_f32(values[d]);
    for (int d = 0; d < dim_ && type_ != DType::kF16; d += kBlock) {
      const auto block = values.subspan(d, kBlock);
      memory_[scale_at(row, d)] = type_ == DType::kQ8_0 ? put_8(row, d, block) : put_4(row, d, block);
    }
  }
  [[nodiscard]] double get(std::size_t row, int d) const {
    if (type_ == DType::kF16) return quant::f32_of_f16(memory_[row * dim_ + d]);
    const double scale = quant::f32_of_f16(memory_[scale_at(row, d)]);
    if (type_ == DType::kQ8_0) return scale * static_cast<std::int8_t>(bytes(row)[d]);
    const int byte = bytes(row)[d / 8 * 4 + d % 4];
    return scale * ((d % 8 < 4 ? byte % 16 : byte / 16) - 8);
  }
  [[nodiscard]] static std::string format_of(DType type) {
    return type == DType::kF16 ? "KvF16" : type == DType::kQ8_0 ? "KvQ8_0" : "KvQ4_0";
  }

 private:
  static constexpr int kBlock = 32;
  /// Store the quants of a block, and return its scale: NaN if an element is not finite.
  std::uint16_t put_8(std::size_t row, int d, std::span<const float> block) {
    const bool finite = is_finite(block);
    float most = 0;
    for (const float x : block) most = std::max(most, std::fabs(x));
    const auto scale = quant::f16_of_f32(finite ? most / 127.0F : NAN);
    const float step = quant::f32_of_f16(scale), inverse = step > 0 ? 1.0F / step : 0.0F;
    for (int j = 0; j < kBlock; ++j)
      bytes(row)[d + j] = static_cast<std::uint8_t>(
          static_cast<std::int8_t>(finite ? std::nearbyint(std::clamp(block[j] * inverse, -127.0F, 127.0F)) : 0));
    return scale;
  }
  std::uint16_t put_4(std::size_t row, int d, std::span<const float> block) {
    const bool finite = is_finite(block);
    float most = 0;  // of two with the same magnitude, the negative one
    for (const float x : block)
      if (std::fabs(x) > std::fabs(most) || x == -std::fabs(most)) most = x;
    const auto scale = quant::f16_of_f32(finite ? most / -8.0F : NAN);
    const float step = quant::f32_of_f16(scale);
    int quants[kBlock];
    for (int j = 0; j < kBlock; ++j)
      quants[j] = !finite || step == 0 ? 8 : std::clamp(static_cast<int>(std::fma(block[j], 1.0F / step, 8.5F)), 0, 15);
    for (int j = 0; j < kBlock; j += 8)
      for (int i = 0; i < 4; ++i)
        bytes(row)[(d + j) / 2 + i] = static_cast<std::uint8_t>(quants[j + i] + 16 * quants[j + i + 4]);
    return scale;
  }
  static bool is_finite(std::span<const float> block) {
    return std::ranges::all_of(block, [](float x) { return std::isfinite(x); });
  }
  [[nodiscard]] std::size_t head_bytes() const { return block_tokens_ * row_bytes(type_, dim_); }
  [[nodiscard]] std::size_t quant_bytes() const {
    return static_cast<std::size_t>(type_ == DType::kQ8_0 ? dim_ : dim_ / 2);
  }
  [[nodiscard]] std::uint8_t* bytes(std::size_t row) {
    return reinterpret_cast<std::uint8_t*>(memory_.data()) + row / block_tokens_ * head_bytes() +
           row % block_tokens_ * quant_bytes();
  }
  [[nodiscard]] const std::uint8_t* bytes(std::size_t row) const { return const_cast<KvRows*>(this)->bytes(row); }
  [[nodiscard]] std::size_t scale_at(std::size_t row, int d) const {
    const auto scales = row / block_tokens_ * head_bytes() + block_tokens_ * quant_bytes();
    return scales / 2 + static_cast<std::size_t>(d / kBlock) * block_tokens_ + row % block_tokens_;
  }

  DType type_;
  std::size_t block_tokens_;
  int dim_;
  Buffer<std::uint16_t> memory_;
};

}  // namespace forge::gpu_host
