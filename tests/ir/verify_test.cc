// The verifier: one test per invariant. Each test damages a valid graph in one place and expects the message with the
// invariant's number.

#include <catch2/catch.hpp>

#include "every_op.h"
#include "ir/graph.h"
#include "small_llama.h"
#include "support/error.h"

using namespace forge;
using namespace forge::ir;
using test::SmallLlama;

namespace {

std::string complaint(const Graph& graph) {
  try {
    verify(graph);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInternal);
    return error.line();
  }
  return "sound";
}

NodeId first(const Graph& graph, Op op, std::size_t skip = 0) {
  for (const NodeId node : graph.nodes())
    if (graph.op(node) == op && skip-- == 0) return node;
  return kNoNode;
}

std::vector<Value> operands(const Graph& graph, NodeId node) {
  return {graph.operands(node).begin(), graph.operands(node).end()};
}
std::vector<TensorType> results(const Graph& graph, NodeId node) {
  return {graph.results(node).begin(), graph.results(node).end()};
}

}  // namespace

TEST_CASE("valid graphs pass") {
  CHECK(complaint(Graph()) == "sound");
  CHECK(complaint(SmallLlama{}.build()) == "sound");
  CHECK(complaint(SmallLlama{.layers = 3, .window = 64}.build()) == "sound");
  CHECK(complaint(test::every_op()) == "sound");
}

TEST_CASE("IR-001: a cycle") {
  Graph graph = SmallLlama{}.build();
  const NodeId early = first(graph, Op::kAdd);
  graph.set_operand({early, 0}, {first(graph, Op::kAdd, 2), 0});
  CHECK_THAT(complaint(graph), Catch::Contains("IR-001"));
}

TEST_CASE("IR-002: attributes of another op, too few operands") {
  Graph graph = SmallLlama{}.build();
  const NodeId glu = first(graph, Op::kGlu);
  GraphAccess::set_raw(graph, glu, operands(graph, glu), NoAttrs{}, results(graph, glu));
  CHECK_THAT(complaint(graph), Catch::Contains("IR-002") && Catch::Contains("glu"));
  Graph other;
  Builder b(other);
  const Value w = b.weight("w", DType::kF32, {4});
  const NodeId sum = b.add(w, w).node;
  GraphAccess::clear_edges(other, sum);
  GraphAccess::set_raw(other, sum, {}, {}, results(other, sum));
  CHECK_THAT(complaint(other), Catch::Contains("IR-002"));
}

TEST_CASE("IR-003: a removed node with edges") {
  Graph graph = SmallLlama{}.build();
  const NodeId last = graph.outputs()[0].value.node;
  GraphAccess::set_alive(graph, last, false);
  CHECK_THAT(complaint(graph), Catch::Contains("IR-003"));
}

TEST_CASE("IR-004: operands and outputs that do not exist") {
  Graph graph = SmallLlama{}.build();
  const NodeId add = first(graph, Op::kAdd);
  auto missing = operands(graph, add);
  missing[1].result = 5;
  GraphAccess::set_raw(graph, add, missing, {}, results(graph, add));
  CHECK_THAT(complaint(graph), Catch::Contains("IR-004"));
  graph = SmallLlama{}.build();
  GraphAccess::set_alive(graph, graph.operand(first(graph, Op::kAdd), 0).node, false);
  CHECK_THAT(complaint(graph), Catch::Contains("IR-004"));
  Graph lone;
  lone.add_output("w", Builder(lone).weight("w", DType::kF32, {4}));
  GraphAccess::set_alive(lone, 0, false);
  CHECK_THAT(complaint(lone), Catch::Contains("IR-004") && Catch::Contains("output"));
}

