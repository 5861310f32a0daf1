#pragma once
// Shared code of the single-kernel tests: specialised sources compiled for the host, arguments laid out as plans pass
// them, and weights and activations in the kernels' layouts together with their f32 values.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "codegen/gpu/source/kernel_text.h"
#include "codegen/gpu/source/weight_text.h"
#include "kernels/quant/planes.h"
#include "tests/gpu_host/buffer.h"
#include "tests/gpu_host/executor.h"
#include "tests/gpu_host/pairwise.h"
#include "tests/gpu_host/support.h"

namespace forge::gpu_host {

using codegen::weight_text;

/// A configured kernel and the wave size to build it for.
struct WaveText {
  int wave;
  codegen::KernelText text;
  const char* target = nullptr;  ///< whose macros the source has; default: one with this wave size
};

/// Compiles all texts, several at once; equal ones only once.
std::vector<Kernel> build_kernels(const std::vector<WaveText>& texts);

/// Indices of `texts` in the order of checking: cases of the same kernel are adjacent, so that it is compiled once. In
/// a sharded run (FORGE_TEST_SHARD=I/N, I from 0) only the cases whose kernel belongs to this shard.
std::vector<std::size_t> order_of_checks(const std::vector<WaveText>& texts);

/// Calls check(case, kernel) for each case of this run; text_of(case) gives the kernel's source.
template <class Case, class TextOf, class Check>
void check_cases(const std::vector<Case>& cases, TextOf&& text_of, Check&& check) {
  constexpr std::size_t kBatch = 64;  // kernels loaded at once
  std::vector<WaveText> texts;
  for (const Case& one : cases) texts.push_back(text_of(one));
  const auto order = order_of_checks(texts);
  for (std::size_t first = 0; first < order.size(); first += kBatch) {
    std::vector<WaveText> batch;
    for (std::size_t i = first; i < std::min(first + kBatch, order.size()); ++i) batch.push_back(texts[order[i]]);
    const auto kernels = build_kernels(batch);
    for (std::size_t i = 0; i < kernels.size(); ++i) check(cases[order[first + i]], kernels[i]);
  }
}

/// The argument struct of a kernel: pointers first, then integers, 8 bytes each.
class KernelArgs {
 public:
  KernelArgs(std::initializer_list<const void*> pointers, std::initializer_list<std::int64_t> numbers = {});
  [[nodiscard]] const void* data() const { return words_.data(); }
  [[nodiscard]] std::size_t bytes() const { return words_.size() * sizeof(words_[0]); }

 private:
  std::vector<std::uint64_t> words_;
};

inline constexpr DType kWeightTypes[] = {
    DType::kQ8_0,   DType::kQ4_0,    DType::kQ4_1,  DType::kF16,   DType::kBF16,  DType::kF32,     DType::kQ4_K,
    DType::kQ5_K,   DType::kQ6_K,    DType::kQ2_K,  DType::kQ3_K,  DType::kQ5_0,  DType::kQ5_1,    DType::kTQ2_0,
    DType::kIQ4_NL, DType::kIQ4_XS,  DType::kMXFP4, DType::kIQ1_S, DType::kIQ1_M, DType::kIQ2_XXS, DType::kIQ2_XS,
    DType::kIQ2_S,  DType::kIQ3_XXS, DType::kIQ3_S, DType::kTQ1_0, DType::kQ1_0,  DType::kNVFP4,   DType::kQ2_0};
/// True if a row of k columns consists of whole blocks of the type.
inline bool has_rows_of(DType type, std::int64_t k) {
  return k % static_cast<std::int64_t>(dtype_info(type).block_elems) == 0;
}

/// A random weight [rows][k]: in the planes layout, as native bytes, and as f32 values.
struct PlanesWeight {
  Buffer<std::byte> planes;
  std::vector<std::byte> native;
  std::vector<float> values;
  PlanesWeight(DType type, std::size_t rows, std::size_t k, float deviation = 1);
};

/// Bytes of a row of quantised activations, or of one of its terms (kernels/gpu/activations.h).
std::size_t q8_row_bytes(std::size_t k);
/// Quantises rows by the definition. x: [rows][k]; k a multiple of 32. Rows have one or two terms.
std::vector<std::byte> quantise_rows(const std::vector<float>& x, std::size_t k, int terms = 1);
/// The f32 values of quantised rows.
std::vector<float> values_of_rows(const std::byte* rows, std::size_t count, std::size_t k, int terms = 1);
/// False for the bytes behind the sums of a term of quantised rows, which are not written.
bool is_written(std::size_t byte, std::size_t k);

/// Rounds to F16, F16A or BF16; does nothing for any other type.
void round_to(DType type, std::vector<float>& values);
/// Rounds a weight's values as tiles do that multiply in `numbers`. In F16 and F16A, scales and minima are rounded too.
void round_as_tiles(DType numbers, DType type, PlanesWeight& weight);
/// The 16-bit numbers of F16, F16A or BF16, rounded from values.
std::vector<std::uint16_t> numbers_of(DType type, const std::vector<float>& values);

/// Sums of products and the sums of their magnitudes, to which rounding errors are proportional.
struct Products {
  std::vector<double> sums, magnitudes;
};
/// out[t][n] = sum over k of w[n][k] * x[t][k].
Products multiply(const std::vector<float>& w, const std::vector<float>& x, std::size_t k);

/// Runs a kernel once in each lane order. result() must return the same bytes each time; these are returned.
std::vector<std::byte> run_in_all_orders(const Kernel& kernel, const KernelArgs& args,
                                         const std::function<void()>& reset,
                                         const std::function<std::vector<std::byte>()>& result);

template <class T>
std::vector<std::byte> bytes_of(const Buffer<T>& buffer) {
  const auto bytes = std::as_bytes(std::span(buffer.data(), buffer.size()));
  return {bytes.begin(), bytes.end()};
}

}  // namespace forge::gpu_host
