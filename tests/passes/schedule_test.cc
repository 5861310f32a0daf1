// Scheduling and liveness: the order of steps, lifetimes of values, and results computed in place, on small graphs with
// hand-made groups.

#include "passes/schedule/schedule.h"

#include <catch2/catch.hpp>

#include <algorithm>

#include "ir/builder.h"
#include "passes/schedule/bind_variants.h"
#include "passes/schedule/liveness.h"
#include "passes/schedule/pair_steps.h"
#include "support/error.h"
#include "tests/passes/fake_target.h"

namespace forge::passes::test {
namespace {

using ir::NodeId;
using ir::Value;

constexpr ir::Bounds kBounds{.tokens = 4, .rows = 4, .sequences = 1, .table_blocks = 1};

/// A graph with x [T, 64] from an embedding, and helpers that add weights and groups.
struct Sketch {
  ir::Graph graph;
  ir::Builder b{graph};
  Value x = b.embed(weight("embd"), b.input(ir::InputKind::kIds));

  Value weight(const char* name) { return b.weight(name, DType::kQ8_0, {64, 64}); }
  void group(std::initializer_list<Value> values) {
    const auto number = graph.new_group();
    for (const Value& value : values) graph.set_group(value.node, number);
  }
  std::vector<Buffer> buffers() {
    const auto steps = schedule(graph);
    return plan_buffers(graph, steps, kBounds);
  }
  static const Buffer* find(const std::vector<Buffer>& buffers, Value value) {
    for (const Buffer& buffer : buffers)
      if (buffer.value == value || std::ranges::find(buffer.aliases, value) != buffer.aliases.end()) return &buffer;
    return nullptr;
  }
};

TEST_CASE("schedule: small operands are computed just before their reader", "[schedule]") {
  Sketch s;
  const Value freqs = s.b.constant(std::vector<float>(16, 1.0F), {16});
  const Value angles = s.b.rope_table(s.b.input(ir::InputKind::kPositions), freqs, 1);
  const Value a = s.b.matmul(s.x, s.weight("a"));
  const Value c = s.b.matmul(a, s.weight("c"));
  const Value y = s.b.rope(c, angles, {32, 32, ir::RopeMode::kPairs});
  s.graph.add_output("y", y);
  const auto steps = schedule(s.graph);
  const auto at = step_of_node(s.graph, steps);
  CHECK(steps.size() == 5);
  CHECK(at[angles.node] == at[y.node] - 1);
  CHECK(at[freqs.node] == -1);
}

TEST_CASE("schedule: groups that depend on each other are refused", "[schedule]") {
  Sketch s;
  const Value a = s.b.scale(s.x, 2);
  const Value c = s.b.scale(a, 3);
  const Value d = s.b.scale(c, 4);
  s.graph.add_output("y", d);
  s.group({a, d});
  CHECK_THROWS_WITH(schedule(s.graph), Catch::Contains("PH-003"));
}

TEST_CASE("schedule: nodes that no output needs are scheduled too", "[schedule]") {
  Sketch s;
  const Value dead = s.b.scale(s.x, 2);
  const Value y = s.b.scale(s.x, 3);
  s.graph.add_output("y", y);
  const auto steps = schedule(s.graph);
  CHECK(steps.size() == 3);
  const auto buffers = plan_buffers(s.graph, steps, kBounds);
  const Buffer* room = Sketch::find(buffers, dead);
  REQUIRE(room != nullptr);
  CHECK(room->last == step_of_node(s.graph, steps)[dead.node]);
  CHECK(room->last == 1);  // early, and not after the nodes that outputs need
}

TEST_CASE("liveness: a residual is added in place, also inside a group", "[liveness]") {
  Sketch s;
  const Value a = s.b.scale(s.x, 2);
  const Value m = s.b.matmul(a, s.weight("w"));
  const Value sum = s.b.add(m, s.x);  // in either operand order: add is commutative
  s.graph.add_output("y", s.b.scale(sum, 3));
  s.group({m, sum});
  const auto buffers = s.buffers();
  const Buffer* home = Sketch::find(buffers, s.x);
  REQUIRE(home != nullptr);
  CHECK(home->aliases == std::vector<Value>{sum});
  CHECK((home->first == 0 && home->last == 3));
  CHECK(home->bytes == 4 * 64 * 4);
  CHECK(Sketch::find(buffers, m) == nullptr);  // stays inside its step
}

TEST_CASE("liveness: in place through a chain in a group and through later steps", "[liveness]") {
  Sketch s;
  const Value gain = s.b.weight("gain", DType::kF32, {64});
  const Value a = s.b.scale(s.x, 2);
  const Value c = s.b.mul(a, gain);
  const Value d = s.b.scale(c, 3);
  s.graph.add_output("y", s.b.scale(d, 4));
  s.group({a, c});
  const auto buffers = s.buffers();
  CHECK(buffers.size() == 1);
  CHECK(buffers[0].aliases == std::vector<Value>{c, d});
}

TEST_CASE("liveness: a value that is still to be read is not overwritten", "[liveness]") {
  SECTION("by a later step") {
    Sketch s;
    const Value a = s.b.scale(s.x, 2);
    const Value m = s.b.matmul(a, s.weight("w"));
    s.graph.add_output("y", s.b.add(s.x, m));
    CHECK(Sketch::find(s.buffers(), s.x)->aliases != std::vector<Value>{a});
  }
  SECTION("by another node of the same step") {
    Sketch s;
    const Value m = s.b.matmul(s.x, s.weight("w"));
    const Value sum = s.b.add(s.x, m);
    s.graph.add_output("y", sum);
    s.group({m, sum});
    CHECK(Sketch::find(s.buffers(), s.x)->aliases.empty());
  }
  SECTION("by the user of an output") {
    Sketch s;
    const Value a = s.b.scale(s.x, 2);
    s.graph.add_output("x", s.x);
    s.graph.add_output("y", a);
    CHECK(s.buffers().empty());  // outputs have a memory block of their own
  }
  SECTION("by two results of one step") {
    Sketch s;
    const Value a = s.b.scale(s.x, 2);
    const Value c = s.b.scale(a, 3);
    s.graph.add_output("y", s.b.add(s.b.scale(a, 4), s.b.scale(c, 5)));
    s.group({a, c});
    const auto buffers = s.buffers();
    REQUIRE((Sketch::find(buffers, a) != nullptr && Sketch::find(buffers, c) != nullptr));
    CHECK(Sketch::find(buffers, a) != Sketch::find(buffers, c));
  }
  SECTION("by a broadcast, whose operand is smaller") {
    Sketch s;
    const Value gain = s.b.weight("gain", DType::kF32, {64});
    const Value a = s.b.mul(s.x, gain);
    s.graph.add_output("a", a);
    CHECK(Sketch::find(s.buffers(), gain) == nullptr);
  }
}

TEST_CASE("bind_variants: scratch lies in the arena, beside the live buffers", "[bind]") {
  Sketch s;
  const Value state = s.b.kv_state({0, 1, 2, 32, 0});
  const Value k = s.b.scale(s.x, 2);
  const Value v = s.b.scale(s.x, 3);
  const Value stored = s.b.kv_store(state, k, v, 0);
  const Value mixed = s.b.attention(s.x, stored, {0, 2, 2, 32, 1, 0, 0});
  s.graph.add_output("y", s.b.add(mixed, s.x));
  s.graph.add_output("kv0", stored);
  FakeTarget target;
  target.scratch_bytes = 4096;
  const Program program = bind_variants(s.graph, target, target.variants(64, 1));
  const Variant& decode = program.variants[0];
  CHECK(decode.arena_bytes == decode.arena_bound_bytes);
  CHECK(decode.arena_bytes == 4096 + 2 * 256);  // x, attention's result, scratch
  CHECK(program.arena_bytes == program.variants[1].arena_bytes);
  CHECK(program.variants[1].arena_bytes > decode.arena_bytes);
}

TEST_CASE("bind_variants: a step's cost counts weights and values at its borders once", "[bind]") {
  Sketch s;
  const Value m = s.b.matmul(s.x, s.weight("w"));
  const Value y = s.b.add(m, s.x);
  s.graph.add_output("y", y);
  s.group({m, y});
  const Program program = bind_variants(s.graph, FakeTarget(), FakeTarget().variants(64, 1));
  const Step& step = program.variants[0].steps.back();
  CHECK(step.choice.step.weight_bytes == 64 * 64 / 32 * 34);
  CHECK(step.choice.step.activation_bytes == 2 * 64 * 4);  // x once, y
  CHECK(step.choice.step.flops >= 2 * 64 * 64);
  CHECK(program.variants[0].steps[0].choice.step.weight_bytes == 64 / 32 * 34);  // one row of the table
}

std::vector<StepNodes> turns_of(const std::vector<Turn>& turns) {
  std::vector<StepNodes> out;
  for (const Turn& turn : turns) out.push_back(turn.nodes());
  return out;
}
const Wanted nothing = [](const StepNodes&, const StepNodes&) { return false; };

TEST_CASE("pair_steps: a step moves forward to an earlier one that it does not depend on", "[pair]") {
  Sketch s;
  const Value a = s.b.matmul(s.x, s.weight("a"));
  const Value c = s.b.matmul(a, s.weight("c"));
  const Value d = s.b.matmul(s.x, s.weight("d"));
  const Value e = s.b.matmul(s.b.add(c, d), s.weight("e"));
  s.graph.add_output("y", e);
  const auto order = schedule(s.graph);
  const auto is_matmul_step = [&](const StepNodes& nodes) { return s.graph.op(nodes.front()) == ir::Op::kMatmul; };
  const auto pairs = [&](const Wanted& wanted) { return turns_of(pair_steps(s.graph, order, {}, wanted, nothing)); };
  const auto turns =
      pairs([&](const auto& one, const auto& other) { return is_matmul_step(one) && is_matmul_step(other); });
  const auto at = step_of_node(s.graph, turns);
  CHECK(turns.size() == order.size() - 1);
  CHECK(turns[1] == StepNodes{a.node, d.node});  // c needs a, and e needs both
  CHECK(at[c.node] == 2);
  CHECK(at[e.node] == static_cast<std::int32_t>(turns.size()) - 1);
  CHECK(pairs([](const auto&, const auto&) { return false; }) == order);
  // Anything may run beside anything: no step beside one that it needs, directly or not.
  const auto all = pairs([](const auto&, const auto&) { return true; });
  const auto placed = step_of_node(s.graph, all);
  for (const auto& step : all)
    for (const NodeId node : step)
      for (const Value& operand : s.graph.operands(node))
        if (placed[operand.node] >= 0) CHECK(placed[operand.node] < placed[node]);
}

TEST_CASE("pair_steps: a step moves forward by few turns only", "[pair]") {
  Sketch s;
  const Value a = s.b.matmul(s.x, s.weight("a"));
  Value late = a;
  for (int i = 0; i < 12; ++i) late = s.b.scale(late, 2);
  const Value d = s.b.matmul(s.x, s.weight("d"));
  s.graph.add_output("y", s.b.add(late, d));
  const auto order = schedule(s.graph);
  const auto matmuls = [&](const StepNodes& one, const StepNodes& other) {
    return s.graph.op(one.front()) == ir::Op::kMatmul && s.graph.op(other.front()) == ir::Op::kMatmul;
  };
  const auto turns = pair_steps(s.graph, order, {}, matmuls, nothing);
  CHECK(turns.size() == order.size());
}

TEST_CASE("pair_steps: a step is joined with the one that follows it, before others may run beside it", "[pair]") {
  Sketch s;
  const Value a = s.b.matmul(s.x, s.weight("a"));
  const Value c = s.b.scale(a, 2);
  const Value d = s.b.matmul(s.x, s.weight("d"));
  const Value e = s.b.scale(s.b.add(c, d), 3);
  s.graph.add_output("y", e);
  const auto order = schedule(s.graph);
  const auto is = [&](const StepNodes& nodes, ir::Op op) { return s.graph.op(nodes.front()) == op; };
  const auto beside = [&](const StepNodes& one, const StepNodes& other) {
    return is(one, ir::Op::kMatmul) && is(other, ir::Op::kMatmul);
  };
  const auto joins = [&](const StepNodes& one, const StepNodes& next) {
    return is(one, ir::Op::kMatmul) && is(next, ir::Op::kScale);
  };
  // d moves beside a, so the scale behind a follows both and stays alone.
  const auto turns = pair_steps(s.graph, order, {}, beside, nothing);
  CHECK(turns[1].nodes() == StepNodes{a.node, d.node});
  const auto joined = pair_steps(s.graph, order, {}, beside, joins);
  REQUIRE(joined.size() == order.size() - 1);
  CHECK((joined[1].nodes() == StepNodes{a.node, c.node} && joined[1].joined));
  CHECK(std::ranges::count_if(joined, &Turn::joined) == 1);
  // Not with a step that comes later.
  const auto later = [&](const StepNodes& one, const StepNodes& next) {
    return one.front() == a.node && next.front() == d.node;
  };
  CHECK(pair_steps(s.graph, order, {}, nothing, later).size() == order.size());
}

TEST_CASE("pair_steps: a matmul with a store of values moves before the store of keys that its state comes from",
          "[pair]") {
  Sketch s;
  const Value k = s.b.matmul(s.x, s.weight("k")), v = s.b.matmul(s.x, s.weight("v"));
  const Value whole = s.b.kv_store(s.b.kv_state({.layers = 1, .kv_heads = 1, .head_dim = 64}), k, v, 0);
  const auto half = [&](Value state, Value rows, ir::KvHalf which) {
    auto attrs = s.graph.attrs_as<ir::KvStoreAttrs>(whole.node);
    attrs.half = which;
    const auto input = [&](std::size_t i) { return s.graph.operand(whole.node, i); };
    return Value{s.graph.add(ir::Op::kKvStore, {state, rows, input(3), input(4), input(5)}, attrs), 0};
  };
  const Value keys = half(s.graph.operand(whole.node, 0), k, ir::KvHalf::kKeys);
  const Value values = half(keys, v, ir::KvHalf::kValues);
  s.graph.replace_uses(whole, values);
  s.graph.remove(whole.node);
  s.graph.add_output("y", s.b.scale(s.x, 2));
  s.group({v, values});
  const auto order = schedule(s.graph);
  const auto before = step_of_node(s.graph, order);
  REQUIRE(before[keys.node] < before[v.node]);  // without turns the state decides
  const auto turns = pair_steps(
      s.graph, order, {},
      [&](const StepNodes& one, const StepNodes& other) { return one.front() == k.node && other.front() == v.node; },
      nothing);
  const auto at = step_of_node(s.graph, turns_of(turns));
  CHECK(at[k.node] == at[v.node]);
  CHECK(at[keys.node] > at[values.node]);
}

TEST_CASE("bind_variants: steps that run side by side share a turn, and no memory", "[pair]") {
  Sketch s;
  const Value a = s.b.matmul(s.x, s.weight("a"));
  const Value c = s.b.scale(a, 2);
  const Value d = s.b.matmul(s.x, s.weight("d"));
  s.graph.add_output("y", s.b.scale(s.b.add(c, d), 3));
  FakeTarget target;
  target.beside = true;
  for (const bool one_kernel : {true, false}) {
    CAPTURE(one_kernel);
    target.one_kernel = one_kernel;
    const Program program = bind_variants(s.graph, target, target.variants(64, 1));
    const Variant& decode = program.variants[0];
    REQUIRE(decode.steps.size() == 5);
    const auto& both = decode.steps[1];
    CHECK(both.nodes == std::vector<NodeId>{a.node, d.node});
    const std::int64_t weight = 64 * 64 / 32 * 34;
    if (one_kernel) {
      CHECK(both.choice.step.label == "matmul|matmul");
      CHECK(both.choice.step.weight_bytes == 2 * weight);
      CHECK(both.choice.then.empty());
    } else {
      CHECK(both.choice.step.weight_bytes == weight);
      REQUIRE(both.choice.then.size() == 1);
      CHECK(both.choice.then[0].step.label == "matmul");
      CHECK(both.choice.then[0].step.weight_bytes == weight);
    }
    const auto* of_x = Sketch::find(decode.buffers, s.x);
    const auto* of_a = Sketch::find(decode.buffers, a);
    const auto* of_d = Sketch::find(decode.buffers, d);
    REQUIRE((of_x != nullptr && of_a != nullptr && of_d != nullptr));
    CHECK(of_x->last == 1);
    CHECK((of_a->first == 1 && of_d->first == 1));
    CHECK((of_x->offset != of_a->offset && of_x->offset != of_d->offset && of_a->offset != of_d->offset));
    CHECK(program.variants[1].steps.size() == 6);  // a long step has none side by side
  }
}

}  // namespace
}  // namespace forge::passes::test
