// Epilogues store keys and values in each type of the cache, byte for byte as its definition says: any heads, padding,
// blocks that are full or not, numbers that are zero, tiny, large or not finite.

#include <cmath>

#include "tests/gpu_host/kernel_bench.h"
#include "tests/gpu_host/kv_rows.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {

struct PoolHeads {
  int heads, dim;
};
constexpr PoolHeads kHeads[] = {{1, 32}, {3, 64}, {2, 96}, {5, 128}, {2, 48}};
constexpr DType kTypes[] = {DType::kF16, DType::kQ8_0, DType::kQ4_0, DType::kFp8};
constexpr int kBlockTokens[] = {16, 32}, kBlockRows[] = {32, 64, 96, 48};
constexpr int kTableBlocks = 3, kTokens = 21;

struct StoreCase {
  PoolHeads heads;
  DType type;
  int block_tokens, block_rows, waves, wave;
  [[nodiscard]] int columns() const { return heads.heads * heads.dim; }
  [[nodiscard]] std::string pool() const {
    return "KvPool<" + std::to_string(heads.heads) + ", " + std::to_string(heads.dim) + ", " +
           std::to_string(block_tokens) + ", " + KvRows::format_of(type) + ">";
  }
};

WaveText text_of(const StoreCase& c) {
  const auto epilogue = R"(struct Epilogue {
  struct Args {
    u16* pool;
    const i32 *positions, *sequences, *tables;
  };
  static constexpr int kIn = 16, kOperands = 2, kParts = 0;
  FORGE_DEVICE static void load(const Args& a, int t, int, int, float (&o)[2]) {
    )" + c.pool() + "::load_slot(a.positions, a.sequences, a.tables, " +
                        std::to_string(kTableBlocks) + R"(, t, o[0], o[1]);
  }
  template <class In>
  FORGE_DEVICE static void run(const Args& a, int, int n, int, bool real, float, const float (&o)[2], In&& in) {
    using Pool = )" + c.pool() +
                        R"(;
    Pool::store(a.pool, Pool::slot_of(o[0], o[1]), n, in(n), real);
  }
};
)";
  codegen::KernelText text{.header = "kernels/gpu/rows.h", .kernel = "FillRows", .defaults = {}, .before = epilogue};
  text.config.use("Source", "LoadedRows<" + std::to_string(c.columns()) + ">")
      .use("Epilogue", "gpu::Epilogue")
      .number("kColumns", c.columns())
      .number("kBlockRows", c.block_rows)
      .number("kWaves", c.waves)
      .number("kTokensTotal", kTokens)
      .number("kCount", 1);
  text.blocks = (c.columns() + c.block_rows - 1) / c.block_rows * kTokens;
  text.threads = c.waves * c.wave;
  return {c.wave, std::move(text), KvRows::target_of(c.type, c.wave)};
}

void check_store(const StoreCase& c, const Kernel& kernel) {
  INFO(c.pool() << ", " << c.block_rows << " columns a block, waves " << c.waves << ", wave " << c.wave);
  const int columns = c.columns(), dim = c.heads.dim;
  auto x = random_floats(static_cast<std::size_t>(kTokens) * columns);
  for (int j = 0; j < 32; ++j) {
    x[2 * columns + j] = 0;                                   // a block of zeros
    x[3 * columns + j] *= 1e-8F;                              // a scale that is zero, or hardly more, in f16
    x[4 * columns + j] = j == 7 ? 5.0F : j == 9 ? -5.0F : j;  // several of the largest magnitude
  }
  for (int j = 0; j < 32; ++j)
    x[7 * columns + j] = std::ldexp(1 + static_cast<float>(j) / 16, j - 16);  // all magnitudes
  x[5 * columns + 3] = NAN;
  x[6 * columns + 31] = -INFINITY;
  // Sequence 1 is at the end of a block and goes on in the next; sequence 0 ends within one. The last tokens are
  // padding.
  Buffer<int> positions(kTokens), sequences(kTokens), tables(2 * kTableBlocks);
  const int blocks[] = {4, 1, 3, 0, 5, 2};
  for (int i = 0; i < 2 * kTableBlocks; ++i) tables[i] = blocks[i];
  for (int t = 0; t < kTokens; ++t) {
    sequences[t] = t < 8 ? 0 : 1;
    positions[t] = t >= 18 ? -1 : t < 8 ? 3 + t : c.block_tokens - 2 + t - 8;
  }
  const Buffer<float> from{std::span<const float>(x)};
  const Buffer<int> counts = Buffer<int>::of({-1, kTokens, -1, -1});
  const bool fnuz = c.wave == 64;
  KvRows pool(c.type, 2 * kTableBlocks, c.heads.heads, c.block_tokens, dim, fnuz),
      expected(c.type, 2 * kTableBlocks, c.heads.heads, c.block_tokens, dim, fnuz);
  const KernelArgs args({from.data(), counts.data(), pool.data(), positions.data(), sequences.data(), tables.data()});
  const auto stored = run_in_all_orders(kernel, args, [] {}, [&] { return bytes_of(pool.memory()); });
  for (int t = 0; t < 18; ++t)
    for (int head = 0; head < c.heads.heads; ++head) {
      const int block = tables[sequences[t] * kTableBlocks + positions[t] / c.block_tokens];
      const auto row =
          (static_cast<std::size_t>(block) * c.heads.heads + head) * c.block_tokens + positions[t] % c.block_tokens;
      expected.put(row, std::span(x).subspan(static_cast<std::size_t>(t) * columns + head * dim, dim));
    }
  const auto bytes = bytes_of(expected.memory());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    INFO("byte " << i);
    REQUIRE(stored[i] == bytes[i]);
  }
  pool.memory().check();
}

}  // namespace

TEST_CASE("epilogues store keys and values in each type of the cache, byte for byte") {
  const Choice<6> sizes{std::size(kHeads), std::size(kTypes), std::size(kBlockTokens), std::size(kBlockRows), 2,
                        std::size(kWaves)};
  const auto fits = [](const Choice<6>& at) {
    constexpr int kUnit = 32;  // of the types with scales
    const auto [heads, dim] = kHeads[at[0]];
    const bool scaled = kTypes[at[1]] == DType::kQ8_0 || kTypes[at[1]] == DType::kQ4_0;
    return heads * dim % kBlockRows[at[3]] == 0 && (!scaled || (dim % kUnit == 0 && kBlockRows[at[3]] % kUnit == 0));
  };
  std::vector<StoreCase> cases;
  for (const auto& at : cases_of(sizes, fits))
    cases.push_back({kHeads[at[0]], kTypes[at[1]], kBlockTokens[at[2]], kBlockRows[at[3]], 1 + at[4], kWaves[at[5]]});
  check_cases(cases, text_of, check_store);
}
