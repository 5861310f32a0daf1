// Recurrences of prefill by matrix instructions, with the tile layouts of every vendor, and token by token, compared
// with the definition in f64: runs shorter and longer than a chunk, idle sequences, states that begin as zeros or in
// another slot, heads that share keys in both orders, columns that fill no block, and decays of heads or of rows.

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "tests/gpu_host/f16_tiles.h"
#include "tests/gpu_host/kernel_bench.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {

struct Rule {
  const char* name;
  bool delta, interleaved, unit;
  bool each_row = false;  ///< a decay for each row of the state
  bool rwkv = false;      ///< RWKV-7: what is read by keys is written by others than values are
};
constexpr Rule kRules[] = {{"DeltaTiles", true, false, true},       {"DeltaTiles", true, true, false},
                           {"ScanTiles", false, false, false},      {"DeltaTiles", true, false, true, true},
                           {"DeltaTiles", true, true, false, true}, {"Rwkv7Tiles", false, false, false, true, true}};
constexpr int kRwkv7RowsMax = 64;
/// Rows and columns of a head's state.
struct Shape {
  int heads, key_heads, rows, columns, waves;
};
constexpr Shape kShapes[] = {{4, 2, 32, 32, 2},  {2, 2, 128, 40, 2}, {3, 1, 64, 16, 1},
                             {2, 1, 96, 128, 4}, {4, 2, 16, 24, 1},  {1, 1, 36, 72, 4}};
/// Tokens of each sequence.
const std::vector<std::vector<int>> kSteps{{1, 7, 0, 16, 17, 70}, {128}, {33, 31, 60, 0, 2}};
constexpr int kSequences = 7, kSlots = 2 * kSequences, kPadding = 5;

struct TilesCase {
  Rule rule;
  Shape shape;
  std::vector<int> runs;
  Instruction instruction;
  float decay = 0.3F;   ///< deviation of its logarithm
  bool forgets = true;  ///< some decays are close to 0, or 0
  float size = 1;       ///< factor of values and states
  float keys = 1;       ///< factor of keys, RWKV-7's alone
  [[nodiscard]] int tokens() const { return std::accumulate(runs.begin(), runs.end(), 0); }
  [[nodiscard]] int total() const { return tokens() + kPadding; }
  [[nodiscard]] int state_floats() const { return shape.heads * shape.rows * shape.columns; }
  [[nodiscard]] int slot_floats() const { return state_floats() + 8; }
  [[nodiscard]] int key_floats() const { return shape.key_heads * shape.rows; }
  [[nodiscard]] int value_floats() const { return shape.heads * shape.columns; }
  [[nodiscard]] int decay_floats() const { return shape.heads * (rule.each_row ? shape.rows : 1); }
  /// With decays of rows a lane for each row of whole slabs, two for RWKV-7, as the choice of kernels has it.
  [[nodiscard]] int waves() const {
    const int lanes = (shape.rows + 31) / 32 * 32 * (rule.rwkv ? 2 : 1);
    return std::max(shape.waves, rule.each_row ? (lanes + instruction.wave - 1) / instruction.wave : 1);
  }
  /// Queries and keys (c and b of a scan; r, k, a and b of RWKV-7) are columns of one row.
  [[nodiscard]] int vectors() const { return rule.rwkv ? 4 : 2; }
  [[nodiscard]] int row_floats() const { return vectors() * key_floats() + 4; }
  [[nodiscard]] int key_head(int head) const {
    return rule.interleaved ? head % shape.key_heads : head / (shape.heads / shape.key_heads);
  }
};
/// The case with a shape that its rule may have: heads of RWKV-7 share no keys, and their states are square.
TilesCase fitted(TilesCase c) {
  const int rows = std::min(c.shape.rows, kRwkv7RowsMax);
  if (c.rule.rwkv) c.shape = {c.shape.heads, c.shape.heads, rows, rows, c.shape.waves};
  return c;
}
constexpr float kScale = 0.25F, kEpsilon = 1e-6F;

