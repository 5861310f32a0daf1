// CPU attention and the KV cache kernels: agree with softmax in double, and give the same bits for every way to split
// the work.

#include <algorithm>
#include <limits>
#include <set>

#include "tests/kernels/support.h"

using namespace forge;
using forge::test::Guarded;
using forge::test::Random;

namespace {

struct Geometry {
  std::size_t head_dim = 64, kv_heads = 2, group = 3;
  DType type = DType::kF16;
  std::size_t value_dim = 0;  ///< 0: the same as head_dim
  bool shared_row = false;
  std::size_t values() const { return value_dim > 0 ? value_dim : head_dim; }
  cpu::KvShape shape() const { return {type, kv_heads, head_dim, values(), shared_row}; }
};

/// Stores the keys and values of `heads` heads per token, each token into its cache block and slot. With a shared row
/// only keys are stored.
void store(const cpu::Kernels& kernels, const cpu::KvShape& shape, const std::vector<float>& k,
           const std::vector<float>& v, std::vector<std::byte*> blocks, const std::int32_t* slots) {
  const std::size_t tokens = blocks.size();
  const auto keys = shape.shared_row ? kernels.store_kv_rows : kernels.store_kv_columns;
  const std::size_t width = shape.heads * shape.head_dim, value_width = shape.heads * shape.value_dim;
  keys({k.data(), tokens, width, width}, shape.type, shape.head_dim, blocks.data(), slots);
  if (shape.shared_row) return;
  for (auto& block : blocks)
    if (block != nullptr) block += cpu::kv_values_offset(shape);
  kernels.store_kv_rows({v.data(), tokens, value_width, value_width}, shape.type, shape.value_dim, blocks.data(),
                        slots);
}

constexpr DType kKvTypes[] = {DType::kF16, DType::kQ8_0};

/// Rounds 32 floats to what a Q8_0 cache holds, by the definition in kernels.h. Returns their scale.
std::uint16_t round_to_q8(float* x) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(x[i]));
  const std::uint16_t half = quant::f16_of_f32(largest / 127);
  const float scale = quant::f32_of_f16(half);
  for (int i = 0; i < 32; ++i)
    x[i] = scale > 0 ? scale * std::clamp(std::nearbyint(x[i] * (1 / scale)), -127.0f, 127.0f) : 0.0f;
  return half;
}

/// The cache of one sequence, filled with the store functions. Its blocks lie in random order in a pool, and everything
/// that was not stored is NaN (0xffff), so that a read of a wrong slot shows.
struct Cache {
  Geometry geometry;
  std::size_t length, block_bytes;
  // Rounded as the cache stores them: [length][kv_heads][head_dim], [length][kv_heads][values].
  std::vector<float> k, v;
  std::vector<std::int32_t> table;
  Guarded<std::byte> pool;

  Cache(const cpu::Kernels& kernels, Geometry g, std::size_t n, unsigned seed)
      : geometry(g),
        length(n),
        block_bytes(cpu::kv_block_bytes(g.shape())),
        table((n + 31) / 32),
        pool((table.size() + 1) * block_bytes) {
    Random random(seed);
    k = random.floats(n * g.kv_heads * g.head_dim);
    v = random.floats(n * g.kv_heads * g.values());
    for (std::size_t b = 0; b < table.size(); ++b) table[b] = static_cast<std::int32_t>(table.size() - b);
    std::vector<std::byte*> blocks(n);
    std::vector<std::int32_t> slots(n);
    for (std::size_t p = 0; p < n; ++p) {
      blocks[p] = pool.data() + static_cast<std::size_t>(table[p / 32]) * block_bytes;
      slots[p] = static_cast<std::int32_t>(p % 32);
    }
    store(kernels, g.shape(), k, v, blocks, slots.data());
    pool.check();
    for (auto* values : {&k, &v}) {
      if (g.type == DType::kF16)
        for (float& value : *values) value = quant::f32_of_f16(quant::f16_of_f32(value));
      else
        for (std::size_t i = 0; i < values->size(); i += 32) round_to_q8(values->data() + i);
    }
    if (g.shared_row)
      for (std::size_t row = 0; row < n * g.kv_heads; ++row)
        std::copy_n(k.begin() + static_cast<std::ptrdiff_t>(row * g.head_dim), g.values(),
                    v.begin() + static_cast<std::ptrdiff_t>(row * g.values()));
  }
  cpu::AttentionParams params() const {
    return {.kv = geometry.shape(),
            .group = geometry.group,
            .scale = 1 / std::sqrt(static_cast<float>(geometry.head_dim)),
            .pool = pool.data(),
            .block_stride = block_bytes,
            .block_table = table.data(),
            .kv_length = length};
  }
};

