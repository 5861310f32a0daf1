// amx_check: checks of the AMX kernels that need a CPU with AMX. It needs neither the repository nor a model, so that
// it can be copied to such a machine. tools/check, which must run on any machine, does not run it.
//
//   amx_check [REPEATS]
//
// - tiles: products of random tiles equal those of the software model (tests/kernels/tile_registers_model-inl.h), bit
//   for bit
// - prefill matmuls by tiles have the same bits as the class without tiles, and are no slower for any type
// - speed on one thread: GFLOP/s of both and of other splits, and the cost of tile and of vector operations alone
// Ends with 'N passed, N failed'; exit code 4 if the CPU or the system has no AMX.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/matmul/pack.h"
#include "kernels/quant/q8a.h"
#include "tests/device/amx_product.h"

namespace forge::cpu {
namespace amx_check_cpu {
void tile_product(Product product, std::size_t rows, std::size_t a_bytes, const std::uint8_t* a, const std::uint8_t* b,
                  std::uint8_t* sum);
void tile_stages(std::size_t rounds, std::size_t rows, std::size_t a_bytes, const std::uint8_t* lines,
                 std::uint8_t* sums);
void tile_products(std::size_t rounds, std::size_t rows, std::size_t a_bytes);
}  // namespace amx_check_cpu
namespace amx_check_model {
void tile_product(Product product, std::size_t rows, std::size_t a_bytes, const std::uint8_t* a, const std::uint8_t* b,
                  std::uint8_t* sum);
}
namespace amx_check_variants {
MatmulFn variant(int number, DType type);
}
namespace amx_check_vectors {
MatmulFn matmul_q4_1();
}
}  // namespace forge::cpu

