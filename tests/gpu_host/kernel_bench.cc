// Shared code of the single-kernel tests (kernel_bench.h): compiling kernels, weights in planes layout, references.
#include "tests/gpu_host/kernel_bench.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <system_error>

#include "codegen/gpu/targets.h"
#include "kernels/quant/f16.h"
#include "tests/gpu_host/host_compiler.h"
#include "tests/kernels/golden.h"

namespace forge::gpu_host {
namespace {

const char* target_of(int wave) {
  return wave == 32 ? "gfx1100" : "gfx90a";
}

struct Shard {
  std::size_t number = 0, count = 1;
};
Shard this_shard() {
  const char* text = std::getenv("FORGE_TEST_SHARD");
  Shard shard;
  if (text == nullptr) return shard;
  const char* end = text + std::strlen(text);
  const auto number = std::from_chars(text, end, shard.number);
  const auto count = *number.ptr == '/' ? std::from_chars(number.ptr + 1, end, shard.count) : number;
  if (number.ec != std::errc{} || count.ec != std::errc{} || count.ptr != end || shard.number >= shard.count)
    throw std::runtime_error("FORGE_TEST_SHARD is I/N with I below N, not '" + std::string(text) + "'");
  return shard;
}

codegen::KernelSource source_of(const WaveText& text) {
  const char* target = text.target != nullptr ? text.target : target_of(text.wave);
  return codegen::kernel_source(*codegen::find_target(target), "kernel", text.text);
}

}  // namespace

std::vector<std::size_t> order_of_checks(const std::vector<WaveText>& texts) {
  std::map<std::pair<int, std::string>, std::vector<std::size_t>> of_kernel;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    of_kernel[{texts[i].wave, source_of(texts[i]).entry}].push_back(i);
  }
  const Shard shard = this_shard();
  std::vector<std::size_t> out;
  std::size_t kernel = 0;
  for (const auto& [name, numbers] : of_kernel)
    if (kernel++ % shard.count == shard.number) out.insert(out.end(), numbers.begin(), numbers.end());
  return out;
}

std::vector<Kernel> build_kernels(const std::vector<WaveText>& texts) {
  HostKernelCompiler compiler(takes_all_cases());
  std::map<int, codegen::KernelSet> sets;
  std::vector<std::string> entries;
  for (const auto& text : texts) {
    auto source = source_of(text);
    entries.push_back(source.entry);
    sets[text.wave].add(std::move(source));
  }
  std::map<std::pair<int, std::string>, Kernel> built;
  for (const auto& [wave, set] : sets) {
    const auto compiled = compiler.compile("host-wave" + std::to_string(wave), set.sources());
    for (std::size_t i = 0; i < compiled.size(); ++i) {
      const std::string& entry = set.sources()[i].entry;
      built.emplace(std::pair{wave, entry}, load_host_kernel(entry, compiled[i].code));
    }
  }
  std::vector<Kernel> out;
  for (std::size_t i = 0; i < texts.size(); ++i) out.push_back(built.at({texts[i].wave, entries[i]}));
  return out;
}

KernelArgs::KernelArgs(std::initializer_list<const void*> pointers, std::initializer_list<std::int64_t> numbers) {
  for (const void* pointer : pointers) words_.push_back(reinterpret_cast<std::uint64_t>(pointer));
  for (const std::int64_t number : numbers) words_.push_back(static_cast<std::uint64_t>(number));
}

PlanesWeight::PlanesWeight(DType type, std::size_t rows, std::size_t k, float deviation)
    : planes(rows * quant::planes_row_bytes(type, k)), native(rows * row_bytes(type, k)), values(rows * k) {
  for (std::size_t row = 0; row < rows; ++row) {
    std::byte* at = native.data() + row * row_bytes(type, k);
    // A type that forge reads but does not write.
    if (!quant::quantize_row(type, random_floats(k, deviation).data(), k, at)) {
      const auto blocks =
          test::random_blocks(test::weight_blocks(type), random_engine()(), k / dtype_info(type).block_elems);
      std::copy(blocks.begin(), blocks.end(), at);
    }
    quant::dequantize_native(type, at, k, values.data() + row * k);
  }
  quant::pack_planes(
      type, rows, k, 0, rows, [&](std::size_t row) { return native.data() + row * row_bytes(type, k); }, planes.data());
}