TEST_CASE("IR-005: edges that differ from the operands") {
  Graph graph = SmallLlama{}.build();
  const NodeId add = first(graph, Op::kAdd);
  auto swapped = operands(graph, add);
  std::swap(swapped[0], swapped[1]);
  GraphAccess::set_raw(graph, add, swapped, {}, results(graph, add));
  CHECK_THAT(complaint(graph), Catch::Contains("IR-005") && Catch::Contains("an edge is not its operand"));
  graph = SmallLlama{}.build();
  GraphAccess::clear_edges(graph, graph.outputs()[0].value.node);
  CHECK_THAT(complaint(graph), Catch::Contains("IR-005") && Catch::Contains("differ in number"));
}

TEST_CASE("IR-006: a result type that differs from the shape rule's") {
  Graph graph = SmallLlama{}.build();
  const NodeId glu = first(graph, Op::kGlu);
  GraphAccess::set_raw(graph, glu, operands(graph, glu), GluAttrs{}, {{DType::kF32, {Symbol::kRows, 96}}});
  CHECK_THAT(complaint(graph),
             Catch::Contains("IR-006") && Catch::Contains("f32[R,96]") && Catch::Contains("f32[T,96]"));
  graph = SmallLlama{}.build();  // A wider weight changes the matmul's result type; its user keeps the old one.
  Builder b(graph);
  const NodeId gate = graph.operand(first(graph, Op::kGlu), 0).node;
  graph.set_operand({gate, 1}, b.weight("wide", DType::kF16, {128, 64}));
  CHECK_THAT(complaint(graph), Catch::Contains("IR-006") && Catch::Contains("glu"));
}

TEST_CASE("IR-007: outputs without a unique name") {
  Graph graph = SmallLlama{}.build();
  const Value logits = graph.outputs()[0].value;
  graph.add_output("logits", logits);
  CHECK_THAT(complaint(graph), Catch::Contains("IR-007"));
  graph = SmallLlama{}.build();
  graph.add_output("", logits);
  CHECK_THAT(complaint(graph), Catch::Contains("IR-007"));
}

TEST_CASE("IR-008: concatenation of a value that is not a weight") {
  Graph graph;
  Builder b(graph);
  const Value constant = b.constant({1, 2}, {2});
  graph.add(Op::kConcatRows, {constant, constant}, PartsAttrs{{2, 2}, 0});
  CHECK_THAT(complaint(graph), Catch::Contains("IR-008"));
}

TEST_CASE("IR-008: a slice of a value that is not a file tensor; concatenated slices are valid") {
  Graph graph;
  Builder b(graph);
  const Value weight = b.weight("w", DType::kF32, {8, 4});
  const Value low = b.slice_rows(weight, 0, 4), high = b.slice_rows(weight, 4, 4);
  const Value both{graph.add(Op::kConcatRows, {high, low}, PartsAttrs{{4, 4}, 0}), 0};
  CHECK(complaint(graph) == "sound");
  b.slice_rows(both, 0, 4);
  CHECK_THAT(complaint(graph), Catch::Contains("IR-008"));
}

TEST_CASE("IR-009: a state with two users, a store whose state is lost") {
  Graph graph = SmallLlama{.layers = 3}.build();
  const NodeId store = first(graph, Op::kKvStore, 1);
  graph.add_output("kv_too", {store, 0});
  CHECK_THAT(complaint(graph), Catch::Contains("IR-009") && Catch::Contains("more than one successor"));
  graph = SmallLlama{.layers = 3}.build();
  graph.set_operand({first(graph, Op::kKvStore, 2), 0}, {first(graph, Op::kKvStore, 0), 0});
  CHECK_THAT(complaint(graph), Catch::Contains("IR-009") && Catch::Contains("more than one successor"));
  Graph lost;
  Builder b(lost);
  const Value k = b.embed(b.weight("e", DType::kF32, {4, 16}), b.input(InputKind::kIds));
  const Value state = b.kv_state({0, 1, 1, 16, 0});
  CHECK(complaint(lost) == "sound");
  const Value after = b.kv_store(state, k, k, 0);
  CHECK_THAT(complaint(lost), Catch::Contains("IR-009") && Catch::Contains("lost"));
  lost.add_output("kv0", after);
  CHECK(complaint(lost) == "sound");
}

