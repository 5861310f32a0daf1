// The graph data structure: edits, uses, topological order, reachability, hash and copies.

#include "ir/graph.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "small_llama.h"
#include "support/error.h"
#include "tests/support/error_of.h"

using namespace forge;
using namespace forge::ir;
using forge::ir::test::SmallLlama;

namespace {

Value vec(Graph& graph, float first = 1) {
  return {graph.add(Op::kConstant, {}, ConstantAttrs{{first, 2}, {DType::kF32, {2}}}), 0};
}
Value sum(Graph& graph, Value a, Value b) {
  return {graph.add(Op::kAdd, {a, b}), 0};
}

using tests::error_of;

}  // namespace

TEST_CASE("a Llama-like graph is built and verified, and its cost is that of its weights") {
  const Graph graph = SmallLlama{}.build();
  CHECK_NOTHROW(verify(graph));
  const Bounds one{.tokens = 1, .rows = 1, .sequences = 1, .table_blocks = 4};
  const Cost cost = total_cost(graph, one);
  // q8_0 stores 32 elements in 34 bytes. A layer has q, k, v, o, gate, up, down and two norms.
  const std::int64_t layer = (64 * 64 * 2 + 32 * 64 * 2 + 3 * 96 * 64) * 34 / 32 + 2 * 64 * 4;
  CHECK(cost.weight_bytes == 2 * layer + 96 * 64 * 34 / 32 + 64 * 34 / 32 + 64 * 4);
  CHECK(cost.flops > 2 * 2 * (64 * 64 * 2 + 32 * 64 * 2 + 3 * 96 * 64));
}

TEST_CASE("uses are listed in order, with one entry per operand") {
  Graph graph;
  const Value a = vec(graph);
  const Value b = sum(graph, a, a);
  const Value c = sum(graph, b, a);
  CHECK(graph.uses(a) == std::vector<Use>{{b.node, 0}, {b.node, 1}, {c.node, 1}});
  CHECK(graph.users(a.node) == std::vector<NodeId>{b.node, c.node});
  CHECK(graph.uses(c).empty());
}

TEST_CASE("replace_uses changes operands and outputs, except where excluded") {
  Graph graph;
  const Value a = vec(graph);
  const Value b = sum(graph, a, a);
  const Value c = sum(graph, b, a);
  graph.add_output("out", b);
  const Value d = sum(graph, b, b);
  graph.replace_uses(b, d, d.node);
  CHECK(graph.operand(c.node, 0) == d);
  CHECK(graph.operand(d.node, 0) == b);
  CHECK(graph.outputs()[0].value == d);
  CHECK_NOTHROW(verify(graph));
  const Value wide{graph.add(Op::kConstant, {}, ConstantAttrs{{1, 2, 3}, {DType::kF32, {3}}}), 0};
  CHECK_THAT(error_of([&] { graph.replace_uses(a, wide); }), Catch::Contains("IR-006") && Catch::Contains("f32[3]"));
  CHECK_NOTHROW(verify(graph));
}

TEST_CASE("uses change from f32 to q8a_32 only if every user accepts both") {
  Graph graph;
  Builder b(graph);
  const Value x = b.embed(b.weight("e", DType::kF16, {8, 32}), b.input(InputKind::kIds));
  const Value w = b.weight("w", DType::kQ4_0, {16, 32});
  const Value y = b.matmul(x, w);
  const Value q{graph.add(Op::kQuantize, {x}, QuantizeAttrs{}), 0};
  graph.replace_uses(x, q, q.node);
  CHECK(graph.operand(y.node, 0) == q);
  CHECK_NOTHROW(verify(graph));
  graph.replace_uses(q, x);
  graph.remove(q.node);
  const Value z = b.add(x, x);
  const Value q2{graph.add(Op::kQuantize, {x}, QuantizeAttrs{}), 0};
  CHECK_THAT(error_of([&] { graph.replace_uses(x, q2, q2.node); }), Catch::Contains("add: operand 0 is q8a_32[T,32]"));
  CHECK(graph.operand(y.node, 0) == x);
  CHECK(graph.operand(z.node, 0) == x);
}

TEST_CASE("a used node cannot be removed; removing an unused one leaves no trace") {
  Graph graph;
  const Value a = vec(graph);
  const Value b = sum(graph, a, a);
  CHECK_THAT(error_of([&] { graph.remove(a.node); }), Catch::Contains("IR-003"));
  graph.remove(b.node);
  CHECK(graph.size() == 1);
  CHECK_FALSE(graph.alive(b.node));
  CHECK(graph.uses(a).empty());
  CHECK_THAT(error_of([&] { (void)graph.op(b.node); }), Catch::Contains("IR-004"));
  CHECK_THAT(error_of([&] { sum(graph, a, b); }), Catch::Contains("IR-004"));
  graph.add_output("a", a);
  CHECK_THAT(error_of([&] { graph.remove(a.node); }), Catch::Contains("IR-003"));
  CHECK_NOTHROW(verify(graph));
}

