#pragma once
// Shared code of the kernel tests: guarded buffers, random data, and the CPU classes that this machine runs.

#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <rapidcheck/catch.h>
#include <catch2/catch.hpp>

#include "kernels/cpu/matmul/pack.h"
#include "tests/kernels/golden.h"
#include "tests/support/skip.h"

namespace forge::test {

/// `count` elements between two guards of 64 bytes; check() fails if a guard was overwritten. The data starts
/// `misalign` elements after a 64-byte boundary. Fresh data has a bit pattern that is NaN as f32.
template <class T>
class Guarded {
 public:
  explicit Guarded(std::size_t count, std::size_t misalign = 0) : count_(count), bytes_(count * sizeof(T) + 320) {
    std::memset(bytes_.data(), 0xff, bytes_.size());
    const auto at = reinterpret_cast<std::uintptr_t>(bytes_.data()) + 64;
    begin_ = 64 + (64 - at % 64) % 64 + misalign * sizeof(T);
  }
  T* data() { return reinterpret_cast<T*>(bytes_.data() + begin_); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_.data() + begin_); }
  std::size_t size() const { return count_; }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  std::span<T> span() { return {data(), count_}; }
  void check() const {
    const std::size_t end = begin_ + count_ * sizeof(T);
    for (std::size_t i = begin_ - 64; i < begin_; ++i)
      if (bytes_[i] != 0xff) FAIL("byte " << begin_ - i << " before the buffer was written");
    for (std::size_t i = end; i < end + 64; ++i)
      if (bytes_[i] != 0xff) FAIL("byte " << i - end << " behind the buffer was written");
  }

 private:
  std::size_t count_, begin_ = 0;
  std::vector<unsigned char> bytes_;
};

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  float normal(float deviation = 1) { return std::normal_distribution<float>(0, deviation)(engine_); }
  int below(int bound) { return std::uniform_int_distribution<int>(0, bound - 1)(engine_); }
  void fill(float* out, std::size_t count, float deviation = 1) {
    for (std::size_t i = 0; i < count; ++i) out[i] = normal(deviation);
  }
  std::vector<float> floats(std::size_t count, float deviation = 1) {
    std::vector<float> out(count);
    fill(out.data(), count, deviation);
    return out;
  }

 private:
  std::mt19937 engine_;
};

inline std::uint32_t bits(float value) {
  std::uint32_t out;
  std::memcpy(&out, &value, 4);
  return out;
}
inline bool same_bits(const float* a, const float* b, std::size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

/// The kernel tables of every class that this CPU runs.
inline std::vector<const cpu::Kernels*> all_kernels() {
  std::vector<const cpu::Kernels*> out;
  for (const auto c : cpu::all_classes())
    if (cpu::runs_here(c)) out.push_back(&cpu::kernels(c));
  return out;
}
inline std::string label(const cpu::Kernels& kernels) {
  return std::string(cpu::name(kernels.cpu_class));
}
inline bool fuses(const cpu::Kernels& kernels) {
#if defined(__FP_FAST_FMAF)
  (void)kernels;
  return true;
#else
  return kernels.cpu_class != cpu::CpuClass::kGeneric;
#endif
}

/// Those with FMA, which give equal bits. If there are fewer than two to compare, the result is empty and the case is
/// skipped.
inline std::vector<const cpu::Kernels*> kernels_with_fma() {
  auto out = all_kernels();
  std::erase_if(out, [](const cpu::Kernels* kernels) { return !fuses(*kernels); });
  if (out.size() >= 2) return out;
  tests::skip_case("this CPU runs fewer than two classes with FMA");
  return {};
}

/// All types that a weight can have, and the block types among them.
inline std::vector<DType> all_types() {
  std::vector<DType> out;
  for (const auto& row : kDTypes)
    if (quant::has_kernels(row.type)) out.push_back(row.type);
  return out;
}
inline std::vector<DType> block_types() {
  auto out = all_types();
  std::erase_if(out, [](DType type) { return is_float(type); });
  return out;
}
/// k rounded up to whole blocks of the type.
inline std::size_t whole_blocks(DType type, std::size_t k) {
  const std::size_t block = dtype_info(type).block_elems;
  return (k + block - 1) / block * block;
}

/// A weight in both layouts: quantised from random values, or random blocks where forge cannot write the type.
struct Weight {
  DType type;
  std::size_t rows, k;
  std::vector<std::byte> native, packed;
  Weight(DType t, std::size_t r, std::size_t columns, Random& random)
      : type(t), rows(r), k(columns), native(r * row_bytes(t, columns)), packed(quant::x16_bytes(t, r, columns)) {
    for (std::size_t row = 0; row < rows; ++row)
      if (!quant::quantize_row(type, random.floats(k).data(), k, native.data() + row * row_bytes(type, k))) {
        native = random_blocks(weight_blocks(type), static_cast<std::uint64_t>(random.below(1 << 30)),
                               rows * k / dtype_info(type).block_elems);
        break;
      }
    pack();
  }
  void pack() {
    cpu::pack_rows(
        cpu::kernels(cpu::CpuClass::kGeneric), type, k, 0, quant::x16_groups(rows),
        [&](std::size_t row) { return row < rows ? native.data() + row * row_bytes(type, k) : nullptr; },
        packed.data());
  }
};

/// q8a rows, quantised by the scalar reference.
inline std::vector<std::byte> q8a_rows(const std::vector<float>& x, std::size_t k) {
  const std::size_t rows = x.size() / k, stride = quant::q8a_row_bytes(k);
  std::vector<std::byte> out(rows * stride);
  for (std::size_t t = 0; t < rows; ++t)
    for (std::size_t b = 0; b < k / 32; ++b) {
      std::byte* row = out.data() + t * stride;
      quant::quantize_q8a_block(x.data() + t * k + 32 * b, reinterpret_cast<std::int8_t*>(row) + 32 * b,
                                reinterpret_cast<float*>(row + quant::q8a_scales_offset(k)) + b,
                                reinterpret_cast<float*>(row + quant::q8a_sums_offset(k)) + b);
    }
  return out;
}

/// x = f(x, parameters), in place.
inline void run_unary(const cpu::Kernels& kernels, elementwise::Function function, cpu::Tile x,
                      const elementwise::Parameters& parameters = {}) {
  kernels.unary(function)(x, parameters.data());
}

}  // namespace forge::test