WaveText text_of(const TilesCase& c) {
  codegen::KernelText text{.header = "kernels/gpu/recurrent_tiles.h",
                           .kernel = "StateTiles",
                           .defaults = "StateTilesDefaults",
                           .before = {}};
  codegen::ConfigText params;
  params.number("kHeads", c.shape.heads);
  if (c.rule.delta)
    params.number("kKeyHeads", c.shape.key_heads)
        .number("kKeyDim", c.shape.rows)
        .number("kValueDim", c.shape.columns)
        .flag("kInterleaved", c.rule.interleaved)
        .flag("kDecayEachRow", c.rule.each_row)
        .real("kScale", kScale)
        .real("kEpsilon", c.rule.unit ? kEpsilon : 0)
        .number("kQFloats", c.row_floats())
        .number("kKFloats", c.row_floats())
        .number("kVFloats", c.value_floats())
        .number("kDecayFloats", c.decay_floats())
        .number("kBetaFloats", c.shape.heads);
  else if (c.rule.rwkv)
    params.number("kHeadDim", c.shape.rows)
        .number("kRFloats", c.row_floats())
        .number("kWFloats", c.decay_floats())
        .number("kKFloats", c.row_floats())
        .number("kVFloats", c.value_floats())
        .number("kAFloats", c.row_floats())
        .number("kBFloats", c.row_floats());
  else
    params.number("kGroups", c.shape.key_heads)
        .number("kHeadDim", c.shape.columns)
        .number("kStateDim", c.shape.rows)
        .flag("kEachState", false)
        .number("kXFloats", c.value_floats())
        .number("kDtFloats", c.shape.heads)
        .number("kBFloats", c.row_floats())
        .number("kCFloats", c.row_floats());
  text.before = fmt::format("struct Params {{\n{}}};\n", params.text());
  text.config.use("Rule", fmt::format("{}<Params>", c.rule.name))
      .use("Tile", c.instruction.name)
      .number("kHeads", c.shape.heads)
      .number("kColumns", c.shape.columns)
      .number("kRows", c.shape.rows)
      .number("kWaves", c.waves())
      .number("kSequences", kSequences)
      .number("kTokensTotal", c.total())
      .number("kSlotFloats", c.slot_floats())
      .number("kOutFloats", c.value_floats() + 3);
  const int block_columns = 16 * c.waves();
  text.blocks = kSequences * c.shape.heads * ((c.shape.columns + block_columns - 1) / block_columns);
  text.threads = c.waves() * c.instruction.wave;
  return {c.instruction.wave, std::move(text)};
}

/// The inputs of a step. Rows after its last token are NaN.
struct Step {
  Buffer<float> rows, values, decays, weights, rates, skips, state;
  Buffer<int> counts{4}, sequence, read{kSequences}, write{kSequences};

  explicit Step(const TilesCase& c)
      : rows(static_cast<std::size_t>(c.total()) * c.row_floats()),
        values(static_cast<std::size_t>(c.total()) * c.value_floats()),
        decays(static_cast<std::size_t>(c.total()) * c.decay_floats()),
        weights(static_cast<std::size_t>(c.total()) * c.shape.heads),
        rates(c.shape.heads),
        skips(c.shape.heads),
        state(random_floats(static_cast<std::size_t>(kSlots) * c.slot_floats(), 0.3F)),
        sequence(c.total()) {
    const auto fill = [](Buffer<float>& to, std::size_t count) {
      const auto some = random_floats(count);
      std::ranges::copy(some, to.data());
    };
    const auto tokens = static_cast<std::size_t>(c.tokens());
    fill(rows, tokens * c.row_floats());
    // A delta rule diverges unless |k|^2 beta stays below 2.
    if (!c.rule.unit)
      for (std::size_t i = 0; i < tokens * c.row_floats(); ++i)
        rows[i] /= std::sqrt(1.5F * static_cast<float>(c.shape.rows));
    fill(values, tokens * c.value_floats());
    for (auto* numbers : {&values, &state})
      for (float& number : std::span(numbers->data(), numbers->size())) number *= c.size;
    fill(decays, tokens * c.decay_floats());
    fill(weights, tokens * c.shape.heads);
    fill(skips, skips.size());
    fill(rates, rates.size());
    for (std::size_t i = 0; i < tokens * c.decay_floats(); ++i) {
      decays[i] = -std::fabs(c.decay * decays[i]);
      if (c.forgets && i % 29 == 17) decays[i] = -std::numeric_limits<float>::infinity();
      if (c.forgets && i % 13 == 11) decays[i] = -20;
      if (c.rule.rwkv) decays[i] = std::exp(decays[i]);
    }
    if (c.rule.rwkv)
      for (std::size_t t = 0; t < tokens; ++t) set_keys(c, rows.data() + t * c.row_floats());
    for (std::size_t i = 0; i < tokens * c.shape.heads; ++i) weights[i] = 1 / (1 + std::exp(-weights[i]));
    for (float& rate : std::span(rates.data(), rates.size())) rate = -std::fabs(c.decay * rate) - 0.01F;
    int at = 0;
    for (std::size_t s = 0; s < c.runs.size(); ++s)
      for (int i = 0; i < c.runs[s]; ++i) sequence[at++] = static_cast<int>(s);
    for (int s = 0; s < kSequences; ++s) {
      read[s] = s % 3 == 0 ? -1 : 2 * s;
      write[s] = s % 3 == 1 ? read[s] : 2 * s + 1;
    }
    counts.fill(0);
    counts[0] = counts[1] = c.tokens();
    counts[2] = static_cast<int>(c.runs.size());
  }