/// The numbers that token t's list of selected positions has; empty if it has none.
std::set<std::int32_t> selected_of(const cpu::AttentionQuery& query, std::size_t t) {
  if (query.selected == nullptr) return {};
  const std::int32_t* begin = query.selected + t * query.selected_stride;
  return {begin, begin + query.selected_count};
}

/// Softmax attention in double, straight from the definition. sink: nullptr for none; selected: empty for all.
std::vector<double> reference(const Cache& cache, const cpu::AttentionParams& params, const float* q,
                              std::int32_t position, std::size_t kv_head, const float* sink, double slope = 0,
                              const std::set<std::int32_t>& selected = {}, std::size_t block = 1) {
  const std::size_t dim = params.kv.head_dim, width = params.kv.heads * dim, value_dim = params.kv.value_dim;
  std::vector<double> scores, out(value_dim);
  std::vector<std::size_t> seen;
  for (std::size_t p = 0; p < cache.length; ++p) {
    const auto at = static_cast<std::int32_t>(p);
    if (at > position || (params.window > 0 && at <= position - params.window)) continue;
    if (params.chunk > 0 && at / params.chunk != position / params.chunk) continue;
    if (!selected.empty() && !selected.contains(static_cast<std::int32_t>(p / block))) continue;
    double dot = 0;
    for (std::size_t d = 0; d < dim; ++d)
      dot += static_cast<double>(q[d]) * static_cast<double>(cache.k[p * width + kv_head * dim + d]);
    dot *= static_cast<double>(params.scale);
    const double cap = static_cast<double>(params.softcap);
    scores.push_back((cap > 0 ? cap * std::tanh(dot / cap) : dot) - slope * (position - at));
    seen.push_back(p);
  }
  double largest = sink ? static_cast<double>(*sink) : -1e300;
  for (const double score : scores) largest = std::max(largest, score);
  for (double& score : scores) score -= largest;
  double total = sink ? std::exp(static_cast<double>(*sink) - largest) : 0;
  for (const double score : scores) total += std::exp(score);
  for (std::size_t i = 0; i < scores.size(); ++i)
    for (std::size_t d = 0; d < value_dim; ++d)
      out[d] += std::exp(scores[i]) / total *
                static_cast<double>(cache.v[(seen[i] * params.kv.heads + kv_head) * value_dim + d]);
  return out;
}

std::vector<float> run_tile(const cpu::Kernels& kernels, const cpu::AttentionParams& params,
                            const cpu::AttentionQuery& query) {
  const std::size_t dim = params.kv.value_dim, count = query.tokens * params.group;
  Guarded<float> out(count * dim);
  Guarded<float> scratch(cpu::attention_scratch_floats(query.tokens, params.group, params.kv));
  kernels.attention_tile(params, query, scratch.data(), out.data(), params.group * dim, dim);
  out.check();
  scratch.check();
  return {out.data(), out.data() + out.size()};
}

std::vector<float> run_chunks(const cpu::Kernels& kernels, const cpu::AttentionParams& params,
                              const cpu::AttentionQuery& query) {
  const std::size_t dim = params.kv.value_dim, count = query.tokens * params.group;
  const std::size_t chunks = cpu::attention_chunks(params.kv_length);
  const std::size_t stride = count * cpu::attention_partial_floats(dim);
  Guarded<float> out(count * dim), partials(chunks * stride);
  Guarded<float> scratch(cpu::attention_chunk_scratch_floats(params.kv));
  for (std::size_t c = chunks; c-- > 0;)  // in reverse, since any order must do
    kernels.attention_chunk(params, query, c, scratch.data(), partials.data() + c * stride);
  scratch.check();
  partials.check();
  kernels.attention_merge(params, query, partials.data(), chunks, stride, out.data(), params.group * dim, dim);
  out.check();
  return {out.data(), out.data() + out.size()};
}

