// Mixture of experts: the routing kernel chooses the same experts as the CPU, for random, equal and non-finite logits,
// and the expert matmuls multiply each slot by the rows of its expert.

#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cpu/route.h"
#include "tests/gpu_host/kernel_bench.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {

struct RouteCase {
  int experts, used, groups, groups_used, group_top;
  bool sigmoid, biased, over_chosen;
  int wave;
  int per_adjugate = 1, waves = 1;
  [[nodiscard]] bool scaled() const { return over_chosen; }  ///< each expert has a factor, in half of the cases
};

constexpr int kTokens = 32, kReal = 17, kPad = 3;

WaveText text_of(const RouteCase& c) {
  codegen::KernelText text{.header = "kernels/gpu/experts.h", .kernel = "Route", .defaults = {}, .before = {}};
  text.blocks = kTokens;
  text.threads = c.waves * c.wave;
  text.config.number("kWaves", c.waves)
      .number("kExperts", c.experts)
      .number("kUsed", c.used)
      .number("kGroups", c.groups)
      .number("kGroupsUsed", c.groups_used)
      .number("kGroupTop", c.group_top)
      .number("kPerAdjugate", c.per_adjugate)
      .number("kRowFloats", c.experts + kPad)
      .number("kTokensTotal", kTokens)
      .number("kCount", 0)
      .flag("kSigmoid", c.sigmoid)
      .flag("kBiased", c.biased)
      .flag("kFactors", c.scaled())
      .flag("kOverChosen", c.over_chosen)
      .real("kScale", 1.5F);
  return {c.wave, std::move(text)};
}

/// Token 1 has equal logits, token 2 one NaN, token 3 only NaN, token 4 an infinity, token 5 logits so low that every
/// gate underflows to 0.
std::vector<float> logits_of(const RouteCase& c) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  const auto stride = static_cast<std::size_t>(c.experts + kPad);
  auto out = random_floats(kTokens * stride, 2);
  const auto row = [&](std::size_t t) { return out.begin() + static_cast<std::ptrdiff_t>(t * stride); };
  std::fill_n(row(1), c.experts, 0.5F);
  row(2)[c.experts / 2] = kNan;
  std::fill_n(row(3), c.experts, kNan);
  row(4)[c.experts - 1] = kInfinity;
  std::fill_n(row(5), c.experts, c.sigmoid ? -200.0F : 0.0F);
  return out;
}

void check_route(const RouteCase& c, const Kernel& kernel) {
  INFO("experts " << c.used << " of " << c.experts << ", groups " << c.groups_used << " of " << c.groups << " by "
                  << c.group_top << ", sigmoid " << c.sigmoid << ", biased " << c.biased << ", over chosen "
                  << c.over_chosen << ", per adjugate " << c.per_adjugate << ", " << c.waves << " waves of " << c.wave);
  const auto values = logits_of(c), biases = random_floats(static_cast<std::size_t>(c.experts)),
             factors = random_floats(static_cast<std::size_t>(c.experts));
  const Buffer<float> logits{std::span<const float>(values)}, bias{std::span<const float>(biases)},
      factor{std::span<const float>(factors)};
  const Buffer<int> counts = Buffer<int>::of({kReal, -1, -1, -1});
  Buffer<int> experts(kTokens * c.used);
  Buffer<float> shares(kTokens * c.used);
  const KernelArgs args({logits.data(), bias.data(), factor.data(), counts.data(), experts.data(), shares.data()});
  run_in_all_orders(
      kernel, args,
      [&] {
        experts.fill(-1);
        shares.fill(0);
      },
      [&] { return bytes_of(experts); });
  const cpu::RouteParams params{.experts = static_cast<std::size_t>(c.experts),
                                .used = static_cast<std::size_t>(c.used),
                                .groups = static_cast<std::size_t>(c.groups),
                                .groups_used = static_cast<std::size_t>(c.groups_used),
                                .group_top = static_cast<std::size_t>(c.group_top),
                                .experts_per_adjugate = static_cast<std::size_t>(c.per_adjugate),
                                .sigmoid = c.sigmoid,
                                .over_chosen = c.over_chosen,
                                .scale = 1.5F,
                                .bias = c.biased ? biases.data() : nullptr,
                                .factors = c.scaled() ? factors.data() : nullptr};
  for (int t = 0; t < kReal; ++t) {
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(c.used));
    std::vector<float> expected(chosen.size());
    cpu::route_token(params, values.data() + static_cast<std::size_t>(t) * static_cast<std::size_t>(c.experts + kPad),
                     chosen.data(), expected.data());
    for (int u = 0; u < c.used; ++u) {
      INFO("token " << t << ", place " << u);
      REQUIRE(experts[t * c.used + u] == chosen[static_cast<std::size_t>(u)]);
      const float share = shares[t * c.used + u], wanted = expected[static_cast<std::size_t>(u)];
      if (std::isnan(wanted))
        REQUIRE(std::isnan(share));
      else
        REQUIRE(share == Approx(wanted).epsilon(2e-6).margin(1e-30));
    }
  }
  for (int i = (kReal + 15) / 16 * 16 * c.used; i < kTokens * c.used; ++i) REQUIRE(experts[i] == -1);
  experts.check();
  shares.check();
}