 private:
  /// RWKV-7: keys are of any length, a of a token is of unit length, and b is -a times a rate below 1 for each row.
  static void set_keys(const TilesCase& c, float* row) {
    for (int i = 0; i < c.key_floats(); ++i) row[c.key_floats() + i] *= c.keys;
    for (int head = 0; head < c.shape.heads; ++head) {
      float *a = row + 2 * c.key_floats() + head * c.shape.rows, *b = a + c.key_floats();
      const float length = std::sqrt(std::inner_product(a, a + c.shape.rows, a, 0.0F));
      for (int i = 0; i < c.shape.rows; ++i) {
        a[i] /= length;
        b[i] = -a[i] / (1 + std::exp(-10 * b[i]));
      }
    }
  }
};

using Doubles = std::vector<double>;
/// What a step should leave: states as [sequence][head][column][row] and rows of the result, token by token.
struct Reference {
  std::vector<Doubles> states;
  Doubles out;

  Reference(const TilesCase& c, const Step& step) : out(static_cast<std::size_t>(c.tokens()) * c.value_floats()) {
    int first = 0;
    for (std::size_t s = 0; s < c.runs.size(); first += c.runs[s++]) {
      Doubles state(c.state_floats());
      if (const int from = step.read[s]; from >= 0)
        std::copy_n(step.state.data() + static_cast<std::ptrdiff_t>(from) * c.slot_floats(), state.size(),
                    state.begin());
      for (int t = first; t < first + c.runs[s]; ++t)
        for (int head = 0; head < c.shape.heads; ++head) advance(c, step, state, t, head);
      states.push_back(std::move(state));
    }
  }

 private:
  void advance(const TilesCase& c, const Step& step, Doubles& state, int t, int head) {
    const float* row = step.rows.data() + static_cast<std::ptrdiff_t>(t) * c.row_floats();
    const auto vector = [&](int which) {
      const float* from = row + which * c.key_floats() + c.key_head(head) * c.shape.rows;
      Doubles v(from, from + c.shape.rows);
      const double squares = std::inner_product(v.begin(), v.end(), v.begin(), 0.0);
      for (double& x : v) x /= c.rule.unit ? std::sqrt(squares + kEpsilon) : 1;
      return v;
    };
    const auto q = vector(0), k = vector(1);
    const auto a = c.rule.rwkv ? vector(2) : Doubles(), b = c.rule.rwkv ? vector(3) : Doubles();
    const auto gate = static_cast<std::size_t>(t) * c.shape.heads + head;
    const double weight = step.weights[gate];
    const auto decay = [&](int row) {
      if (c.rule.rwkv) return static_cast<double>(step.decays[gate * c.shape.rows + row]);
      if (!c.rule.delta) return std::exp(weight * step.rates[head]);
      return std::exp(static_cast<double>(step.decays[c.rule.each_row ? gate * c.shape.rows + row : gate]));
    };
    Doubles decays(c.shape.rows);
    for (int row = 0; row < c.shape.rows; ++row) decays[row] = decay(row);
    for (int column = 0; column < c.shape.columns; ++column) {
      const auto at = static_cast<std::size_t>(head) * c.shape.columns + column;
      double* s = state.data() + at * c.shape.rows;
      const double v = step.values[static_cast<std::size_t>(t) * c.value_floats() + at];
      double recalled = 0, y = 0;
      if (c.rule.rwkv) {
        recalled = std::inner_product(a.begin(), a.end(), s, 0.0);
        for (int i = 0; i < c.shape.rows; ++i) {
          s[i] = decays[i] * s[i] + b[i] * recalled + k[i] * v;
          y += s[i] * q[i];
        }
        out[static_cast<std::size_t>(t) * c.value_floats() + at] = y;
        continue;
      }
      for (int i = 0; i < c.shape.rows; ++i) {
        s[i] *= decays[i];
        recalled += s[i] * k[i];
      }
      const double u = weight * (c.rule.delta ? v - recalled : v);
      for (int i = 0; i < c.shape.rows; ++i) {
        s[i] += k[i] * u;
        y += s[i] * q[i];
      }
      out[static_cast<std::size_t>(t) * c.value_floats() + at] = c.rule.delta ? kScale * y : y + step.skips[head] * v;
    }
  }
};