TEST_CASE("set_operand and set_attrs re-run the shape rule") {
  Graph graph;
  Builder b(graph);
  const Value x = b.embed(b.weight("e", DType::kF16, {8, 64}), b.input(InputKind::kIds));
  const NodeId split = graph.add(Op::kSplit, {x}, PartsAttrs{{32, 32}, 0});
  const Value part = b.scale({split, 1}, 2);
  graph.set_attrs(split, PartsAttrs{{16, 16, 32}, 0});
  CHECK(graph.results(split).size() == 3);
  CHECK_THAT(error_of([&] { graph.set_attrs(split, PartsAttrs{{64}, 0}); }), Catch::Contains("IR-004"));
  CHECK_THAT(error_of([&] { graph.set_attrs(split, PartsAttrs{{60}, 0}); }), Catch::Contains("split"));
  CHECK_THAT(error_of([&] { verify(graph); }),
             Catch::Contains("IR-006"));  // the part is now narrower than the type of its user
  graph.set_operand({part.node, 0}, {split, 2});
  CHECK_NOTHROW(verify(graph));
  CHECK(graph.type(part).text() == "f32[T,32]");
}

TEST_CASE("the topological order is stable, and a cycle is reported by invariant number") {
  Graph graph;
  const Value a = vec(graph);
  const Value b = vec(graph);
  const Value c = sum(graph, a, b);
  const Value d = sum(graph, c, a);
  CHECK(graph.topological_order() == std::vector<NodeId>{0, 1, 2, 3});
  const Value late = vec(graph);
  graph.set_operand({c.node, 1}, late);
  CHECK(graph.topological_order() == std::vector<NodeId>{0, 1, 4, 2, 3});
  graph.compact();
  CHECK(graph.topological_order() == std::vector<NodeId>{0, 1, 2, 3, 4});
  CHECK_NOTHROW(verify(graph));
  graph = Graph();
  const Value e = vec(graph);
  const Value f = sum(graph, e, e);
  const Value g = sum(graph, f, e);
  graph.set_operand({f.node, 0}, g);
  CHECK_THAT(error_of([&] { (void)graph.topological_order(); }), Catch::Contains("IR-001"));
  (void)d;
}

TEST_CASE("reachability") {
  Graph graph;  // a -> l, r -> join -> end -> tail; other joins only at end
  const Value a = vec(graph);
  const Value l = sum(graph, a, a);
  const Value r = sum(graph, a, a);
  const Value join = sum(graph, l, r);
  const Value other = vec(graph);
  const Value end = sum(graph, join, other);
  const Value tail = sum(graph, end, end);
  CHECK(graph.reaches(a.node, tail.node));
  CHECK(graph.reaches(l.node, l.node));
  CHECK_FALSE(graph.reaches(l.node, r.node));
  CHECK_FALSE(graph.reaches(tail.node, a.node));
  CHECK_FALSE(graph.reaches(other.node, join.node));
}

TEST_CASE("the hash depends on structure, not on ids") {
  const auto make = [](bool swap_sources, float first, bool shared, const char* name) {
    Graph graph;
    const Value one = swap_sources ? vec(graph, 7) : vec(graph, first);
    const Value two = swap_sources ? vec(graph, first) : vec(graph, 7);
    const Value a = swap_sources ? two : one;
    const Value b = swap_sources ? one : two;
    const Value s = sum(graph, a, b);
    const Value t = shared ? s : sum(graph, a, b);
    graph.add_output(name, sum(graph, s, t));
    return graph.hash();
  };
  CHECK(make(false, 1, true, "x") == make(true, 1, true, "x"));
  CHECK(make(false, 1, true, "x") != make(false, 2, true, "x"));
  CHECK(make(false, 1, true, "x") != make(false, 1, false, "x"));
  CHECK(make(false, 1, true, "x") != make(false, 1, true, "y"));
  Graph graph = SmallLlama{}.build();
  const auto before = graph.hash();
  CHECK(before == SmallLlama{}.build().hash());
  graph.compact();
  CHECK(graph.hash() == before);
  graph.set_group(graph.nodes().back(), graph.new_group());
  CHECK(graph.hash() != before);
}

TEST_CASE("the hash distinguishes which of two equal nodes is used") {
  const auto make = [](bool both) {
    Graph graph;
    const Value a1 = vec(graph);
    const Value a2 = vec(graph);
    graph.add_output("p", sum(graph, a1, a1));
    graph.add_output("q", sum(graph, both ? a2 : a1, a1));
    return graph.hash();
  };
  CHECK(make(true) != make(false));
}

TEST_CASE("a copy is independent of the original") {
  Graph graph = SmallLlama{}.build();
  const Graph copy = graph;
  const auto hash = graph.hash();
  graph.add_output("extra", graph.outputs()[0].value);
  graph.set_group(0, graph.new_group());
  CHECK(graph.hash() != hash);
  CHECK(copy.hash() == hash);
  CHECK_NOTHROW(verify(copy));
}