// ---- the router behind its matmul ----

struct RoutedCase {
  int experts, k, tokens, total, used;
  bool sigmoid, scaled;
  int wave;
};

WaveText text_of(const RoutedCase& c) {
  constexpr int kWaves = 2, kRowsPerTeam = 4;
  codegen::ConfigText router;
  router.number("kExperts", c.experts)
      .number("kUsed", c.used)
      .number("kGroups", 1)
      .number("kGroupsUsed", 1)
      .number("kGroupTop", 1)
      .number("kPerAdjugate", 1)
      .number("kRowFloats", c.experts)
      .number("kTokensTotal", c.total)
      .number("kCount", 0)
      .flag("kSigmoid", c.sigmoid)
      .flag("kBiased", false)
      .flag("kFactors", c.scaled)
      .flag("kOverChosen", true)
      .real("kScale", 1);
  codegen::KernelText text{.header = "kernels/gpu/matmul_norm.h",
                           .kernel = "MatmulRoute",
                           .defaults = "MatmulDefaults",
                           .before = "struct Router {\n" + router.text() + R"(};
struct Epilogue {
  struct Args {
    float* logits;
  };
  static constexpr int kIn = 16, kOperands = 0, kParts = 0;
  template <class In>
  FORGE_DEVICE static void run(const Args& a, int t, int n, int, bool real, float, const float (&)[1], In&& in) {
    store(a.logits + t * )" + std::to_string(c.experts) +
                                     R"( + n, in(n), real);
  }
};
)"};
  text.config.use("Weight", weight_text(DType::kF32, c.experts, c.k))
      .use("Epilogue", "gpu::Epilogue")
      .use("Router", "gpu::Router")
      .number("kTokens", c.tokens)
      .number("kTokensTotal", c.total)
      .number("kWaves", kWaves)
      .number("kLanesPerRow", 8)
      .number("kRowsPerTeam", kRowsPerTeam);
  const int block_rows = kWaves * (c.wave / 8) * kRowsPerTeam;
  text.blocks = (c.experts + block_rows - 1) / block_rows * (c.total / c.tokens);
  text.threads = kWaves * c.wave;
  return {c.wave, std::move(text)};
}

