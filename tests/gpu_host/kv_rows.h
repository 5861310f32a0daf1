#pragma once
// A pool of keys or values as kernels/gpu/kv_pool.h lays it out, written and read by the definition of its type.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>

#include "kernels/quant/dtype.h"
#include "kernels/quant/f16.h"
#include "tests/gpu_host/buffer.h"

namespace forge::gpu_host {

/// Rows of `dim` elements, [blocks][heads] of so many: f16 [block_tokens][dim]; for Q8_0 int8 [block_tokens][dim] and
/// then f16 scales [dim / 32][block_tokens]; for Q4_0 bytes [block_tokens][dim / 2] and such scales. Byte 4 i + j of a
/// row of Q4_0 has element 8 i + j in its low bits and element 8 i + 4 + j in its high ones. Fp8 is bytes
/// [block_tokens][dim], in the encoding FNUZ or OCP. Fresh memory is NaN, scales too.
class KvRows {
 public:
  KvRows(DType type, int blocks, int heads, int block_tokens, int dim, bool fnuz = false)
      : type_(type),
        fnuz_(fnuz),
        block_tokens_(block_tokens),
        dim_(dim),
        memory_(static_cast<std::size_t>(blocks) * heads * block_tokens * row_bytes(type, dim) / 2) {
    if (type == DType::kFp8 && fnuz) memory_.fill(kNanFnuz * 0x101);
  }

  [[nodiscard]] std::uint16_t* data() { return memory_.data(); }
  [[nodiscard]] const std::uint16_t* data() const { return memory_.data(); }
  [[nodiscard]] const Buffer<std::uint16_t>& memory() const { return memory_; }

  /// Row number `row` counts over [blocks][heads][block_tokens].
  void put(std::size_t row, std::span<const float> values) {
    for (int d = 0; d < dim_ && type_ == DType::kF16; ++d) memory_[row * dim_ + d] = quant::f16_of_f32(values[d]);
    for (int d = 0; d < dim_ && type_ == DType::kFp8; ++d) bytes(row)[d] = fp8_code(values[d]);
    for (int d = 0; d < dim_ && (type_ == DType::kQ8_0 || type_ == DType::kQ4_0); d += kBlock) {
      const auto block = values.subspan(d, kBlock);
      memory_[scale_at(row, d)] = type_ == DType::kQ8_0 ? put_8(row, d, block) : put_4(row, d, block);
    }
  }
  [[nodiscard]] double get(std::size_t row, int d) const {
    if (type_ == DType::kF16) return quant::f32_of_f16(memory_[row * dim_ + d]);
    if (type_ == DType::kFp8) return fp8_number(bytes(row)[d]);
    const double scale = quant::f32_of_f16(memory_[scale_at(row, d)]);
    if (type_ == DType::kQ8_0) return scale * static_cast<std::int8_t>(bytes(row)[d]);
    const int byte = bytes(row)[d / 8 * 4 + d % 4];
    return scale * ((d % 8 < 4 ? byte % 16 : byte / 16) - 8);
  }
  [[nodiscard]] static std::string format_of(DType type) {
    switch (type) {
      case DType::kQ8_0:
        return "KvQ8_0";
      case DType::kQ4_0:
        return "KvQ4_0";
      case DType::kFp8:
        return "KvFp8";
      default:
        return "KvF16";
    }
  }
  /// The target whose macros kernels with a cache of this type need; null for any. Its encoding of 8-bit floats is FNUZ
  /// for waves of 64.
  [[nodiscard]] static const char* target_of(DType type, int wave) {
    return type != DType::kFp8 ? nullptr : wave == 64 ? "gfx942" : "gfx1201";
  }

 private:
  static constexpr int kBlock = 32, kNanFnuz = 0x80, kNanOcp = 0x7f;
  /// The number of a byte: one bit of sign, four of exponent, three of mantissa.
  [[nodiscard]] double fp8_number(int code) const {
    const int exponent = code / 8 % 16, mantissa = code % 8, bias = fnuz_ ? 8 : 7;
    if (fnuz_ ? code == kNanFnuz : code % 128 == kNanOcp) return std::numeric_limits<double>::quiet_NaN();
    const double magnitude = std::ldexp(exponent == 0 ? mantissa : mantissa + 8, std::max(exponent, 1) - bias - 3);
    return code < 128 ? magnitude : -magnitude;
  }
  /// The byte of the nearest number; of two the even byte.
  [[nodiscard]] std::uint8_t fp8_code(float x) const {
    if (std::isnan(x)) return fnuz_ ? kNanFnuz : kNanOcp;
    const double size = std::min<double>(std::fabs(x), fnuz_ ? 240 : 448);
    int best = 0;
    for (int code = 1; code < 128; ++code) {
      const double error = std::fabs(fp8_number(code) - size), least = std::fabs(fp8_number(best) - size);
      if (error < least || (error == least && code % 2 == 0)) best = code;
    }
    return static_cast<std::uint8_t>(std::signbit(x) && !(fnuz_ && best == 0) ? best + 128 : best);
  }
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
    return static_cast<std::size_t>(type_ == DType::kQ4_0 ? dim_ / 2 : dim_);
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
  bool fnuz_;
  std::size_t block_tokens_;
  int dim_;
  Buffer<std::uint16_t> memory_;
};

}  // namespace forge::gpu_host
