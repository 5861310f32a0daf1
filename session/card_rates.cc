#include "session/card_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <vector>

#include "codegen/gpu/card_rates.h"
#include "codegen/gpu/compile/compile_service.h"
#include "kernels/gpu/card_rates_io.h"
#include "runtime/plan/cache.h"
#include "support/error.h"
#include "support/os/console.h"
#include "support/os/interrupt.h"

namespace forge::session {
namespace {

using Clock = std::chrono::steady_clock;
using namespace gpu::card_rates;

/// Blocks of a grid for each that the card holds at once: enough for drivers that count a unit as half of what forge
/// does, and for blocks that end at different times.
constexpr std::uint64_t kFills = 4;
constexpr std::uint64_t kReadBytesMin = std::uint64_t{64} << 20;
constexpr std::uint64_t kCachesMin = 4;  ///< the buffer in multiples of the last cache
constexpr std::size_t kReadParts = 64;   ///< of the buffer, each filled with another word

[[noreturn]] void refuse_card(const driver::Device& device, const std::string& why) {
  throw Error(ErrorCode::kDevice, fmt::format("the rates of {} cannot be measured", printable(device.info().name)), why,
              "test it: forge-inspect self-test");
}

/// A kernel on the device, its stream and its events.
class RateRun {
 public:
  RateRun(const driver::Device& device, const codegen::RateKernel& kernel, std::span<const std::byte> code)
      : device_(device),
        threads_(kernel.threads),
        module_(device, code, kernel.source.entry),
        function_(module_.function(kernel.source.entry)),
        stream_(device),
        begin_(device, {.timing = true}),
        end_(device, {.timing = true}) {
    const int held = function_.occupancy(static_cast<int>(threads_), 0);
    if (held < 1 || device.info().units < 1) refuse_card(device, "its driver does not say how many blocks it holds");
    blocks_ = kFills * static_cast<std::uint64_t>(held) * static_cast<std::uint64_t>(device.info().units);
  }
  [[nodiscard]] std::uint64_t blocks() const { return blocks_; }
  [[nodiscard]] const driver::Stream& stream() const { return stream_; }

  /// Median of the seconds that a launch takes, after the warm-up.
  template <class Args>
  double seconds(const Args& args, const CardRateOptions& options) {
    const auto bytes = std::as_bytes(std::span(&args, 1));
    const auto warm = Clock::now() + options.warm_up;
    do {
      static_cast<void>(timed(bytes));
    } while (Clock::now() < warm);
    std::vector<double> times;
    for (int run = 0; run < options.runs; ++run) times.push_back(timed(bytes));
    std::ranges::sort(times);
    const double median = times[times.size() / 2];
    if (!(median > 0)) refuse_card(device_, "its driver's events measure no time");
    return median;
  }

  /// The first `bytes` of a buffer.
  template <class T>
  [[nodiscard]] std::vector<T> read(const driver::Buffer& from, std::size_t bytes) const {
    const driver::PinnedBuffer copy(device_, bytes, "results of a measuring kernel");
    stream_.download(copy, 0, from, 0, bytes).check("reading results of a measuring kernel");
    stream_.synchronize().check("reading results of a measuring kernel");
    std::vector<T> out(bytes / sizeof(T));
    std::memcpy(out.data(), copy.data(), bytes);
    return out;
  }

 private:
  double timed(std::span<const std::byte> args) {
    check_interrupt();
    constexpr auto kDoing = "measuring a card";
    begin_.record(stream_).check(kDoing);
    stream_.launch_block(function_, {.x = static_cast<std::uint32_t>(blocks_)}, {.x = threads_}, 0, args).check(kDoing);
    end_.record(stream_).check(kDoing);
    end_.synchronize().check(kDoing);
    float milliseconds = 0;
    driver::Event::elapsed(begin_, end_, &milliseconds).check(kDoing);
    return static_cast<double>(milliseconds) * 1e-3;
  }