void check_routed(const RoutedCase& c, const Kernel& kernel) {
  INFO(c.used << " of " << c.experts << " experts, " << c.total << " tokens, wave " << c.wave);
  const auto experts = static_cast<std::size_t>(c.experts), depth = static_cast<std::size_t>(c.k),
             used = static_cast<std::size_t>(c.used);
  const PlanesWeight weight(DType::kF32, experts, depth);
  const auto x = random_floats(static_cast<std::size_t>(c.total) * depth), factors = random_floats(experts);
  const Buffer<float> x_buffer{std::span<const float>(x)}, factor{std::span<const float>(factors)};
  Buffer<float> logits(static_cast<std::size_t>(c.total) * experts), shares(static_cast<std::size_t>(c.total) * used);
  Buffer<int> chosen(static_cast<std::size_t>(c.total) * used);
  Buffer<std::uint32_t> counters(static_cast<std::size_t>(c.total));
  counters.fill(0);
  const Buffer<int> counts = Buffer<int>::of({c.total, -1, -1, -1});
  const KernelArgs args({weight.planes.data(), x_buffer.data(), counts.data(), logits.data(), logits.data(),
                         factor.data(), factor.data(), counts.data(), chosen.data(), shares.data(), counters.data()});
  run_in_all_orders(
      kernel, args,
      [&] {
        logits.fill(NAN);
        chosen.fill(-1);
      },
      [&] { return bytes_of(chosen); });
  const cpu::RouteParams params{.experts = experts,
                                .used = used,
                                .groups = 1,
                                .groups_used = 1,
                                .group_top = 1,
                                .experts_per_adjugate = 1,
                                .sigmoid = c.sigmoid,
                                .over_chosen = true,
                                .scale = 1,
                                .bias = nullptr,
                                .factors = c.scaled ? factors.data() : nullptr};
  const auto sums = multiply(weight.values, x, depth).sums;
  const std::vector<float> wanted(sums.begin(), sums.end());
  for (std::size_t t = 0; t < static_cast<std::size_t>(c.total); ++t) {
    std::vector<std::int32_t> numbers(used);
    std::vector<float> expected(used);
    cpu::route_token(params, wanted.data() + t * experts, numbers.data(), expected.data());
    for (std::size_t u = 0; u < used; ++u) {
      INFO("token " << t << ", place " << u);
      REQUIRE(chosen[t * used + u] == numbers[u]);
      REQUIRE(shares[t * used + u] == Approx(expected[u]).epsilon(1e-4));
    }
  }
  for (std::size_t i = 0; i < counters.size(); ++i) REQUIRE(counters[i] == 0);
  for (const auto* buffer : {&logits, &shares}) buffer->check();
  chosen.check();
}

// ---- expert matmuls ----

struct SlotsCase {
  DType type;
  int columns, k, slots;
  bool shared;
  int wave;
  const char* tile = nullptr;  ///< the tile layout, if matrix instructions are used
  int terms = 1;               ///< of rows of x
  bool strips = false;         ///< MatmulStrips, in blocks of one instruction's slots
  int tokens = kTokens, real = kReal;
  /// Tokens that are computed.
  [[nodiscard]] int whole() const { return std::min((real + 15) / 16 * 16, tokens); }
};
constexpr int kExperts = 5;

WaveText text_of(const SlotsCase& c) {
  constexpr int kWaves = 4, kRowsPerTeam = 4;
  const std::string columns = std::to_string(c.columns);
  const bool tiles = c.tile != nullptr;
  codegen::KernelText text{.header = c.strips ? "kernels/gpu/matmul_strips.h"
                                     : tiles  ? "kernels/gpu/matmul_tiles.h"
                                              : "kernels/gpu/matmul_rows.h",
                           .kernel = c.strips ? "MatmulStrips"
                                     : tiles  ? "MatmulTiles"
                                              : "MatmulRows",
                           .defaults = c.strips ? "StripsDefaults"
                                       : tiles  ? "TilesDefaults"
                                                : "MatmulDefaults",
                           .before = R"(struct Epilogue {
  struct Args {
    float* out;
    const float* partial;
  };
  static constexpr int kIn = 16, kOperands = 0, kParts = 3, kSlots = )" +
                                     std::to_string(c.slots) + R"(;
  FORGE_DEVICE static const float* squares(const Args& a) { return a.partial; }
  FORGE_DEVICE static float inv_rms(float sum) { return sum; }
  template <class In>
  FORGE_DEVICE static void run(const Args& a, int t, int n, int, bool real, float factor, const float (&)[1], In&& in) {
    store(a.out + t * )" + columns + R"( + n, in(n) * factor, real);
  }
};
)"};
  text.config.use("Weight", weight_text(c.type, static_cast<std::int64_t>(kExperts) * c.columns, c.k))
      .use("Epilogue", "gpu::Epilogue")
      .number("kTokensTotal", static_cast<std::int64_t>(c.tokens) * c.slots)
      .number("kSlots", c.slots)
      .number("kColumns", c.columns)
      .flag("kSharedX", c.shared);
  if (!tiles) text.config.number("kXTerms", c.terms);
  if (tiles) {
    constexpr int kWaveTiles = 1, kWavesDown = 2;
    const bool narrow = std::string_view(c.tile).starts_with("Mma");
    const int tile_slots = c.strips && narrow ? 8 : 16;
    text.config.use("Tile", c.tile)
        .number("kWavesDown", kWavesDown)
        .number("kWavesAcross", 1)
        .number("kTilesAcross", tile_slots / (narrow ? 8 : 16))
        .number("kTokensTogether", tile_slots);
    if (c.strips) text.config.number("kSlabs", 4);
    const int slots = c.tokens * c.slots, rows = kWavesDown * kWaveTiles * 16;
    text.threads = kWavesDown * c.wave;
    text.blocks =
        static_cast<std::int64_t>((c.columns + rows - 1) / rows) * (slots / tile_slots + std::min(kExperts, slots));
    return {c.wave, std::move(text)};
  }
  text.config.number("kWaves", kWaves).number("kRowsPerTeam", kRowsPerTeam);
  text.threads = kWaves * c.wave;
  text.blocks = (c.columns + kWaves * kRowsPerTeam - 1) / (kWaves * kRowsPerTeam) * c.tokens * c.slots;
  return {c.wave, std::move(text)};
}