struct Queries {
  std::vector<float> q;
  std::vector<std::int32_t> positions;
  cpu::AttentionQuery query;
  Queries(const Geometry& g, std::size_t tokens, std::int32_t first, std::size_t kv_head, unsigned seed)
      : q(Random(seed).floats(tokens * g.group * g.head_dim)), positions(tokens) {
    for (std::size_t t = 0; t < tokens; ++t) positions[t] = first + static_cast<std::int32_t>(t);
    query = {q.data(), g.group * g.head_dim, g.head_dim, tokens, positions.data(), kv_head};
  }
};

void check_against_reference(const cpu::Kernels& kernels, const Cache& cache, const cpu::AttentionParams& params,
                             const Queries& queries) {
  const std::size_t dim = params.kv.value_dim, q_dim = params.kv.head_dim;
  const auto out = run_tile(kernels, params, queries.query);
  for (std::size_t row = 0; row < queries.query.tokens * params.group; ++row) {
    const float* sinks = queries.query.sinks;
    const auto want =
        reference(cache, params, queries.q.data() + row * q_dim, queries.positions[row / params.group],
                  queries.query.kv_head, sinks ? sinks + row % params.group : nullptr,
                  queries.query.slopes ? static_cast<double>(queries.query.slopes[row % params.group]) : 0,
                  selected_of(queries.query, row / params.group), queries.query.selected_block);
    for (std::size_t d = 0; d < dim; ++d)
      if (!(std::fabs(static_cast<double>(out[row * dim + d]) - want[d]) < 3e-6 * (1 + std::fabs(want[d]))))
        FAIL("row " << row << " dim " << d << ": " << out[row * dim + d] << ", expected " << want[d]);
  }
  REQUIRE(run_chunks(kernels, params, queries.query) == out);
}

}  // namespace

TEST_CASE("attention is softmax over the positions that a query attends to") {
  std::vector<Geometry> geometries;
  for (const std::size_t head_dim : {1, 7, 8, 24, 64, 80, 128, 200, 256}) geometries.push_back({head_dim, 2, 3});
  for (const std::size_t head_dim : {32, 64, 96, 128, 256}) geometries.push_back({head_dim, 2, 3, DType::kQ8_0});
  for (const auto& [head_dim, value_dim] : {std::pair(24, 12), std::pair(192, 128), std::pair(16, 40)})
    geometries.push_back({static_cast<std::size_t>(head_dim), 2, 3, DType::kF16, static_cast<std::size_t>(value_dim)});
  geometries.push_back({96, 2, 3, DType::kQ8_0, 64});
  for (const std::size_t head_dim :
       {8, 40, 64, 96, 576}) {  // MLA: one latent row per token, whose first columns are the values
    geometries.push_back({head_dim, 2, 3, DType::kF16, head_dim - head_dim / 9, true});
    geometries.push_back({head_dim, 2, 16, DType::kF16, head_dim, true});
  }
  for (const std::size_t group : {1, 7, 16}) geometries.push_back({96, 2, group, DType::kQ8_0, 64, true});
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (const Geometry& geometry : geometries)
      for (const std::size_t length : {1, 31, 33, 300}) {
        CAPTURE(test::label(*kernels), dtype_name(geometry.type), geometry.head_dim, geometry.values(),
                geometry.shared_row, geometry.group, length);
        const Cache cache(*kernels, geometry, length, 1);
        const std::size_t tokens = std::min<std::size_t>(length, 5);
        const Queries queries(geometry, tokens, static_cast<std::int32_t>(length - tokens), 1, 2);
        check_against_reference(*kernels, cache, cache.params(), queries);
      }
}

