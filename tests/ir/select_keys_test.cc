// Sparse attention in the interpreter, compared with numbers computed by hand: which keys select_keys chooses, and that
// attention sees no others.

#include <cmath>
#include <limits>

#include "by_hand.h"
#include "tests/support/error_of.h"

using namespace forge;
using namespace forge::ir;
using namespace forge::ir::test;

namespace {

/// Rows of a step's tokens, token after token.
struct SparseRows {
  Floats q, weights, k;  ///< of the index
};

/// One layer: index keys of one column, and attention of one head with keys 0, so that its result is the mean of the
/// values that it sees. Returns the lists, and those means.
struct Seen {
  std::vector<std::int32_t> lists;
  Floats means;
};
Seen sparse(const SelectKeysAttrs& select, const StepInputs& in, ReferenceKv& kv, const SparseRows& rows,
            const Floats& values) {
  Graph graph;
  Builder b(graph);
  const auto tokens = static_cast<std::int64_t>(in.ids.size());
  const auto of_tokens = [&](const Floats& x) {
    return b.embed(b.constant(x, {tokens, static_cast<std::int64_t>(x.size()) / tokens}), b.input(InputKind::kIds));
  };
  const Value index = b.kv_store(b.kv_state({.group = 1, .layers = 1, .kv_heads = 1, .head_dim = 1, .shared_row = 1}),
                                 of_tokens(rows.k), {}, 0);
  const Value weights = rows.weights.empty() ? Value{} : of_tokens(rows.weights);
  const Value keys = b.select_keys(of_tokens(rows.q), index, select, weights);
  const std::int64_t heads = rows.weights.empty() ? select.heads : 1;
  const Value zeros = of_tokens(Floats(static_cast<std::size_t>(tokens * heads)));
  Floats repeated;
  for (const float value : values) repeated.insert(repeated.end(), static_cast<std::size_t>(heads), value);
  const Value state =
      b.kv_store(b.kv_state({.layers = 1, .kv_heads = heads, .head_dim = 1}), zeros, of_tokens(repeated), 0);
  const AttentionAttrs attention{
      .heads = heads, .kv_heads = heads, .head_dim = 1, .selected = select.top_k, .selected_block = select.block};
  graph.add_output("means", b.attention(zeros, state, attention, {}, keys));
  graph.add_output("lists", keys);
  graph.add_output("kv0", state);
  graph.add_output("kv1", index);
  verify(graph);
  StepInputs numbered = in;
  for (std::size_t t = 0; t < in.ids.size(); ++t) numbered.ids[t] = static_cast<std::int32_t>(t);
  auto out = interpret(graph, numbered, kv, {});
  return {out.at("lists").i32, out.at("means").f32};
}

using Lists = std::vector<std::int32_t>;

/// Index keys 2, -4, 1, 0 of positions 0 to 3. Only the last token's lists are of interest.
Seen last_of_four(const SelectKeysAttrs& select, Floats q, Floats weights, const Floats& values = {1, 10, 100, 1000}) {
  ReferenceKv kv{.block_tokens = 2, .rows = {}};
  const auto four_times = [](const Floats& x) {
    Floats all;
    for (int i = 0; i < 4; ++i) all.insert(all.end(), x.begin(), x.end());
    return all;
  };
  Seen seen = sparse(select, step(4), kv, {four_times(q), four_times(weights), {2, -4, 1, 0}}, values);
  seen.lists.erase(seen.lists.begin(), seen.lists.end() - static_cast<std::ptrdiff_t>(seen.lists.size() / 4));
  seen.means.erase(seen.means.begin(), seen.means.end() - static_cast<std::ptrdiff_t>(seen.means.size() / 4));
  return seen;
}

}  // namespace

TEST_CASE("select_keys with weights: heads' clipped scores add up, and of equal sums the earlier position wins") {
  // Scores 2, 2, 1, 0: head 0 counts 2 and 1, head 1 half of 4.
  const SelectKeysAttrs two{.heads = 2, .head_dim = 1, .top_k = 2};
  const auto best = last_of_four(two, {1, -1}, {1, 0.5F});
  CHECK(best.lists == Lists{0, 1});
  check_near(best.means, {5.5F});
  CHECK(last_of_four({.heads = 2, .head_dim = 1, .top_k = 1}, {1, -1}, {1, 0.5F}).lists == Lists{0});
  CHECK(last_of_four({.heads = 2, .head_dim = 1, .top_k = 1}, {1, -1}, {1, 0.75F}).lists == Lists{1});
  const auto least = last_of_four(two, {1, -1}, {-1, -1});  // scores -2, -4, -1, 0
  CHECK(least.lists == Lists{2, 3});
  check_near(least.means, {550});
  CHECK(last_of_four({.heads = 2, .head_dim = 1, .top_k = 6}, {1, -1}, {1, 1}).lists == Lists{0, 1, 2, 3, -1, -1});
}