std::size_t q8_row_bytes(std::size_t k) {
  return (k + k / 4 + 63) / 64 * 64;
}

bool is_written(std::size_t byte, std::size_t k) {
  return byte % q8_row_bytes(k) < k + k / 4;
}

std::vector<std::byte> quantise_rows(const std::vector<float>& x, std::size_t k, int terms) {
  const std::size_t rows = x.size() / k, term_bytes = q8_row_bytes(k);
  const float most = terms == 1 ? 127.0F : 32639.0F;
  std::vector<std::byte> out(rows * term_bytes * static_cast<std::size_t>(terms), std::byte{0xff});
  const auto store = [&](std::byte* row, std::size_t column, std::span<const int, 16> quants, std::uint32_t bf16_bits) {
    int sum = 0;
    for (std::size_t i = 0; i < 16; ++i) {
      row[column + i] = static_cast<std::byte>(quants[i]);
      sum += quants[i];
    }
    const std::uint32_t meta = bf16_bits | static_cast<std::uint32_t>(sum) << 16;
    std::memcpy(row + k + column / 16 * 4, &meta, 4);
  };
  for (std::size_t block = 0; block < x.size() / 16; ++block) {
    std::array<float, 16> from{};
    float amax = 0;
    for (std::size_t i = 0; i < 16; ++i) {
      from[i] = terms == 1 ? x[block * 16 + i] : std::clamp(x[block * 16 + i], -16 * 65504.0F, 16 * 65504.0F);
      amax = std::max(amax, std::fabs(from[i]));
    }
    const std::uint32_t up = (quant::bits_of_f32(amax * (1.0F / most)) + 0xffff) >> 16;
    const float scale = quant::f32_of_bits(up << 16);
    std::byte* row = out.data() + block * 16 / k * term_bytes * static_cast<std::size_t>(terms);
    const std::size_t column = block * 16 % k;
    std::array<int, 16> quants{}, upper{}, lower{};
    for (std::size_t i = 0; i < 16; ++i) {
      const float quant = scale > 1e-30F ? std::nearbyint(from[i] * (1.0F / scale)) : 0;
      quants[i] = static_cast<int>(std::clamp(quant, -most, most));
      upper[i] = (quants[i] + 128) >> 8;
      lower[i] = quants[i] - 256 * upper[i];
    }
    const std::uint32_t bits = scale > 1e-30F ? up : 0U;
    store(row, column, terms == 1 ? quants : upper, terms == 1 || bits == 0 ? bits : bits + 0x400);
    if (terms == 2) store(row + term_bytes, column, lower, bits);
  }
  return out;
}

std::vector<float> values_of_rows(const std::byte* rows, std::size_t count, std::size_t k, int terms) {
  std::vector<float> out(count * k);
  for (std::size_t i = 0; i < out.size(); ++i)
    for (std::size_t term = 0; term < static_cast<std::size_t>(terms); ++term) {
      const std::byte* row = rows + (i / k * static_cast<std::size_t>(terms) + term) * q8_row_bytes(k);
      std::uint32_t meta = 0;
      std::memcpy(&meta, row + k + i % k / 16 * 4, 4);
      out[i] += quant::f32_of_bits(meta << 16) * static_cast<float>(static_cast<std::int8_t>(row[i % k]));
    }
  return out;
}

namespace {

constexpr float kF16aScale = 16;

std::uint16_t number_of(DType type, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (type == DType::kBF16) return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
  return quant::f16_of_f32(type == DType::kF16A ? value / kF16aScale : value);
}

}  // namespace

void round_to(DType type, std::vector<float>& values) {
  for (float& value : values) {
    if (type == DType::kBF16) value = quant::f32_of_bits(static_cast<std::uint32_t>(number_of(type, value)) << 16);
    if (type == DType::kF16) value = quant::f32_of_f16(number_of(type, value));
    if (type == DType::kF16A) value = quant::f32_of_f16(number_of(type, value)) * kF16aScale;
  }
}

