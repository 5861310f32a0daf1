// Sampling on the device chooses the same tokens as the host sampler with the same seed and filters, and advances the
// step's inputs.

#include <algorithm>
#include <cmath>

#include "kernels/gpu/step_io.h"
#include "runtime/sampler.h"
#include "tests/gpu_host/kernel_bench.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {

constexpr int kScanBlocks = 3, kBlockWaves = 4;

/// The sampling kernel for a vocabulary size and a number of rows. `states`: of a model with recurrent state.
class Sampling {
 public:
  Sampling(int vocab, int rows, int wave, bool states = false) : vocab_(vocab), rows_(rows), states_(states) {
    codegen::KernelText text{.header = "kernels/gpu/sampling.h", .kernel = "Sample", .defaults = {}, .before = {}};
    text.config.number("kVocab", vocab)
        .number("kRows", rows)
        .number("kScanBlocks", kScanBlocks)
        .number("kWaves", kBlockWaves)
        .flag("kStates", states);
    text.blocks = rows * kScanBlocks;
    text.threads = kBlockWaves * wave;
    kernel_ = build_kernels({WaveText{wave, std::move(text)}})[0];
    counters.fill(0);
    counts.fill(0);
  }

  void run(Order order) {
    values.fill(NAN);
    indices.fill(NAN);
    const KernelArgs plain({logits.data(), values.data(), indices.data(), masks.data(), sampling.data(), ids.data(),
                            positions.data(), lengths.data(), counts.data(), counters.data(), sampled.data()});
    const KernelArgs with_states({logits.data(), values.data(), indices.data(), masks.data(), sampling.data(),
                                  ids.data(), positions.data(), lengths.data(), counts.data(), counters.data(),
                                  sampled.data(), state_read.data(), state_write.data()});
    const auto& arguments = states_ ? with_states : plain;
    run_kernel(kernel_, {.order = order}, arguments.data(), arguments.bytes());
    for (const auto* buffer : {&ids, &positions, &lengths, &counts, &sampled, &state_read, &state_write})
      buffer->check();
    logits.check();
    values.check();
    indices.check();
    sampling.check();
    masks.check();
    counters.check();
  }

 private:
  std::size_t vocab_, rows_;
  bool states_;
  Kernel kernel_;

 public:
  Buffer<float> logits{rows_ * vocab_}, values{rows_ * kScanBlocks}, indices{rows_ * kScanBlocks};
  Buffer<int> ids{rows_}, positions{rows_}, lengths{rows_}, counts{4};
  Buffer<int> state_read{rows_}, state_write{rows_};
  Buffer<int> sampled{static_cast<std::size_t>(gpu::kSampledRing) * rows_};
  Buffer<gpu::SamplingRow> sampling{rows_};
  Buffer<std::uint32_t> counters{rows_ + 1};
  std::size_t mask_words = (vocab_ + 31) / 32;
  Buffer<std::uint32_t> masks{rows_ * mask_words};  ///< random: rows without a mask must not read theirs
};

struct Settings {
  const char* what;
  runtime::SamplerParams params;
};
std::vector<Settings> all_settings() {
  return {{"plain", {.temperature = 1}},
          {"hot", {.temperature = 1.7F}},
          {"cold", {.temperature = 0.3F}},
          {"top_k", {.temperature = 1, .top_k = 7}},
          {"top_k 1", {.temperature = 1, .top_k = 1}},
          {"top_p", {.temperature = 0.8F, .top_p = 0.6F}},
          {"tiny top_p", {.temperature = 1, .top_p = 1e-6F}},
          {"min_p", {.temperature = 1, .min_p = 0.2F}},
          {"all", {.temperature = 1.2F, .top_k = 40, .top_p = 0.9F, .min_p = 0.02F}}};
}

gpu::SamplingRow row_of(const runtime::SamplerParams& params, std::uint64_t draws) {
  return {.temperature = params.temperature,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .top_k = params.top_k,
          .seed_low = static_cast<unsigned>(params.seed),
          .seed_high = static_cast<unsigned>(params.seed >> 32),
          .draws = static_cast<unsigned>(draws),
          .masked = 0};
}

int host_choice(std::span<const float> logits, const runtime::SamplerParams& params, std::uint64_t draws,
                std::span<const std::uint32_t> mask = {}) {
  runtime::SamplerScratch scratch(logits.size());
  runtime::Sampler sampler(logits.size(), params);
  sampler.set_draws(draws);
  return sampler.sample(logits, scratch, mask);
}

std::span<const float> logits_of(const Sampling& device, int row, int vocab) {
  return {device.logits.data() + static_cast<std::size_t>(row) * vocab, static_cast<std::size_t>(vocab)};
}

}  // namespace