void check_slots(const SlotsCase& c, const Kernel& kernel) {
  INFO("type " << dtype_name(c.type) << ", " << c.columns << "x" << c.k << ", slots " << c.slots << ", shared "
               << c.shared << ", wave " << c.wave << ", tokens " << c.real << " of " << c.tokens << ", strips "
               << c.strips);
  PlanesWeight weight(c.type, static_cast<std::size_t>(kExperts * c.columns), static_cast<std::size_t>(c.k));
  const std::size_t k = static_cast<std::size_t>(c.k),
                    rows = static_cast<std::size_t>(c.tokens) * static_cast<std::size_t>(c.shared ? 1 : c.slots);
  auto x = random_floats(rows * k);
  const bool tiles = c.tile != nullptr, f16 = c.type == DType::kF16 || c.terms == 2;
  const auto numbers = !f16 ? DType::kBF16 : is_float(c.type) ? DType::kF16 : DType::kF16A;  // of tiles
  Buffer<std::byte> activations(rows * (tiles              ? 2 * k
                                        : is_float(c.type) ? 4 * k
                                                           : static_cast<std::size_t>(c.terms) * q8_row_bytes(k)));
  if (tiles) {
    std::memcpy(activations.data(), numbers_of(numbers, x).data(), x.size() * 2);
    round_to(numbers, x);
    round_as_tiles(f16 ? DType::kF16 : DType::kBF16, c.type, weight);
  } else if (is_float(c.type)) {
    std::memcpy(activations.data(), x.data(), x.size() * sizeof(float));
  } else {
    const auto quantised = quantise_rows(x, k, c.terms);
    std::copy(quantised.begin(), quantised.end(), activations.data());
    x = values_of_rows(activations.data(), rows, k, c.terms);
  }
  Buffer<int> experts(c.tokens * c.slots);
  for (int s = 0; s < c.tokens * c.slots; ++s)
    experts[s] = s % 4 == 0 ? 3 : (s * 7 + s / 3) % (kExperts - 1);  // one expert with many slots, one with none
  Buffer<float> partial(c.tokens * 3), out(static_cast<std::size_t>(c.tokens * c.slots * c.columns));
  for (int i = 0; i < c.tokens * 3; ++i) partial[i] = 1.0F + static_cast<float>(i % 5);
  const Buffer<int> counts = Buffer<int>::of({c.real, -1, -1, -1});
  Buffer<float> totals(c.tokens);  // of the partial sums, for tiles
  for (int i = 0; i < c.tokens; ++i) totals[i] = partial[i * 3] + partial[i * 3 + 1] + partial[i * 3 + 2];
  const KernelArgs of_rows(
      {weight.planes.data(), activations.data(), counts.data(), experts.data(), out.data(), partial.data()});
  Buffer<int> sorted(kExperts + c.tokens * c.slots);  // what SortSlots writes
  int next = kExperts;
  for (int e = 0; e < kExperts; ++e) {
    const int first = next;
    for (int s = 0; s < c.whole() * c.slots; ++s)
      if (experts[s] == e) sorted[next++] = s;
    sorted[e] = next - first;
  }
  const KernelArgs of_tiles({weight.planes.data(), activations.data(), totals.data(), nullptr, nullptr, counts.data(),
                             sorted.data(), out.data(), partial.data()});
  const auto& args = tiles ? of_tiles : of_rows;
  run_in_all_orders(kernel, args, [&] { out.fill(-7); }, [&] { return bytes_of(out); });
  const Products products = multiply(weight.values, x, k);
  for (int slot = 0; slot < c.real * c.slots; ++slot)
    for (int n = 0; n < c.columns; ++n) {
      const int token = slot / c.slots, row = c.shared ? token : slot;
      const std::size_t at = static_cast<std::size_t>(row) * kExperts * static_cast<std::size_t>(c.columns) +
                             static_cast<std::size_t>(experts[slot] * c.columns + n);
      const double factor = partial[token * 3] + partial[token * 3 + 1] + partial[token * 3 + 2];
      INFO("slot " << slot << ", column " << n);
      REQUIRE(std::fabs(out[slot * c.columns + n] - products.sums[at] * factor) <=
              4e-6 * products.magnitudes[at] * factor);
    }
  for (int i = c.whole() * c.slots * c.columns; i < c.tokens * c.slots * c.columns; ++i) REQUIRE(out[i] == -7);
  out.check();
}

}  // namespace