TEST_CASE("group sizes, windows, soft-caps and sinks") {
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (const std::size_t group : {1, 2, 4, 5, 8, 9})
      for (const std::int32_t window : {0, 1, 20, 256, 300})
        for (const float cap : {0.0f, 2.0f}) {
          const bool shared_row = cap > 0 && window != 1;
          const Geometry geometry{32, 1,         group, kKvTypes[(group + static_cast<std::size_t>(window)) % 2],
                                  32, shared_row};
          CAPTURE(test::label(*kernels), dtype_name(geometry.type), group, window, cap, shared_row);
          const Cache cache(*kernels, geometry, 700, 3);
          auto params = cache.params();
          params.window = window;
          params.softcap = cap;
          Queries queries(geometry, 3, 509, 0, 4);  // positions on both sides of a chunk boundary
          check_against_reference(*kernels, cache, params, queries);
          const auto sinks = Random(5).floats(group, 3);
          queries.query.sinks = sinks.data();
          check_against_reference(*kernels, cache, params, queries);
        }
}

TEST_CASE("chunked attention sees the positions of a query's own chunk alone, also with a window") {
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (const std::int32_t chunk : {1, 100, 256, 511, 513, 600})
      for (const std::int32_t window : {0, 20, 300}) {
        const Geometry geometry{32, 1, 3, kKvTypes[static_cast<std::size_t>(chunk) % 2], 32, window == 20};
        CAPTURE(test::label(*kernels), dtype_name(geometry.type), chunk, window);
        const Cache cache(*kernels, geometry, 700, 3);
        auto params = cache.params();
        params.window = window;
        params.chunk = chunk;
        check_against_reference(*kernels, cache, params, Queries(geometry, 9, 506, 0, 4));
      }
}

TEST_CASE("ALiBi subtracts a head's slope times the distance from its scores, also after a soft-cap") {
  const std::vector<float> slopes{0.5F, 0.03125F, 0.00390625F};
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (const std::size_t tokens : {1UL, 9UL, 40UL})
      for (const float softcap : {0.0F, 0.7F}) {
        const Geometry geometry{32, 2, 3, kKvTypes[tokens % 2], 32};
        CAPTURE(test::label(*kernels), tokens, softcap);
        const Cache cache(*kernels, geometry, 700, 3);
        auto params = cache.params();
        params.softcap = softcap;
        Queries queries(geometry, tokens, 506, 1, 4);
        queries.query.slopes = slopes.data();
        check_against_reference(*kernels, cache, params, queries);
      }
}

TEST_CASE("sparse attention sees the selected positions alone, in any tile and chunking") {
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (const Geometry& geometry :
         {Geometry{32, 1, 1}, Geometry{40, 1, 5}, Geometry{64, 2, 3, DType::kQ8_0},
          Geometry{40, 1, 16, DType::kF16, 24, true}, Geometry{96, 1, 4, DType::kQ8_0, 64, true}})
      for (const std::size_t block : {1, 3, 32, 100})
        for (const std::size_t count : {1, 4, 40}) {
          CAPTURE(test::label(*kernels), dtype_name(geometry.type), geometry.head_dim, geometry.shared_row, block,
                  count);
          const std::size_t length = 600, tokens = 7;
          const Cache cache(*kernels, geometry, length, 11);
          Queries queries(geometry, tokens, static_cast<std::int32_t>(length - tokens), geometry.kv_heads - 1, 12);
          Random random(13);
          // The lists of both KV heads, of which the call takes those of one; a token's own block is among them.
          std::vector<std::int32_t> lists(tokens * 2 * count, -1);
          for (std::size_t t = 0; t < tokens; ++t) {
            const auto own = queries.positions[t] / static_cast<std::int32_t>(block);
            std::set<std::int32_t> chosen{own};
            for (std::size_t i = 1; i < count; ++i) chosen.insert(static_cast<std::int32_t>(random.below(own + 1)));
            std::ranges::copy(chosen, lists.begin() + static_cast<std::ptrdiff_t>((2 * t + 1) * count));
          }
          queries.query.selected = lists.data() + count;
          queries.query.selected_stride = 2 * count;
          queries.query.selected_count = count;
          queries.query.selected_block = block;
          check_against_reference(*kernels, cache, cache.params(), queries);
          const auto all = run_tile(*kernels, cache.params(), queries.query);
          for (std::size_t t = 0; t < tokens; ++t) {  // each token alone
            auto one = queries.query;
            one.tokens = 1;
            one.q += t * one.token_stride;
            one.positions += t;
            one.selected += t * one.selected_stride;
            const auto alone = run_tile(*kernels, cache.params(), one);
            REQUIRE(
                std::equal(alone.begin(), alone.end(), all.begin() + static_cast<std::ptrdiff_t>(t * alone.size())));
          }
        }
}