TEST_CASE("draws equal the host sampler's, with every filter") {
  constexpr int kRows = 9;
  for (const int wave : kWaves)
    for (const int vocab : {1, 37, 1003}) {
      Sampling device(vocab, kRows, wave);
      const auto settings = all_settings();
      REQUIRE(settings.size() == kRows);
      device.counts[gpu::kRowCount] = kRows;
      std::array<int, kRows> different{};
      constexpr int kDraws = 24;
      for (int draw = 0; draw < kDraws; ++draw) {
        const auto logits = random_floats(static_cast<std::size_t>(kRows) * vocab, 2.5F);
        std::ranges::copy(logits, device.logits.data());
        std::vector<int> expected;
        for (int row = 0; row < kRows; ++row) {
          auto params = settings[row].params;
          params.seed = 0x123456789abcdefULL * (row + 1);
          device.sampling[row] = row_of(params, draw);
          device.ids[row] = device.positions[row] = device.lengths[row] = 100 * row + draw;
          expected.push_back(host_choice(logits_of(device, row, vocab), params, draw));
        }
        device.run(kOrders[draw % 3]);
        REQUIRE(device.counts[gpu::kSampledCount] == draw + 1);
        REQUIRE(
            std::ranges::all_of(std::span(device.counters.data(), kRows + 1), [](auto count) { return count == 0; }));
        for (int row = 0; row < kRows; ++row) {
          INFO(settings[row].what << ", draw " << draw << ", vocabulary " << vocab << ", wave " << wave);
          if (device.ids[row] != expected[row]) ++different[row];
          REQUIRE(device.sampled[draw % gpu::kSampledRing * kRows + row] == device.ids[row]);
          REQUIRE(device.positions[row] == 100 * row + draw + 1);
          REQUIRE(device.lengths[row] == 100 * row + draw + 1);
          REQUIRE(device.sampling[row].draws == static_cast<unsigned>(draw) + 1);
        }
      }
      // Rounding may change a draw that falls exactly on a boundary.
      for (int row = 0; row < kRows; ++row) {
        INFO(settings[row].what << ", vocabulary " << vocab << ", wave " << wave);
        CHECK(different[row] <= 1);
      }
    }
}

TEST_CASE("temperature 0 takes the largest logit, the lowest id among equals, and never a NaN") {
  constexpr int kRows = 8, kVocab = 500;
  for (const int wave : kWaves)
    for (const Order order : kOrders) {
      Sampling device(kVocab, kRows, wave);
      const auto logits = random_floats(std::size_t{kRows} * kVocab);
      std::ranges::copy(logits, device.logits.data());
      const auto logit = [&](int row, int i) -> float& { return device.logits[row * kVocab + i]; };
      logit(0, 499) = 50;
      logit(1, 3) = logit(1, 4) = logit(1, 450) = 50;
      logit(2, 7) = NAN;
      logit(2, 8) = 40;
      logit(3, 17) = INFINITY;
      for (int i = 0; i < kVocab; ++i) {
        logit(4, i) = i == 77 ? -INFINITY : NAN;
        logit(5, i) = NAN;
        logit(6, i) = i == 78 ? -1e30F : -INFINITY;
      }
      device.counts[gpu::kRowCount] = kRows - 1;  // the last row is padding
      device.counts[gpu::kSampledCount] = gpu::kSampledRing + 2;
      for (int row = 0; row < kRows; ++row) {
        device.sampling[row] = row_of({}, 5);
        device.positions[row] = device.lengths[row] = 9;
      }
      device.run(order);
      CHECK(device.ids[0] == 499);
      CHECK(device.ids[1] == 3);
      CHECK(device.ids[2] == 8);
      CHECK(device.ids[3] == 17);
      CHECK(device.ids[6] == 78);
      for (const int row : {4, 5}) {
        CHECK(device.ids[row] == 0);  // a valid id, so that the next step reads an existing row
        CHECK(device.sampled[2 * kRows + row] == gpu::kNoFiniteLogits);
      }
      CHECK(device.ids[7] == -1);
      CHECK(device.positions[7] == 9);
      CHECK(device.sampling[0].draws == 5);
      CHECK(device.counts[gpu::kSampledCount] == gpu::kSampledRing + 3);
      for (const int row : {0, 1, 2, 3, 6, 7}) CHECK(device.sampled[2 * kRows + row] == device.ids[row]);
    }
}