namespace {

float f16_rounded(float value) {
  return quant::f32_of_f16(quant::f16_of_f32(value));
}

/// The block's numbers in F16: code * scale + minimum.
template <quant::HasPacking Block>
void f16_numbers(const Block& block, float* out) {
  constexpr quant::Packing kPacking = Block::kPacking;
  std::uint8_t codes[Block::kElems];
  if constexpr (quant::HasLevels<Block>)
    quant::code_values(block, codes);
  else
    quant::raw_values(block, codes);
  float d = 0;
  if constexpr (kPacking.halves > 0) d = quant::f32_of_f16(quant::f16_number(block, 0));
  for (std::uint32_t i = 0; i < Block::kElems; ++i) {
    float scale = d, minimum = 0;
    if constexpr (Block::kMinimum) minimum = quant::f32_of_f16(quant::f16_number(block, 1));
    if constexpr (kPacking.numbers > 0) {
      const auto at = i / Block::kSub * kPacking.numbers_per_sub(Block::kSub);
      const auto number = quant::scale_number(block, at);
      if constexpr (kPacking.scale == quant::ScaleKind::kExponent)
        scale = quant::half_of_e8m0(number);
      else if constexpr (kPacking.scale == quant::ScaleKind::kE5M3)
        scale = quant::scale_of_e5m3(number);
      else
        scale = d * (static_cast<float>(quant::scale_factor(kPacking.scale, number)) * kPacking.unit);
      if constexpr (Block::kMinimum) minimum *= -static_cast<float>(quant::scale_number(block, at + 1));
    }
    int level = codes[i];
    if constexpr (quant::HasLevels<Block>) level = Block::kLevels[codes[i]];
    level -= static_cast<int>(Block::kZero);
    out[i] = f16_rounded(std::fma(f16_rounded(scale), static_cast<float>(level), f16_rounded(minimum)));
  }
}

}  // namespace

void round_as_tiles(DType numbers, DType type, PlanesWeight& weight) {
  if (numbers != DType::kF16 && numbers != DType::kF16A) return round_to(numbers, weight.values);
  round_to(DType::kF16, weight.values);
  quant::with_block(type, [&]<class Block>(std::type_identity<Block>) {
    if constexpr (quant::HasPacking<Block>)
      for (std::size_t b = 0; b < weight.native.size() / sizeof(Block); ++b) {
        Block block;
        std::memcpy(&block, weight.native.data() + b * sizeof block, sizeof block);
        f16_numbers(block, weight.values.data() + b * Block::kElems);
      }
  });
}

std::vector<std::uint16_t> numbers_of(DType type, const std::vector<float>& values) {
  std::vector<std::uint16_t> out;
  for (const float value : values) out.push_back(number_of(type, value));
  return out;
}

Products multiply(const std::vector<float>& w, const std::vector<float>& x, std::size_t k) {
  const std::size_t rows = w.size() / k, tokens = x.size() / k;
  Products out{std::vector<double>(rows * tokens), std::vector<double>(rows * tokens)};
  for (std::size_t i = 0; i < rows * tokens; ++i)
    for (std::size_t j = 0; j < k; ++j) {
      const double product = static_cast<double>(w[i % rows * k + j]) * x[i / rows * k + j];
      out.sums[i] += product;
      out.magnitudes[i] += std::fabs(product);
    }
  return out;
}

std::vector<std::byte> run_in_all_orders(const Kernel& kernel, const KernelArgs& args,
                                         const std::function<void()>& reset,
                                         const std::function<std::vector<std::byte>()>& result) {
  std::vector<std::byte> first;
  for (const Order order : kOrders) {
    reset();
    run_kernel(kernel, {.order = order, .seed = 3}, args.data(), args.bytes());
    if (order == Order::kForward)
      first = result();
    else
      REQUIRE(result() == first);
  }
  return first;
}

}  // namespace forge::gpu_host