TEST_CASE("IR-010: geometry that differs from the KV group's") {
  const auto with_state = [](const KvStateAttrs& attrs) {
    Graph graph = SmallLlama{}.build();
    graph.set_attrs(first(graph, Op::kKvState), attrs);
    return complaint(graph);
  };
  CHECK(with_state({0, 2, 2, 16, 0}) == "sound");
  CHECK_THAT(with_state({0, 1, 2, 16, 0}), Catch::Contains("IR-010") && Catch::Contains("not in the KV group"));
  CHECK_THAT(with_state({0, 2, 4, 16, 0}), Catch::Contains("IR-010") && Catch::Contains("wide"));
  CHECK_THAT(with_state({0, 2, 4, 8, 0}), Catch::Contains("IR-010") && Catch::Contains("heads or dimensions differ"));
  CHECK_THAT(with_state({0, 2, 2, 16, 64}), Catch::Contains("IR-010") && Catch::Contains("further back"));
  CHECK(with_state({0, 2, 2, 16, 0, 16}) == "sound");
  CHECK_THAT(with_state({0, 2, 2, 16, 0, 8}),
             Catch::Contains("IR-010") && Catch::Contains("kv_heads * value_dim wide"));
  CHECK_THAT(with_state({0, 2, 2, 16, 0, 16, 1}),
             Catch::Contains("IR-010") && Catch::Contains("the KV group has shared rows"));
  Graph shared;
  Builder b(shared);
  const Value k = b.embed(b.weight("e", DType::kF32, {4, 16}), b.input(InputKind::kIds));
  shared.add_output("kv0", b.kv_store(b.kv_state({0, 1, 1, 16, 0, 8, 1}), k, {}, 0));
  CHECK(complaint(shared) == "sound");
  shared.set_attrs(first(shared, Op::kKvState), KvStateAttrs{0, 1, 1, 16, 0, 8, 0});
  CHECK_THAT(complaint(shared), Catch::Contains("IR-010") && Catch::Contains("it stores no values"));
}

TEST_CASE("IR-011: a layer stored twice, or read before it is stored") {
  Graph graph = SmallLlama{}.build();
  graph.set_attrs(first(graph, Op::kKvStore, 1), KvStoreAttrs{0});
  CHECK_THAT(complaint(graph), Catch::Contains("IR-011") && Catch::Contains("twice"));
  graph = SmallLlama{}.build();
  graph.set_operand({first(graph, Op::kAttention), 1}, {first(graph, Op::kKvState), 0});
  CHECK_THAT(complaint(graph), Catch::Contains("IR-011") && Catch::Contains("before"));
  graph = SmallLlama{}.build();
  graph.set_operand({first(graph, Op::kAttention, 1), 1}, {first(graph, Op::kKvStore), 0});
  CHECK_THAT(complaint(graph), Catch::Contains("IR-011") && Catch::Contains("before"));
}

TEST_CASE("IR-010 and IR-011 of a store for each half") {
  const auto with = [](KvHalf first_half, KvHalf second_half, bool second = true, std::int64_t value_dim = 0,
                       std::int64_t shared_row = 0) {
    Graph graph;
    Builder b(graph);
    const Value k = b.embed(b.weight("e", DType::kF32, {4, 16}), b.input(InputKind::kIds));
    const Value paging[] = {b.input(InputKind::kPositions), b.input(InputKind::kSequence),
                            b.input(InputKind::kBlockTable)};
    const auto store = [&](Value state, KvHalf half) {
      return Value{graph.add(Op::kKvStore, {state, k, paging[0], paging[1], paging[2]}, KvStoreAttrs{0, half}), 0};
    };
    Value state = store(b.kv_state({0, 1, 1, 16, 0, value_dim, shared_row}), first_half);
    if (second) state = store(state, second_half);
    graph.add_output("kv0", state);
    return complaint(graph);
  };
  CHECK(with(KvHalf::kKeys, KvHalf::kValues) == "sound");
  CHECK(with(KvHalf::kValues, KvHalf::kKeys) == "sound");
  CHECK_THAT(with(KvHalf::kKeys, KvHalf::kKeys), Catch::Contains("IR-011") && Catch::Contains("twice"));
  CHECK_THAT(with(KvHalf::kKeys, {}, false), Catch::Contains("IR-011") && Catch::Contains("only one half"));
  CHECK_THAT(with(KvHalf::kValues, {}, false), Catch::Contains("IR-011") && Catch::Contains("only one half"));
  CHECK_THAT(with(KvHalf::kKeys, KvHalf::kValues, true, 8),
             Catch::Contains("IR-010") && Catch::Contains("kv_heads * value_dim wide"));
  CHECK_THAT(with(KvHalf::kKeys, KvHalf::kValues, true, 8, 1),
             Catch::Contains("IR-010") && Catch::Contains("shared rows"));
}