TEST_CASE("select_keys without weights: each head has its own list, of which its KV head sees the values") {
  const auto own = last_of_four({.heads = 2, .head_dim = 1, .top_k = 2}, {1, -1}, {});
  CHECK(own.lists == Lists{0, 2, 1, 3});
  check_near(own.means, {50.5F, 505});
}

TEST_CASE("select_keys in blocks: a block counts its best visible key, and local blocks are always in") {
  const auto blocks = [](std::int64_t top_k, std::int64_t local, float q) {
    return last_of_four({.heads = 1, .head_dim = 1, .top_k = top_k, .block = 2, .local = local}, {q}, {});
  };
  CHECK(blocks(1, 0, 1).lists == Lists{0});  // 2 of position 0 against 1 of position 2
  check_near(blocks(1, 0, 1).means, {5.5F});
  CHECK(blocks(1, 1, 1).lists == Lists{1});
  check_near(blocks(1, 1, 1).means, {550});
  CHECK(blocks(2, 1, 1).lists == Lists{0, 1});
  CHECK(blocks(3, 3, 1).lists == Lists{0, 1, -1});
  ReferenceKv kv{.block_tokens = 2, .rows = {}};
  // The token at position 2 does not see position 3, whose key is the best of all.
  const auto early = sparse({.heads = 1, .head_dim = 1, .top_k = 1, .block = 2}, step(4), kv,
                            {{1, 1, 1, 1}, {}, {2, 1, 1, 9}}, {1, 10, 100, 1000});
  CHECK(early.lists == Lists{0, 0, 0, 1});
  check_near(early.means, {1, 5.5F, 5.5F, 550});
}

TEST_CASE("select_keys: steps of a few tokens choose what one step chooses, and sequences do not see each other") {
  const SelectKeysAttrs two{.heads = 1, .head_dim = 1, .top_k = 2};
  const Floats keys{3, 1, 2, 5}, values{1, 10, 100, 1000};
  ReferenceKv whole{.block_tokens = 2, .rows = {}}, parts{.block_tokens = 2, .rows = {}};
  const auto all = sparse(two, step(4), whole, {{1, 1, -1, 1}, {1, 1, 1, 1}, keys}, values);
  CHECK(all.lists == Lists{0, -1, 0, 1, 0, 1, 0, 3});  // -1: all scores are 0
  check_near(all.means, {1, 5.5F, 5.5F, 500.5F});
  (void)sparse(two, step(3), parts, {{1, 1, -1}, {1, 1, 1}, {3, 1, 2}}, {1, 10, 100});
  const auto last = sparse(two, step(1, 3), parts, {{1}, {1}, {5}}, {1000});
  CHECK(last.lists == Lists{0, 3});
  check_near(last.means, {500.5F});

  StepInputs in;  // sequence 0 has one token in block 5, sequence 1 three tokens in blocks 9 and 2
  in.ids = {0, 0, 0, 0};
  in.sequence = {0, 1, 1, 1};
  in.positions = {0, 0, 1, 2};
  in.kv_length = {1, 3};
  in.block_table = {{5}, {9, 2}};
  ReferenceKv kv{.block_tokens = 2, .rows = {}};
  const auto both = sparse(two, in, kv, {{1, 1, 1, 1}, {1, 1, 1, 1}, {9, 1, 2, 3}}, {1, 10, 100, 1000});
  CHECK(both.lists == Lists{0, -1, 0, -1, 0, 1, 1, 2});
  check_near(both.means, {1, 10, 55, 550});
}

TEST_CASE("select_keys of a layer that was never stored is refused") {
  ReferenceKv kv{.block_tokens = 2, .rows = {}};
  CHECK_THAT(
      tests::error_of([&] { sparse({.heads = 1, .head_dim = 1, .top_k = 1}, step(1, 3), kv, {{1}, {1}, {1}}, {1}); }),
      Catch::Contains("select_keys of layer 0 reads position 0 of sequence 0, which was never stored"));
}