TEST_CASE("experts are chosen as on the CPU") {
  struct Shape {
    int experts, used, groups, groups_used, group_top, per_adjugate = 1;
  };
  constexpr Shape kShapes[] = {{4, 2, 1, 1, 1},      {1, 1, 1, 1, 1},     {60, 4, 1, 1, 1},
                               {128, 8, 1, 1, 1},    {256, 8, 8, 4, 2},   {24, 3, 4, 2, 2},
                               {128, 8, 1, 1, 1, 2}, {24, 3, 1, 1, 1, 8}, {10, 3, 1, 1, 1}};
  const Choice<6> sizes{std::size(kShapes), 2, 2, 2, std::size(kWaves), 2};
  std::vector<RouteCase> cases;
  for (const auto& at : cases_of(sizes, [](const Choice<6>&) { return true; })) {
    const auto& [experts, used, groups, groups_used, group_top, per_adjugate] = kShapes[at[0]];
    cases.push_back({experts, used, groups, groups_used, group_top, at[1] == 1, at[2] == 1, at[3] == 1, kWaves[at[4]],
                     per_adjugate, at[5] == 0 ? 1 : 4});
  }
  check_cases(cases, [](const RouteCase& c) { return text_of(c); }, check_route);
}

TEST_CASE("slots are multiplied by their experts' rows") {
  constexpr DType kTypes[] = {DType::kQ8_0, DType::kF16, DType::kQ4_K, DType::kQ6_K};
  const Choice<6> sizes{std::size(kTypes), 2, 2, 2, std::size(kWaves), 2};
  std::vector<SlotsCase> cases;
  for (const auto& at : cases_of(sizes, [&](const Choice<6>& one) { return one[5] == 0 || !is_float(kTypes[one[0]]); }))
    cases.push_back({kTypes[at[0]], at[1] == 0 ? 16 : 40, 256, static_cast<int>(at[2]) + 1, at[3] == 1, kWaves[at[4]],
                     nullptr, static_cast<int>(at[5]) + 1});
  check_cases(cases, [](const SlotsCase& c) { return text_of(c); }, check_slots);
}