/// The mean square of numbers.
double power(std::span<const double> numbers) {
  return std::inner_product(numbers.begin(), numbers.end(), numbers.begin(), 0.0) / static_cast<double>(numbers.size());
}
/// The mean squared error, relative to `power`; infinite if a number is NaN.
double nmse(std::span<const float> got, const double* want, double power) {
  double error = 0;
  for (std::size_t i = 0; i < got.size(); ++i) error += (got[i] - want[i]) * (got[i] - want[i]);
  const double ratio = error / power / static_cast<double>(got.size());
  return std::isfinite(ratio) ? ratio : std::numeric_limits<double>::infinity();
}

/// The worst nmse of a sequence's results and of its state. Checks what must not change.
double check_step(const TilesCase& c, const Kernel& kernel, bool all_orders = true) {
  Step step(c);
  const Reference want(c, step);
  const auto before = step.state.values();
  const auto out_floats = static_cast<std::size_t>(c.value_floats()) + 3;
  Buffer<float> out(static_cast<std::size_t>(c.total()) * out_floats);
  std::vector<const void*> pointers;
  const float *q = step.rows.data(), *k = q + c.key_floats(), *a = k + c.key_floats(), *b = a + c.key_floats();
  const KernelArgs args =
      c.rule.rwkv
          ? KernelArgs({q, step.decays.data(), k, step.values.data(), a, b, step.state.data(), step.counts.data(),
                        step.sequence.data(), step.read.data(), step.write.data(), out.data()})
      : c.rule.delta
          ? KernelArgs({q, k, step.values.data(), step.decays.data(), step.weights.data(), step.state.data(),
                        step.counts.data(), step.sequence.data(), step.read.data(), step.write.data(), out.data()})
          : KernelArgs({step.values.data(), step.weights.data(), step.rates.data(), k, q, step.skips.data(),
                        step.state.data(), step.counts.data(), step.sequence.data(), step.read.data(),
                        step.write.data(), out.data()});
  const auto reset = [&] {
    std::ranges::copy(before, step.state.data());
    out.fill(NAN);
  };
  if (all_orders) {
    run_in_all_orders(kernel, args, reset, [&] {
      auto bytes = bytes_of(out);
      const auto state = bytes_of(step.state);
      bytes.insert(bytes.end(), state.begin(), state.end());
      return bytes;
    });
  } else {
    reset();
    run_kernel(kernel, {}, args.data(), args.bytes());
  }
  out.check();
  step.state.check();
  double worst = 0;
  std::vector<char> written(before.size());
  std::size_t t = 0;
  for (std::size_t s = 0; s < c.runs.size(); ++s) {
    if (c.runs[s] == 0) continue;
    const double* rows = want.out.data() + t * c.value_floats();
    std::vector<float> got;
    for (int i = 0; i < c.runs[s]; ++i, ++t) {
      const float* row = out.data() + t * out_floats;
      got.insert(got.end(), row, row + c.value_floats());
      CHECK(std::all_of(row + c.value_floats(), row + out_floats, [](float x) { return std::isnan(x); }));
    }
    // With decays of rows a run of few tokens may have far larger results than the others: what it reads of its state.
    const double own = c.rule.each_row ? power(std::span(rows, got.size())) : 0;
    worst = std::max(worst, nmse(got, rows, std::max(power(want.out), own)));
    const auto place = static_cast<std::size_t>(step.write[s]) * c.slot_floats();
    const float* state = step.state.data() + place;
    worst =
        std::max(worst, nmse(std::span(state, want.states[s].size()), want.states[s].data(), power(want.states[s])));
    std::fill_n(written.begin() + static_cast<std::ptrdiff_t>(place), c.state_floats(), 1);
  }
  for (; t < static_cast<std::size_t>(c.total()); ++t)
    CHECK(std::all_of(out.data() + t * out_floats, out.data() + (t + 1) * out_floats,
                      [](float x) { return std::isnan(x); }));
  bool kept = true;
  for (std::size_t i = 0; i < before.size(); ++i) kept = kept && (written[i] != 0 || before[i] == step.state[i]);
  CHECK(kept);
  return worst;
}

