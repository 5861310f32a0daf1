// The kernels that measure a card, on the host executor, and the measurement around them on the null driver.

#include "session/card_rates.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cstring>

#include "codegen/gpu/card_rates.h"
#include "kernels/gpu/card_rates_io.h"
#include "tests/gpu_host/host_compiler.h"

using namespace forge;
using namespace forge::gpu_host;
using namespace forge::gpu::card_rates;

namespace {

/// Waves of 32 and 64 lanes with AMD's matrix instructions, and NVIDIA's.
constexpr const char* kTargets[] = {"gfx1100", "gfx90a", "sm_90"};

HostKernelCompiler& rate_compiler() {
  static HostKernelCompiler one;
  return one;
}

Kernel on_host(const codegen::GpuTarget& target, const codegen::RateKernel& kernel) {
  const auto made = rate_compiler().compile(std::string(target.name), std::span(&kernel.source, 1));
  return load_host_kernel(kernel.source.entry, made.front().code);
}

/// The host executor as a GPU.
struct RatedCard {
  explicit RatedCard(const codegen::GpuTarget& target)
      : name(target.name),
        control(std::make_shared<driver::NullControl>(
            driver::NullOptions{.wave_size = target.wave, .arch = std::string(target.name)})) {
    run_on_host(*control);
  }
  session::CardRates measure() {
    const auto driver = driver::open_null(control);
    return session::measure_card_rates(
        driver.device(0), name, rate_compiler(),
        {.read_bytes = 1, .matrix_rounds = 1, .runs = 1, .warm_up = std::chrono::milliseconds(0)});
  }
  /// Changes a word of what the kernel whose name begins with `stem` has stored.
  void plant(const std::string& stem, std::size_t argument_offset) {
    control->set_loader([=](const std::string& kernel, std::span<const std::byte> image) -> driver::NullKernel {
      const Kernel code = load_host_kernel(kernel, image);
      return [=](const driver::NullLaunch& call) {
        run_kernel(code, {.blocks = static_cast<int>(call.grid.x)}, call.args.at(0).data(), call.args.at(0).size());
        if (!kernel.starts_with(stem)) return;
        std::uint64_t address = 0;
        std::memcpy(&address, call.args.at(0).data() + argument_offset, sizeof address);
        std::bit_cast<std::uint32_t*>(address)[5] ^= 0x00800000U;
      };
    });
  }

  std::string name;
  std::shared_ptr<driver::NullControl> control;
};

std::string message_of(RatedCard& card, ErrorCode code) {
  try {
    static_cast<void>(card.measure());
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.line();
  }
  return {};
}

}  // namespace

TEST_CASE("card rates: the reading kernel reads each word once") {
  constexpr int kBlocks = 3, kSteps = 7;  // some blocks read more steps than others
  for (const char* name : kTargets) {
    CAPTURE(name);
    const auto& target = *codegen::find_target(name);
    alignas(16) static std::uint32_t in[kSteps * kReadStepBytes / 4];
    std::uint32_t word = 1;
    for (auto& one : in) one = word = word * 1664525U + 1013904223U;
    std::vector<std::uint32_t> sums(kBlocks * kReadThreads), expected(sums.size());
    run_kernel(on_host(target, codegen::read_rate_kernel(target)), {.blocks = kBlocks},
               gpu::ReadRateArgs{.in = in, .out = sums.data(), .steps = kSteps, .blocks = kBlocks});
    // Units of 16 bytes go round the threads of a block, steps round the blocks.
    for (std::size_t i = 0; i < std::size(in); ++i)
      expected[i * 4 / kReadStepBytes % kBlocks * kReadThreads + i / 4 % kReadThreads] += in[i];
    CHECK(sums == expected);
  }
}

TEST_CASE("card rates: each wave of the kernel of matrix instructions stores its tile's sums") {
  constexpr int kBlocks = 2, kRounds = 3;
  for (const char* name : kTargets) {
    CAPTURE(name);
    const auto& target = *codegen::find_target(name);
    const std::size_t tile = codegen::matrix_rate_sums(target, 0, kRounds).size();
    std::vector<float> sums(kBlocks * kMatrixWaves * tile, -1.0F);
    run_kernel(on_host(target, codegen::matrix_rate_kernel(target)), {.blocks = kBlocks},
               gpu::MatrixRateArgs{.out = sums.data(), .rounds = kRounds});
    for (int wave = 0; wave < kBlocks * kMatrixWaves; ++wave) {
      CAPTURE(wave);
      const auto expected = codegen::matrix_rate_sums(target, wave, kRounds);
      const auto got = std::span(sums).subspan(static_cast<std::size_t>(wave) * tile, tile);
      CHECK(std::vector(got.begin(), got.end()) == expected);
    }
  }
}

TEST_CASE("card rates: a card is measured, and one that computes something else is refused") {
  for (const char* name : {"gfx1100", "gfx90a"}) {
    CAPTURE(name);
    RatedCard card(*codegen::find_target(name));
    const auto rates = card.measure();
    CHECK(rates.read > 0);
    CHECK(rates.matrix > 0);
    CHECK(card.control->counts().held() == 0);
  }
  RatedCard card(*codegen::find_target("gfx1100"));
  card.plant("read_rate", offsetof(gpu::ReadRateArgs, out));
  CHECK(message_of(card, ErrorCode::kDevice).contains("reads memory has a wrong sum"));
  card.plant("matrix_rate", offsetof(gpu::MatrixRateArgs, out));
  CHECK(message_of(card, ErrorCode::kDevice).contains("matrix instructions has wrong sums"));
}

TEST_CASE("card rates: a target without matrix instructions has a read rate only") {
  RatedCard card(*codegen::find_target("gfx1030"));
  const auto rates = card.measure();
  CHECK(rates.read > 0);
  CHECK(rates.matrix == 0);
}

TEST_CASE("card rates: a driver's errors and full memory are reported") {
  RatedCard card(*codegen::find_target("gfx1030"));
  card.control->fail("launch");
  CHECK(message_of(card, ErrorCode::kDevice).contains("measuring a card"));
  card.control->clear_failures();
  const auto driver = driver::open_null(card.control);
  card.control->limit_memory(std::uint64_t{96} << 20);
  const auto measured = [&] {
    return session::measure_card_rates(driver.device(0), card.name, rate_compiler(), {.runs = 1});
  };
  REQUIRE_THROWS_AS(measured(), Error);
  try {
    static_cast<void>(measured());
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kMemory);
    CHECK(error.line().contains("needs 128"));
  }
}