  driver::Device device_;
  std::uint32_t threads_;
  driver::Module module_;
  driver::Function function_;
  driver::Stream stream_;
  driver::Event begin_, end_;
  std::uint64_t blocks_ = 0;
};

/// Bytes to read: what is asked for, or half of the free memory.
std::uint64_t read_bytes(const driver::Device& device, const CardRateOptions& options) {
  const auto least = std::min(options.read_bytes, std::max(kReadBytesMin, kCachesMin * device.info().l2_bytes));
  const auto bytes = std::min(options.read_bytes, device.free_bytes() / 2);
  if (bytes < least)
    throw Error(ErrorCode::kMemory,
                fmt::format("the read rate of {} cannot be measured", printable(device.info().name)),
                fmt::format("{} are free, and a buffer beyond its caches needs {}", human_bytes(device.free_bytes()),
                            human_bytes(2 * least)),
                "leave more memory free: a smaller -d or -b, fewer other programs");
  return bytes;
}

double measure_reading(const driver::Device& device, const codegen::RateKernel& kernel, std::span<const std::byte> code,
                       const CardRateOptions& options) {
  RateRun run(device, kernel, code);
  // Each block reads as many steps as any other.
  const auto steps =
      std::max<std::uint64_t>(read_bytes(device, options) / kReadStepBytes / run.blocks(), 1) * run.blocks();
  const std::size_t words = steps * kReadStepBytes / sizeof(std::uint32_t);
  const std::size_t sums_bytes = run.blocks() * kReadThreads * sizeof(std::uint32_t);
  const driver::Buffer in(device, words * sizeof(std::uint32_t), "a buffer to read"), out(device, sums_bytes, "sums");
  std::uint32_t expected = 0;
  for (std::size_t part = 0; part < kReadParts; ++part) {
    const std::size_t first = part * words / kReadParts, count = (part + 1) * words / kReadParts - first;
    const auto word = static_cast<std::uint32_t>(part + 1) * 2654435769U;  // Knuth's multiplicative hash
    run.stream().fill_words(in, first * sizeof word, word, count).check("filling a buffer to read");
    expected += word * static_cast<std::uint32_t>(count);
  }
  const gpu::ReadRateArgs args{.in = std::bit_cast<const unsigned*>(in.address().value),
                               .out = std::bit_cast<unsigned*>(out.address().value),
                               .steps = static_cast<long long>(steps),
                               .blocks = static_cast<long long>(run.blocks())};
  const double seconds = run.seconds(args, options);
  std::uint32_t sum = 0;
  for (const auto one : run.read<std::uint32_t>(out, sums_bytes)) sum += one;
  if (sum != expected) refuse_card(device, "the kernel that reads memory has a wrong sum");
  return static_cast<double>(in.bytes()) / seconds;
}

double measure_matrix(const driver::Device& device, const codegen::GpuTarget& target, const codegen::RateKernel& kernel,
                      std::span<const std::byte> code, const CardRateOptions& options) {
  RateRun run(device, kernel, code);
  const auto waves = static_cast<std::int64_t>(run.blocks()) * kMatrixWaves;
  const auto rounds = options.matrix_rounds;
  std::array<std::vector<float>, kMatrixTiles> expected;
  for (std::size_t tile = 0; tile < expected.size(); ++tile)
    expected[tile] = codegen::matrix_rate_sums(target, static_cast<std::int64_t>(tile), rounds);
  const std::size_t tile_floats = expected.front().size();
  const std::size_t bytes = static_cast<std::size_t>(waves) * tile_floats * sizeof(float);
  const driver::Buffer out(device, bytes, "tiles of sums");
  const gpu::MatrixRateArgs args{.out = std::bit_cast<float*>(out.address().value), .rounds = rounds};
  const double seconds = run.seconds(args, options);
  const auto sums = run.read<float>(out, bytes);
  for (std::size_t wave = 0; wave < static_cast<std::size_t>(waves); ++wave)
    if (!std::ranges::equal(expected[wave % kMatrixTiles], std::span(sums).subspan(wave * tile_floats, tile_floats)))
      refuse_card(device, "the kernel of matrix instructions has wrong sums");
  return static_cast<double>(waves) * codegen::matrix_rate_flops(target, rounds) / seconds;
}

}  // namespace

CardRates measure_card_rates(const driver::Device& device, const std::string& name, codegen::KernelCompiler& compiler,
                             const CardRateOptions& options) {
  const auto* target = codegen::find_target(name);
  invariant(target != nullptr, "CR-001", "a GPU that is measured has a target");
  invariant(options.matrix_rounds <= kMatrixRoundsMax && options.runs > 0, "CR-002", "sums are exact, and runs timed");
  std::vector<codegen::RateKernel> kernels{codegen::read_rate_kernel(*target)};
  if (target->matrix != codegen::MatrixKind::kNone) kernels.push_back(codegen::matrix_rate_kernel(*target));
  std::vector<codegen::KernelSource> sources;
  for (const auto& kernel : kernels) sources.push_back(kernel.source);
  const auto code = compiler.compile(name, sources);
  CardRates rates{.read = measure_reading(device, kernels[0], code[0].code, options)};
  if (kernels.size() > 1) rates.matrix = measure_matrix(device, *target, kernels[1], code[1].code, options);
  return rates;
}

CardRates measure_card_rates(const driver::Device& device, const std::string& target) {
  codegen::CompileServiceOptions options;
  options.cache = plan::CacheOptions::from_environment();
  options.note = [](const std::string& text) { note(text); };
  codegen::CompileService service(std::move(options));
  return measure_card_rates(device, target, service);
}

}  // namespace forge::session