namespace {

using namespace forge;
using Clock = std::chrono::steady_clock;

int passed = 0, failed = 0;
void verdict(bool good, const std::string& line) {
  ++(good ? passed : failed);
  std::printf("%s %s\n", good ? "ok    " : "FAILED", line.c_str());
  std::fflush(stdout);
}

template <class Run>
double best_seconds(int repeats, Run run) {
  double best = 1e30;
  run();
  for (int i = 0; i < repeats; ++i) {
    const auto begin = Clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

void check_tiles() {
  std::mt19937 random(1);
  using cpu::Product;
  for (const auto& [product, name] : {std::pair{Product::kSignedUnsigned, "tdpbsud"},
                                      {Product::kSignedSigned, "tdpbssd"},
                                      {Product::kBf16, "tdpbf16ps"}})
    for (const std::size_t rows : {1, 7, 12, 16})
      for (const std::size_t bytes : {4, 16, 32, 64}) {
        std::size_t wrong = 0;
        for (int round = 0; round < 200; ++round) {
          alignas(64) std::uint8_t a[1024], b[1024], sum[1024], want[1024];
          for (auto* tile : {a, b, sum})
            for (std::size_t i = 0; i < 1024; i += 2) {
              std::uint32_t bits = random();
              // BF16 factors or either half of an f32 sum: values of all magnitudes, with subnormals and signed zeros.
              if (product == Product::kBf16) {
                const float value =
                    std::normal_distribution<float>()(random) * std::ldexp(1.0F, round % 10 == 0 ? -130 : 0);
                std::memcpy(&bits, &value, 4);
                bits = tile == sum ? i % 4 == 0 ? bits & 0xffff : bits >> 16 : bits >> 16;
              }
              std::memcpy(tile + i, &bits, 2);
            }
          std::memcpy(want, sum, sizeof(want));
          cpu::amx_check_cpu::tile_product(product, rows, bytes, a, b, sum);
          cpu::amx_check_model::tile_product(product, rows, bytes, a, b, want);
          wrong += std::memcmp(sum, want, 64 * rows) != 0;
        }
        verdict(wrong == 0, std::string(name) + " of " + std::to_string(rows) + " rows, " + std::to_string(bytes) +
                                " bytes: " + std::to_string(wrong) + " of 200 tiles are not the model's");
      }
}

void time_tiles(int repeats) {
  constexpr std::size_t kRounds = 100000;
  alignas(64) static std::uint8_t lines[8192], sums[8192];
  for (const std::size_t rows : {8, 12, 16})
    for (const std::size_t bytes : {16, 32, 64}) {
      const double products =
          best_seconds(repeats, [&] { cpu::amx_check_cpu::tile_products(kRounds, rows, bytes); }) / kRounds / 4;
      const double stage =
          best_seconds(repeats, [&] { cpu::amx_check_cpu::tile_stages(kRounds, rows, bytes, lines, sums); }) / kRounds;
      std::printf(
          "       tiles of %2zu rows, %2zu bytes: %.2f ns a product; %.2f ns a stage of 4 products, 6 loads, 4 "
          "stores\n",
          rows, bytes, 1e9 * products, 1e9 * stage);
    }
}

struct Shape {
  std::size_t rows, k;
};
struct Case {
  DType type;
  Shape shape;
  std::size_t tokens;
  std::vector<std::byte> weights, x;
  std::size_t x_stride;
  std::vector<float> exact;  ///< some rows, in double, from the dequantised weights and unrounded x
};

float x_of(std::size_t token, std::size_t i) {
  const auto mixed = static_cast<std::uint32_t>(token * 2654435761U + i * 40503U + 12345U);
  return static_cast<float>(static_cast<std::int32_t>(mixed * 747796405U) >> 8) * 0x1p-23F;
}

Case make(DType type, Shape shape, std::size_t tokens) {
  Case out{.type = type,
           .shape = shape,
           .tokens = tokens,
           .x_stride = is_float(type) ? 4 * shape.k : quant::q8a_row_bytes(shape.k)};
  std::mt19937 random(7);
  const std::size_t row_bytes = forge::row_bytes(type, shape.k);
  std::vector<std::byte> native(shape.rows * row_bytes);
  std::vector<float> row(shape.k);
  for (std::size_t r = 0; r < shape.rows; ++r) {
    for (auto& value : row) value = static_cast<float>(static_cast<std::int32_t>(random()) >> 8) * 0x1p-23F;
    if (!quant::quantize_row(type, row.data(), shape.k, native.data() + r * row_bytes)) {
      // A type that forge cannot write: random codes and small f16 scales.
      for (std::size_t i = 0; i < row_bytes; ++i) native[r * row_bytes + i] = static_cast<std::byte>(random() & 0x2f);
    }
  }
  out.weights.resize(quant::x16_bytes(type, shape.rows, shape.k));
  cpu::pack_rows(
      cpu::kernels(cpu::CpuClass::kGeneric), type, shape.k, 0, quant::x16_groups(shape.rows),
      [&](std::size_t r) { return r < shape.rows ? native.data() + r * row_bytes : nullptr; }, out.weights.data());
  out.x.resize(tokens * out.x_stride);
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t i = 0; i < shape.k; ++i) row[i] = x_of(t, i);
    std::byte* to = out.x.data() + t * out.x_stride;
    if (is_float(type)) {
      std::memcpy(to, row.data(), 4 * shape.k);
    } else {
      for (std::size_t b = 0; b < shape.k / 32; ++b)
        quant::quantize_q8a_block(row.data() + 32 * b, reinterpret_cast<std::int8_t*>(to) + 32 * b,
                                  reinterpret_cast<float*>(to + quant::q8a_scales_offset(shape.k)) + b,
                                  reinterpret_cast<float*>(to + quant::q8a_sums_offset(shape.k)) + b);
    }
  }
  return out;
}

/// Runs in pieces of `tokens` by `groups`, as the runtime calls it; 0: all in one call.
void run(cpu::MatmulFn matmul, const Case& data, std::size_t tokens, std::size_t groups, std::vector<float>& out) {
  const std::size_t all = quant::x16_groups(data.shape.rows), stride = 16 * all;
  const std::size_t group_bytes = data.weights.size() / all;
  if (tokens == 0) tokens = data.tokens;
  if (groups == 0) groups = all;
  for (std::size_t g = 0; g < all; g += groups)
    for (std::size_t t = 0; t < data.tokens; t += tokens)
      matmul(data.weights.data() + g * group_bytes, data.shape.k, std::min(groups, all - g),
             data.x.data() + t * data.x_stride, data.x_stride, nullptr, std::min(tokens, data.tokens - t),
             out.data() + t * stride + 16 * g, stride);
}

double nmse(const Case& data, const std::vector<float>& out) {
  const std::size_t stride = 16 * quant::x16_groups(data.shape.rows);
  std::vector<float> w(data.shape.k);
  double error = 0, power = 0;
  for (std::size_t r = 0; r < data.shape.rows; r += 37) {
    quant::dequantize_row(data.type, quant::Layout::kX16, data.weights.data(), data.shape.k, r, w.data());
    for (std::size_t t = 0; t < data.tokens; t += 61) {
      double want = 0;
      for (std::size_t i = 0; i < data.shape.k; ++i)
        want += static_cast<double>(w[i]) * static_cast<double>(x_of(t, i));
      const double difference = static_cast<double>(out[t * stride + r]) - want;
      error += difference * difference;
      power += want * want;
    }
  }
  return error / power;
}

struct Way {
  const char* name;
  cpu::MatmulFn matmul;
  std::size_t tokens, groups;  ///< per call
};

void check_matmul(DType type, Shape shape, int repeats) {
  const Case data = make(type, shape, 512);
  const auto& plain = cpu::kernels(cpu::CpuClass::kAvx512Vnni);
  const auto& amx = cpu::kernels(cpu::CpuClass::kAvx512VnniAmx);
  std::vector<float> want(data.tokens * 16 * quant::x16_groups(shape.rows)), got(want.size());
  const double flop =
      2.0 * static_cast<double>(shape.rows) * static_cast<double>(shape.k) * static_cast<double>(data.tokens);
  const std::string label =
      std::string(dtype_name(type)) + " " + std::to_string(shape.rows) + "x" + std::to_string(shape.k);
  const auto speed = [&](cpu::MatmulFn matmul, std::size_t tokens, std::size_t groups, std::vector<float>& out) {
    return flop * 1e-9 / best_seconds(repeats, [&] { run(matmul, data, tokens, groups, out); });
  };
  const double before = speed(plain.matmul(type), 48, 4, want), whole = speed(plain.matmul(type), 0, 0, want);
  std::printf("       %-16s VNNI: %7.1f GFLOP/s in 48x64, %7.1f in one call; nmse %.2e\n", label.c_str(), before, whole,
              nmse(data, want));
  const auto same = [&](const char* what) {
    if (std::memcmp(got.data(), want.data(), got.size() * 4) != 0) verdict(false, label + ": other bits, " + what);
  };
  double best = 0;
  constexpr const char* kNames[] = {"2 x24 x1", "2 x16 x2", "2 x8 x4", "1 x16 x2", "3 x16 x2"};
  for (int number = 0; number < 5; ++number) {
    const auto matmul = cpu::amx_check_variants::variant(number, type);
    if (matmul == nullptr) continue;
    std::printf("       %-16s %-11s:", label.c_str(), kNames[number]);
    for (const auto& [tokens, groups] :
         {std::pair<std::size_t, std::size_t>{48, 4}, {48, 16}, {96, 4}, {96, 8}, {192, 4}, {96, 16}, {0, 0}}) {
      std::fill(got.begin(), got.end(), 0.0F);
      const double rate = speed(matmul, tokens, groups, got);
      same(kNames[number]);
      std::printf(" %zux%zu %.0f", tokens, 16 * groups, rate);
    }
    std::printf("\n");
  }
  std::fill(got.begin(), got.end(), 0.0F);
  best = std::max(speed(amx.matmul(type), 48, 4, got), speed(amx.matmul(type), 96, 8, got));
  char line[200];
  const bool equal = std::memcmp(got.data(), want.data(), got.size() * 4) == 0;
  std::snprintf(line, sizeof(line), "%s: %s, %.1f GFLOP/s, %.2fx of VNNI, nmse %.2e", label.c_str(),
                equal ? "the bits of VNNI" : "other bits than VNNI", best, best / before, nmse(data, got));
  verdict(equal && best >= 0.95 * before, line);  // types that stay on VNNI are as fast, within noise
}

}  // namespace

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  std::printf("CPU: %s; class %s\n", cpu::features().c_str(), std::string(cpu::name(cpu::detect())).c_str());
  if (!cpu::runs_here(cpu::CpuClass::kAvx512VnniAmx)) {
    std::printf("AMX cannot be used here: the CPU or the system does not have it\n");
    return 4;
  }
  check_tiles();
  time_tiles(repeats);
  {
    const Case data = make(DType::kQ4_1, {1536, 576}, 512);
    std::vector<float> out(std::size_t{512} * 1536);
    const auto matmul = cpu::amx_check_vectors::matmul_q4_1();
    for (const std::size_t tokens : {48, 96, 0})
      std::printf("       q4_1 1536x576 in %zu tokens, vectors alone: %.0f GFLOP/s\n", tokens,
                  2e-9 * 512 * 1536 * 576 / best_seconds(repeats, [&] { run(matmul, data, tokens, 8, out); }));
  }
  const Shape shapes[] = {{1536, 576}, {576, 1536}, {2048, 2048}, {2048, 8192}};  // shapes of SmolLM2 and of a 1B model
  for (const DType type : {DType::kQ4_1, DType::kQ4_0, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K})
    for (const Shape shape : shapes) {
      if (shape.k % dtype_info(type).block_elems != 0) continue;
      check_matmul(type, shape, repeats);
    }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