std::string name_of(const TilesCase& c) {
  return fmt::format("{}{}{}{}, {}, {}/{} heads, {}x{}, {} waves, {} tokens", c.rule.name,
                     c.rule.interleaved ? " interleaved" : "", c.rule.unit ? " unit" : "",
                     c.rule.each_row ? " each row" : "", c.instruction.name, c.shape.heads, c.shape.key_heads,
                     c.shape.rows, c.shape.columns, c.waves(), c.tokens());
}

}  // namespace

TEST_CASE("recurrences by matrix instructions give what the definition gives token by token") {
  const Choice<4> sizes{std::size(kRules), std::size(kShapes), static_cast<int>(kSteps.size()),
                        std::size(kInstructions)};
  std::vector<TilesCase> cases;
  for (const auto& at : cases_of(sizes, [](const Choice<4>&) { return true; }))
    cases.push_back(fitted({kRules[at[0]], kShapes[at[1]], kSteps[at[2]], kInstructions[at[3]]}));
  check_cases(cases, text_of, [](const TilesCase& c, const Kernel& kernel) {
    INFO(name_of(c));
    CHECK(check_step(c, kernel) < 1e-6);
  });
}

TEST_CASE("recurrences by matrix instructions keep states that f16 could not hold") {
  std::vector<TilesCase> cases;
  for (const auto& rule : kRules)
    for (const auto& instruction : kInstructions)
      cases.push_back(fitted({rule, {2, 2, 128, 40, 2}, {70, 1, 33}, instruction, 0.3F, true, 1e7F}));
  for (const auto& instruction : kInstructions)
    cases.push_back({kRules[5], {2, 2, 64, 64, 4}, {70, 1, 33}, instruction, 0.03F, false, 1e7F, 64});
  check_cases(cases, text_of, [](const TilesCase& c, const Kernel& kernel) {
    INFO(name_of(c));
    CHECK(check_step(c, kernel) < 1e-6);
  });
}

TEST_CASE("recurrences with a decay for each row stay accurate however strong the decays are") {
  std::vector<TilesCase> cases;
  for (const auto& rule : {kRules[3], kRules[5]})
    for (const float decay : {0.003F, 2.0F, 60.0F})
      for (const auto& instruction : kInstructions)
        cases.push_back(fitted({rule, {2, 1, 64, 16, 2}, {70, 33}, instruction, decay, decay > 1}));
  check_cases(cases, text_of, [](const TilesCase& c, const Kernel& kernel) {
    INFO(name_of(c) << ", decay " << c.decay);
    CHECK(check_step(c, kernel, false) < 1e-6);
  });
}

TEST_CASE("recurrences by matrix instructions stay accurate over 4000 tokens") {
  std::vector<TilesCase> cases;
  for (const auto& rule : {kRules[0], kRules[2], kRules[3], kRules[5]})
    for (const float decay : {0.0003F, 0.01F})
      cases.push_back(fitted({rule, {1, 1, 128, 16, 1}, {4000}, kInstructions[3], decay, false}));
  check_cases(cases, text_of, [](const TilesCase& c, const Kernel& kernel) {
    INFO(name_of(c) << ", decay " << c.decay);
    CHECK(check_step(c, kernel, false) < 5e-7);
  });
}