TEST_CASE("large scores do not overflow") {
  for (const cpu::Kernels* kernels : test::all_kernels()) {
    const Geometry geometry{16, 1, 1};
    const Cache cache(*kernels, geometry, 600, 6);
    auto params = cache.params();
    params.scale = 100;
    const Queries queries(geometry, 1, 599, 0, 7);
    const auto out = run_tile(*kernels, params, queries.query);
    const auto want = reference(cache, params, queries.q.data(), 599, 0, nullptr);
    for (std::size_t d = 0; d < 16; ++d) REQUIRE(out[d] == Approx(want[d]).margin(2e-3));
  }
}

// Results must be batch-invariant: the tokens of a request may depend neither on the requests that share its step nor
// on how its prefill was chunked. Each part of a tile of 24 queries is therefore run again on a shorter cache.
TEST_CASE("attention is batch-invariant: a query has the same bits alone, in any tile, order and chunking") {
  const Geometry geometry =
      GENERATE(Geometry{72, 2, 3}, Geometry{96, 2, 3, DType::kQ8_0}, Geometry{72, 2, 3, DType::kF16, 64, true},
               Geometry{96, 2, 5, DType::kQ8_0, 64, true});
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (const std::int32_t window : {0, 40}) {
      const Cache cache(*kernels, geometry, 530, 8);
      auto params = cache.params();
      params.window = window;
      const Queries all(geometry, 24, 500, 1, 9);
      const std::size_t row = geometry.group * geometry.values(), q_row = geometry.group * geometry.head_dim;
      const auto whole = run_tile(*kernels, params, all.query);
      for (std::size_t first = 0; first < 24; ++first)
        for (const std::size_t count : {1, 2, 7}) {
          if (first + count > 24) continue;
          CAPTURE(test::label(*kernels), window, first, count);
          auto part = all.query;
          part.q += first * q_row;
          part.positions += first;
          part.tokens = count;
          // A shorter cache that ends at this part's last token, as if later tokens were not stored yet.
          auto shorter = params;
          shorter.kv_length = 500 + first + count;
          const auto out = run_tile(*kernels, shorter, part);
          REQUIRE(test::same_bits(out.data(), whole.data() + first * row, count * row));
        }
      // The query rows of one step in another order, at distant positions.
      std::vector<std::int32_t> positions{523, 3, 300, 523, -1, 255, 256};
      const Queries mixed(geometry, positions.size(), 0, 0, 10);
      auto query = mixed.query;
      query.positions = positions.data();
      const auto together = run_tile(*kernels, params, query);
      for (std::size_t t = 0; t < positions.size(); ++t) {
        auto one = query;
        one.q += t * q_row;
        one.positions += t;
        one.tokens = 1;
        CAPTURE(test::label(*kernels), window, t);
        const auto alone = run_tile(*kernels, params, one);
        REQUIRE(test::same_bits(alone.data(), together.data() + t * row, row));
        if (positions[t] < 0)
          for (const float value : alone) REQUIRE(value == 0);
      }
    }
}

// Cache slots after a query may hold data of any kind. A kernel that multiplies masked values by 0, instead of skipping
// them, turns an infinity there into NaN.
TEST_CASE("masked positions cannot affect a query, even if they hold infinities or NaN") {
  const Geometry geometry{32, 1, 1, GENERATE(DType::kF16, DType::kQ8_0), 32, GENERATE(false, true)};
  for (const cpu::Kernels* kernels : test::all_kernels()) {
    Cache cache(*kernels, geometry, 64, 11);
    const Queries queries(geometry, 8, 20, 0, 12);
    const auto before = run_tile(*kernels, cache.params(), queries.query);
    auto* block = cache.pool.data() + static_cast<std::size_t>(cache.table[0]) * cache.block_bytes;
    // Infinities from position 24 on; the queries at 24 to 27 attend to them.
    const std::vector<float> poison(32, std::numeric_limits<float>::infinity());
    for (std::int32_t slot = 24; slot < 32; ++slot) {
      store(*kernels, geometry.shape(), poison, poison, {block}, &slot);
    }
    const auto after = run_tile(*kernels, cache.params(), queries.query);
    REQUIRE(test::same_bits(before.data(), after.data(), 4 * 32));  // positions 20 to 23 do not attend to them
    REQUIRE(!std::isfinite(after[4 * 32]));
  }
}