TEST_CASE("equal logits are cut by id; infinities and forbidden tokens do not disturb a draw") {
  constexpr int kRows = 4, kVocab = 300;
  for (const int wave : kWaves) {
    Sampling device(kVocab, kRows, wave);
    device.counts[gpu::kRowCount] = kRows;
    std::array<std::array<int, kVocab>, kRows> seen{};
    for (int draw = 0; draw < 64; ++draw) {
      device.logits.fill(1.5F);
      for (int i = 0; i < kVocab; ++i)
        device.logits[2 * kVocab + i] = i % 50 == 3 ? 2.0F : i % 2 == 0 ? NAN : -INFINITY;
      device.logits[3 * kVocab + 9] = INFINITY;
      device.sampling[0] = row_of({.temperature = 1, .top_k = 5, .seed = 3}, draw);
      device.sampling[1] = row_of({.temperature = 1, .top_p = 0.0499F, .seed = 4}, draw);
      device.sampling[2] = row_of({.temperature = 1, .seed = 5}, draw);
      device.sampling[3] = row_of({.temperature = 1, .seed = 6}, draw);
      device.positions.fill(0);
      device.lengths.fill(0);
      device.run(Order::kForward);
      for (int row = 0; row < kRows; ++row) {
        REQUIRE(device.ids[row] >= 0);
        REQUIRE(device.ids[row] < kVocab);
        ++seen[row][device.ids[row]];
      }
    }
    const auto kept = [&](int row) {
      std::vector<int> ids;
      for (int i = 0; i < kVocab; ++i)
        if (seen[row][i] > 0) ids.push_back(i);
      return ids;
    };
    CHECK(kept(0) == std::vector{0, 1, 2, 3, 4});
    CHECK(kept(1).back() <= 14);  // 15 of 300 equal logits have a mass of 0.05
    CHECK(kept(1).size() > 8);
    CHECK(kept(2) == std::vector{3, 53, 103, 153, 203, 253});
    CHECK(kept(3) == std::vector{9});
  }
}

TEST_CASE("the next step reads the state that this one wrote, and writes where this one read") {
  constexpr int kRows = 3, kVocab = 37;
  for (const int wave : kWaves) {
    Sampling device(kVocab, kRows, wave, true);
    device.counts[gpu::kRowCount] = 2;  // the last row is padding
    device.logits.fill(0.0F);
    const int read[kRows] = {4, 5, 6}, write[kRows] = {7, 5, 9};
    for (int row = 0; row < kRows; ++row) {
      device.sampling[row] = row_of({.temperature = 0}, 0);
      device.ids[row] = device.positions[row] = device.lengths[row] = 1;
      device.state_read[row] = read[row];
      device.state_write[row] = write[row];
    }
    for (const bool swapped : {true, false}) {
      device.run(kOrders[0]);
      for (int row = 0; row < kRows; ++row) {
        const bool turned = swapped && row < 2;
        CHECK(device.state_read[row] == (turned ? write : read)[row]);
        CHECK(device.state_write[row] == (turned ? read : write)[row]);
      }
    }
  }
}

TEST_CASE("a row with a mask draws what the host draws under it, and a row without one ignores it") {
  constexpr int kRows = 10;
  for (const int wave : kWaves)
    for (const int vocab : {1, 33, 1003}) {
      Sampling device(vocab, kRows, wave);
      auto settings = all_settings();
      settings.push_back({"greedy", {}});
      device.counts[gpu::kRowCount] = kRows;
      std::array<int, kRows> different{};
      for (int draw = 0; draw < 18; ++draw) {
        const auto logits = random_floats(static_cast<std::size_t>(kRows) * vocab, 2.5F);
        const auto bits = random_floats(device.mask_words * kRows, 1.0F);
        std::ranges::copy(logits, device.logits.data());
        std::vector<int> expected;
        for (int row = 0; row < kRows; ++row) {
          auto params = settings[row].params;
          params.seed = 0x123456789abcdefULL * (row + 1);
          device.sampling[row] = row_of(params, draw);
          device.sampling[row].masked = (row + draw) % 3 > 0 ? 1 : 0;
          auto* mask = device.masks.data() + row * device.mask_words;
          for (std::size_t i = 0; i < device.mask_words; ++i)
            mask[i] = __builtin_bit_cast(std::uint32_t, bits[row * device.mask_words + i]) * 0x9E3779B1U;
          if (draw == 7) mask[0] = 1;  // few tokens or one
          if (draw == 8) std::fill_n(mask, device.mask_words, 0U);
          const auto of_host = std::span<const std::uint32_t>(mask, device.mask_words);
          expected.push_back(host_choice(logits_of(device, row, vocab), params, draw,
                                         device.sampling[row].masked != 0 ? of_host : of_host.first(0)));
        }
        const int line = device.counts[gpu::kSampledCount] % gpu::kSampledRing;
        device.run(kOrders[draw % 3]);
        for (int row = 0; row < kRows; ++row) {
          INFO(settings[row].what << ", draw " << draw << ", vocabulary " << vocab << ", wave " << wave);
          const int chosen = device.sampled[line * kRows + row];
          if (expected[row] < 0)
            CHECK(chosen == gpu::kNoFiniteLogits);
          else if (chosen != expected[row])
            ++different[row];
        }
      }
      for (const int count : different) CHECK(count <= 1);  // rounding, as above
    }
}