TEST_CASE("IR-011: attention between the stores of the halves") {
  Graph graph = SmallLlama{}.build();
  const NodeId store = first(graph, Op::kKvStore);
  const auto half = [&](Value state, std::size_t rows, KvHalf which) {
    return Value{graph.add(Op::kKvStore,
                           {state, graph.operand(store, rows), graph.operand(store, 3), graph.operand(store, 4),
                            graph.operand(store, 5)},
                           KvStoreAttrs{0, which}),
                 0};
  };
  const Value keys = half(graph.operand(store, 0), 1, KvHalf::kKeys), values = half(keys, 2, KvHalf::kValues);
  graph.replace_uses({store, 0}, values);
  graph.remove(store);
  CHECK(complaint(graph) == "sound");
  graph.set_operand({first(graph, Op::kAttention), 1}, keys);
  CHECK_THAT(complaint(graph), Catch::Contains("IR-011") && Catch::Contains("before"));
}

TEST_CASE("a layer may read the keys and values of an earlier layer, at any later point of the chain") {
  Graph graph = SmallLlama{}.build();
  auto attrs = graph.attrs_as<AttentionAttrs>(first(graph, Op::kAttention, 1));
  attrs.layer = 0;
  graph.set_attrs(first(graph, Op::kAttention, 1), attrs);
  CHECK(complaint(graph) == "sound");
  graph.set_operand({first(graph, Op::kAttention, 1), 1}, {first(graph, Op::kKvState), 0});
  CHECK_THAT(complaint(graph), Catch::Contains("IR-011") && Catch::Contains("before"));
}

TEST_CASE("IR-010 and IR-011 of select_keys: index keys of another group, read before they are stored") {
  const auto with_state = [](const KvStateAttrs& attrs) {
    Graph graph = test::every_op();
    graph.set_attrs(first(graph, Op::kKvState, 1), attrs);
    return complaint(graph);
  };
  CHECK(with_state({4, 2, 1, 32, 0, 0, 1}) == "sound");
  CHECK_THAT(with_state({4, 2, 2, 16, 0, 0, 1}), Catch::Contains("IR-010") && Catch::Contains("not the rows"));
  CHECK_THAT(with_state({4, 2, 1, 32, 8, 0, 1}), Catch::Contains("IR-010") && Catch::Contains("with a window"));
  CHECK_THAT(with_state({4, 1, 1, 32, 0, 0, 1}), Catch::Contains("IR-010") && Catch::Contains("not in the KV group"));
  Graph graph = test::every_op();
  graph.set_operand({first(graph, Op::kSelectKeys), 1}, {first(graph, Op::kKvState, 1), 0});
  CHECK_THAT(complaint(graph), Catch::Contains("IR-011") && Catch::Contains("before"));
}

