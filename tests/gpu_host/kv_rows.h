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

/// Rows of `dim` elements, [blocks][heads] of so many: f16 [block_tokens][dim], or for Q8_0 int8 [block_tokens][dim]
/// and then f16 scales [dim / 32][block_tokens]. Fresh memory is NaN, scales too.
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
    for (int d = 0; d < dim_ && type_ == DType::kQ8_0; d += kBlock) {
      float most = 0;
      bool finite = true;
      for (int j = 0; j < kBlock; ++j) {
        most = std::max(most, std::fabs(values[d + j]));
        finite = finite && std::isfinite(values[d + j]);
      }
      const auto scale = quant::f16_of_f32(finite ? most / 127.0F : NAN);
      const float step = quant::f32_of_f16(scale), inverse = step > 0 ? 1.0F / step : 0.0F;
      for (int j = 0; j < kBlock; ++j)
        quants(row)[d + j] =
            static_cast<std::int8_t>(finite ? std::nearbyint(std::clamp(values[d + j] * inverse, -127.0F, 127.0F)) : 0);
      memory_[scale_at(row, d)] = scale;
    }
  }
  [[nodiscard]] double get(std::size_t row, int d) const {
    if (type_ == DType::kF16) return quant::f32_of_f16(memory_[row * dim_ + d]);
    return static_cast<double>(quants(row)[d]) * quant::f32_of_f16(memory_[scale_at(row, d)]);
  }
  [[nodiscard]] static std::string format_of(DType type) { return type == DType::kF16 ? "KvF16" : "KvQ8_0"; }

 private:
  static constexpr int kBlock = 32;
  [[nodiscard]] std::size_t head_bytes() const { return block_tokens_ * row_bytes(type_, dim_); }
  [[nodiscard]] std::int8_t* quants(std::size_t row) {
    return reinterpret_cast<std::int8_t*>(memory_.data()) + row / block_tokens_ * head_bytes() +
           row % block_tokens_ * dim_;
  }
  [[nodiscard]] const std::int8_t* quants(std::size_t row) const { return const_cast<KvRows*>(this)->quants(row); }
  [[nodiscard]] std::size_t scale_at(std::size_t row, int d) const {
    const auto scales = row / block_tokens_ * head_bytes() + static_cast<std::size_t>(block_tokens_) * dim_;
    return scales / 2 + static_cast<std::size_t>(d / kBlock) * block_tokens_ + row % block_tokens_;
  }

  DType type_;
  std::size_t block_tokens_;
  int dim_;
  Buffer<std::uint16_t> memory_;
};

}  // namespace forge::gpu_host
