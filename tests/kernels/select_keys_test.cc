// The kernels of sparse attention's choice: scores against sums in double, and the choice against a sorted list.

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/cpu/attention/select_keys.h"
#include "tests/kernels/support.h"

using namespace forge;
using forge::test::Guarded;
using forge::test::Random;

namespace {

/// Index keys of one sequence in a paged cache whose unused bytes are NaN.
struct IndexKeys {
  cpu::KvShape shape;
  std::size_t block_bytes;
  std::vector<float> k;  ///< before rounding
  std::vector<std::int32_t> table;
  Guarded<std::byte> pool;

  IndexKeys(const cpu::Kernels& kernels, DType type, std::size_t dim, std::size_t length)
      : shape{.type = type, .heads = 1, .head_dim = dim, .value_dim = dim, .shared_row = true},
        block_bytes(cpu::kv_block_bytes(shape)),
        k(Random(3).floats(length * dim)),
        table((length + 31) / 32),
        pool((table.size() + 1) * block_bytes) {
    for (std::size_t b = 0; b < table.size(); ++b) table[b] = static_cast<std::int32_t>(table.size() - b);
    std::vector<std::byte*> blocks(length);
    std::vector<std::int32_t> slots(length);
    for (std::size_t p = 0; p < length; ++p) {
      blocks[p] = pool.data() + static_cast<std::size_t>(table[p / 32]) * block_bytes;
      slots[p] = static_cast<std::int32_t>(p % 32);
    }
    kernels.store_kv_rows({k.data(), length, dim, dim}, type, dim, blocks.data(), slots.data());
    pool.check();
  }
};

std::vector<float> scores_of(const cpu::Kernels& kernels, const IndexKeys& keys, const std::vector<float>& q,
                             const float* weights, std::size_t length, std::size_t together) {
  const std::size_t heads = q.size() / keys.shape.head_dim, lists = weights == nullptr ? heads : 1;
  Guarded<float> scores(lists * length), scratch(cpu::score_keys_scratch_floats(keys.shape));
  for (std::size_t begin = 0; begin < length; begin += together)
    kernels.score_keys({.kv = keys.shape,
                        .pool = keys.pool.data(),
                        .block_stride = keys.block_bytes,
                        .block_table = keys.table.data(),
                        .q = q.data(),
                        .weights = weights,
                        .heads = heads,
                        .begin = begin,
                        .end = std::min(begin + together, length),
                        .scratch = scratch.data(),
                        .scores = scores.data(),
                        .scores_stride = length});
  scores.check();
  scratch.check();
  return {scores.data(), scores.data() + scores.size()};
}

}  // namespace

TEST_CASE("scores of index keys: clipped and weighted sums over heads, or one for each head") {
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (const auto& [type, dim] :
         {std::pair(DType::kF16, 1), {DType::kF16, 40}, {DType::kF16, 128}, {DType::kQ8_0, 64}})
      for (const std::size_t heads : {1, 3, 8, 9, 20})
        for (const std::size_t length : {1, 31, 33, 300}) {
          const auto width = static_cast<std::size_t>(dim);
          CAPTURE(test::label(*kernels), dtype_name(type), dim, heads, length);
          const IndexKeys keys(*kernels, type, width, length);
          const auto q = Random(4).floats(heads * width), weights = Random(5).floats(heads);
          const auto sums = scores_of(*kernels, keys, q, weights.data(), length, 256);
          const auto each = scores_of(*kernels, keys, q, nullptr, length, 256);
          const double margin = (type == DType::kF16 ? 2e-3 : 0.03) * std::sqrt(static_cast<double>(dim));
          for (std::size_t p = 0; p < length; ++p) {
            double sum = 0;
            for (std::size_t h = 0; h < heads; ++h) {
              double dot = 0;
              for (std::size_t d = 0; d < width; ++d)
                dot += static_cast<double>(q[h * width + d]) * static_cast<double>(keys.k[p * width + d]);
              REQUIRE(static_cast<double>(each[h * length + p]) == Approx(dot).margin(margin));
              sum += static_cast<double>(weights[h]) * std::max(dot, 0.0);
            }
            REQUIRE(static_cast<double>(sums[p]) == Approx(sum).margin(margin * std::sqrt(static_cast<double>(heads))));
          }
          REQUIRE(scores_of(*kernels, keys, q, weights.data(), length, 32) == sums);
          REQUIRE(scores_of(*kernels, keys, q, nullptr, length, 96) == each);
        }
}

TEST_CASE("the best blocks are chosen: ties go to the earlier one, local ones are in, NaN is the worst") {
  Random random(6);
  const auto below = [&](int bound) { return static_cast<std::size_t>(random.below(bound)); };
  for (int round = 0; round < 2000; ++round) {
    const std::size_t count = 1 + below(90);
    cpu::KeyChoice choice{.top_k = 1 + below(12), .block = 1 + below(5), .local = 0};
    choice.local = below(static_cast<int>(choice.top_k) + 1);
    std::vector<float> scores(count);
    for (float& score : scores) {
      score = static_cast<float>(random.below(6)) - 3;  // many ties
      if (random.below(20) == 0) score = std::numeric_limits<float>::quiet_NaN();
      if (random.below(20) == 0) score = std::numeric_limits<float>::infinity();
    }
    const std::size_t blocks = (count + choice.block - 1) / choice.block;
    std::vector<double> best(blocks, -1e300);
    for (std::size_t p = 0; p < count; ++p)
      if (!std::isnan(scores[p]))
        best[p / choice.block] = std::max(best[p / choice.block], std::min(static_cast<double>(scores[p]), 1e100));
    for (std::size_t b = blocks - std::min(blocks, choice.local); b < blocks; ++b) best[b] = 1e200;
    std::vector<std::int32_t> order(blocks);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) {
      return best[static_cast<std::size_t>(a)] > best[static_cast<std::size_t>(b)];
    });
    order.resize(std::min(blocks, choice.top_k));
    std::ranges::sort(order);
    order.resize(choice.top_k, -1);
    Guarded<float> in(count), scratch(count);
    Guarded<std::int32_t> list(choice.top_k);
    std::ranges::copy(scores, in.data());
    cpu::choose_keys(choice, in.data(), count, scratch.data(), list.data());
    in.check();
    scratch.check();
    list.check();
    CAPTURE(round, count, choice.top_k, choice.block, choice.local);
    REQUIRE(std::vector(list.data(), list.data() + choice.top_k) == order);
  }
}