TEST_CASE("a padding token stores nothing") {
  for (const cpu::Kernels* kernels : test::all_kernels()) {
    const cpu::KvShape shape{DType::kF16, 2, 24, 24};
    Guarded<std::byte> block(cpu::kv_block_bytes(shape));
    const std::vector<float> x = Random(13).floats(2 * 48);
    const std::int32_t slots[] = {0, 5};
    store(*kernels, shape, x, x, {nullptr, nullptr}, slots);
    store(*kernels, shape, x, x, {nullptr, block.data()}, slots);
    block.check();
    const auto* halves = reinterpret_cast<const std::uint16_t*>(block.data());
    std::size_t written = 0;
    for (std::size_t i = 0; i < block.size() / 2; ++i) written += halves[i] != 0xffff;
    REQUIRE(written == 2 * 48);
    REQUIRE(halves[(24 + 3) * 32 + 5] == quant::f16_of_f32(x[48 + 24 + 3]));
    REQUIRE(halves[48 * 32 + (32 + 5) * 24 + 3] == quant::f16_of_f32(x[48 + 24 + 3]));
  }
}

TEST_CASE("a Q8_0 cache has one scale per 32 columns, and non-finite inputs stay visible") {
  const cpu::KvShape shape{DType::kQ8_0, 2, 64, 64};
  for (const cpu::Kernels* kernels : test::all_kernels()) {
    CAPTURE(test::label(*kernels));
    Guarded<std::byte> block(cpu::kv_block_bytes(shape));
    REQUIRE(block.size() == 2 * 2 * 34 * 64);
    std::vector<float> x = Random(14).floats(128);
    std::fill_n(x.begin() + 32, 32, 0.0f);  // head 0's second scale is 0
    x[100] = std::numeric_limits<float>::infinity();
    const std::int32_t slots[] = {7};
    store(*kernels, shape, x, x, {block.data()}, slots);
    block.check();
    std::vector<float> rounded = x;
    const std::uint16_t half = round_to_q8(rounded.data());
    const auto* bytes = reinterpret_cast<const std::int8_t*>(block.data());
    const auto scale_of = [&](std::size_t plane, std::size_t scale) {
      return reinterpret_cast<const std::uint16_t*>(bytes + plane * 34 * 64 + 32 * 64)[scale * 32 + 7];
    };
    for (std::size_t i = 0; i < 32; ++i) {
      const float scale = quant::f32_of_f16(half);
      REQUIRE(scale * static_cast<float>(bytes[i * 32 + 7]) == rounded[i]);                // K of head 0
      REQUIRE(scale * static_cast<float>(bytes[2 * 34 * 64 + 7 * 64 + i]) == rounded[i]);  // V of head 0
    }
    for (const std::size_t plane : {0, 2}) {
      REQUIRE(scale_of(plane, 0) == half);
      REQUIRE(scale_of(plane, 1) == 0);
      REQUIRE(std::isnan(quant::f32_of_f16(scale_of(plane + 1, 1))));
    }
  }
}

TEST_CASE("attention has the same bits in all classes with FMA") {
  const auto geometry = GENERATE(Geometry{88, 2, 4}, Geometry{88, 2, 4, DType::kF16, 80, true});
  std::vector<float> expected;
  for (const cpu::Kernels* kernels : test::kernels_with_fma()) {
    const Cache cache(*kernels, geometry, 400, 14);
    const Queries queries(geometry, 9, 380, 1, 15);
    const auto out = run_tile(*kernels, cache.params(), queries.query);
    if (expected.empty()) expected = out;
    CAPTURE(test::label(*kernels));
    REQUIRE(test::same_bits(out.data(), expected.data(), out.size()));
  }
}