TEST_CASE("matrix instructions multiply the slots of each expert together") {
  struct Instruction {
    const char *half, *bf16;
    int wave;
  };
  constexpr Instruction kInstructions[] = {{"MfmaF16Tile", "MfmaBf16Tile", 64},
                                           {"WmmaF16Gfx11Tile", "WmmaBf16Gfx11Tile", 32},
                                           {"WmmaF16Gfx12Tile", "WmmaBf16Gfx12Tile", 32},
                                           {"MmaF16Tile", "MmaBf16Tile", 32}};
  constexpr DType kTypes[] = {DType::kQ8_0, DType::kF16, DType::kQ4_K};
  constexpr int kSlotsOf[] = {1, 2, 6};
  const Choice<6> sizes{std::size(kTypes), 2, std::size(kSlotsOf), 2, std::size(kInstructions), 2};
  std::vector<SlotsCase> cases;
  for (const auto& at :
       cases_of(sizes, [&](const Choice<6>& one) { return one[5] == 0 || !is_float(kTypes[one[0]]); })) {
    const auto type = kTypes[at[0]];
    const int terms = static_cast<int>(at[5]) + 1;
    const auto& by = kInstructions[at[4]];
    cases.push_back({type, at[1] == 0 ? 16 : 80, 256, kSlotsOf[at[2]], at[3] == 1, by.wave,
                     type == DType::kF16 || terms == 2 ? by.half : by.bf16, terms});
  }
  // Weights straight to registers: many slots, and steps of 8 tokens.
  const Choice<5> strips{std::size(kTypes), std::size(kSlotsOf), 2, std::size(kInstructions), 2};
  for (const auto& at : cases_of(strips, [](const Choice<5>&) { return true; })) {
    const auto& by = kInstructions[at[3]];
    const auto type = kTypes[at[0]];
    cases.push_back(
        {type, 80, 256, kSlotsOf[at[1]], at[2] == 1, by.wave, type == DType::kF16 ? by.half : by.bf16, 1, true});
    if (at[4] == 1) cases.back().tokens = 8, cases.back().real = 5;
  }
  check_cases(cases, [](const SlotsCase& c) { return text_of(c); }, check_slots);
}

TEST_CASE("slots are sorted by expert, in ascending order") {
  struct Case {
    int experts, slots, wave;
  };
  const auto text_of_sort = [](const Case& c) {
    codegen::KernelText text{.header = "kernels/gpu/slot_tiles.h", .kernel = "SortSlots", .defaults = {}, .before = {}};
    text.config.number("kExperts", c.experts)
        .number("kSlots", c.slots)
        .number("kTokensTotal", kTokens * c.slots)
        .number("kCount", 0);
    text.blocks = c.experts;
    text.threads = 256;
    return WaveText{c.wave, std::move(text)};
  };
  std::vector<Case> cases;
  for (const int wave : kWaves)
    for (const auto& [experts, slots] : {std::pair{5, 1}, {5, 9}, {130, 12}}) cases.push_back({experts, slots, wave});
  check_cases(cases, text_of_sort, [](const Case& c, const Kernel& kernel) {
    for (const int real : {1, 16, 17, kTokens}) {
      Buffer<int> experts(kTokens * c.slots), sorted(c.experts + kTokens * c.slots);
      for (int s = 0; s < kTokens * c.slots; ++s) experts[s] = s % 3 == 0 ? 3 : (s * 7 + s / 3) % c.experts;
      const Buffer<int> counts = Buffer<int>::of({real, -1, -1, -1});
      const KernelArgs args({experts.data(), counts.data(), sorted.data()});
      run_in_all_orders(kernel, args, [&] { sorted.fill(-1); }, [&] { return bytes_of(sorted); });
      const int slots = (real + 15) / 16 * 16 * c.slots;
      int next = c.experts;
      for (int e = 0; e < c.experts; ++e) {
        const int first = next;
        for (int s = 0; s < slots; ++s)
          if (experts[s] == e) REQUIRE(sorted[next++] == s);
        REQUIRE(sorted[e] == next - first);
      }
      for (int i = next; i < c.experts + kTokens * c.slots; ++i) REQUIRE(sorted[i] == -1);
      for (const auto* buffer : {&experts, &sorted}) buffer->check();
    }
  });
}

TEST_CASE("the last block of a router's matmul chooses the experts") {
  std::vector<RoutedCase> cases;
  for (const int wave : kWaves)
    for (const auto& [experts, tokens, total, used, sigmoid, scaled] :
         {std::tuple{64, 1, 1, 8, false, true}, {200, 2, 4, 4, false, false}, {1, 1, 2, 1, true, false}})
      cases.push_back({experts, 64, tokens, total, used, sigmoid, scaled, wave});
  check_cases(cases, [](const RoutedCase& c) { return text_of(c); }, check_routed);
}