TEST_CASE("IR-016: attention to keys that no select_keys chose, or to lists of other blocks") {
  Graph graph = test::every_op();
  const NodeId attention = first(graph, Op::kAttention), select = first(graph, Op::kSelectKeys);
  auto attrs = graph.attrs_as<AttentionAttrs>(attention);
  attrs.selected_block = 3;
  graph.set_attrs(attention, attrs);
  CHECK_THAT(complaint(graph), Catch::Contains("IR-016") && Catch::Contains("lists of other blocks"));
  attrs.selected_block = 2;
  graph.set_attrs(attention, attrs);
  CHECK(complaint(graph) == "sound");
  Builder b(graph);
  const auto chosen = b.route(graph.operand(select, 0), {.used = 4}).experts;
  graph.set_operand({attention, 7}, chosen);
  CHECK_THAT(complaint(graph), Catch::Contains("IR-016") && Catch::Contains("do not come from a select_keys"));
}

TEST_CASE("IR-012: groups that cannot be one step") {
  Graph graph = SmallLlama{}.build();
  const NodeId residual = first(graph, Op::kAdd);
  const NodeId second = first(graph, Op::kAdd, 1);
  graph.set_group(residual, 5);
  graph.set_group(second, 5);
  CHECK_THAT(complaint(graph), Catch::Contains("IR-012") && Catch::Contains("group 5"));
  graph.set_group(second, kNoGroup);
  graph.set_group(graph.operand(residual, 1).node, 5);
  CHECK(complaint(graph) == "sound");

  Graph crossed;  // no path leaves and re-enters a group, but each group needs the other's result
  Builder b(crossed);
  const Value w = b.weight("w", DType::kF32, {4});
  const NodeId a1 = b.add(w, w).node;
  const NodeId b1 = b.mul({a1, 0}, w).node;
  const NodeId b2 = b.mul(w, w).node;
  const NodeId a2 = b.add({b2, 0}, w).node;
  const NodeId downstream = b.scale({a2, 0}, 2).node;
  crossed.set_group(downstream, 1);
  for (const NodeId node : {a1, a2}) crossed.set_group(node, 2);
  CHECK(complaint(crossed) == "sound");
  for (const NodeId node : {b1, b2}) crossed.set_group(node, 3);
  CHECK_THAT(complaint(crossed), Catch::Contains("IR-012") && Catch::Contains("group 2"));
}

TEST_CASE("IR-013: two states of one KV group, two types of one weight") {
  Graph graph = SmallLlama{}.build();
  Builder b(graph);
  b.kv_state({0, 2, 2, 16, 0});
  CHECK_THAT(complaint(graph), Catch::Contains("IR-013") && Catch::Contains("KV group"));
  graph = SmallLlama{}.build();
  Builder(graph).weight("output_norm.weight", DType::kF16, {64});
  CHECK_THAT(complaint(graph), Catch::Contains("IR-013") && Catch::Contains("another type"));
}

TEST_CASE("IR-014: swapped step inputs") {
  Graph graph = SmallLlama{}.build();
  const NodeId attention = first(graph, Op::kAttention);
  const Value positions = graph.operand(attention, 2);
  const Value sequence = graph.operand(attention, 3);
  graph.set_operand({attention, 2}, sequence);
  graph.set_operand({attention, 3}, positions);
  CHECK_THAT(complaint(graph), Catch::Contains("IR-014") && Catch::Contains("positions"));
}

TEST_CASE("IR-015: experts selected for another weight, or not by a route node") {
  Graph graph = test::every_op();
  const NodeId matmul = first(graph, Op::kExpertMatmul);
  Builder b(graph);
  const auto [others, shares] =
      b.route(b.matmul(graph.operand(matmul, 0), b.weight("r9", DType::kF32, {9, 32})), {.used = 3});
  graph.add_output("shares", shares);
  const Value known = graph.operand(matmul, 2);
  graph.set_operand({matmul, 2}, others);
  CHECK_THAT(complaint(graph), Catch::Contains("IR-015") && Catch::Contains("another number of experts"));
  graph.set_operand({matmul, 2}, known);
  CHECK(complaint(graph) == "sound");
}
