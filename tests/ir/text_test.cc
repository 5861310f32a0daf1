// The text form of a graph: round trips, and hostile text. Plans contain this text, so the parser must not crash on any
// input.

#include "ir/text/text.h"

#include <rapidcheck.h>
#include <catch2/catch.hpp>
#include <cstring>
#include <set>

#include "every_op.h"
#include "random_graph.h"
#include "small_llama.h"
#include "support/error.h"

using namespace forge;
using namespace forge::ir;

namespace {

void check_round_trip(const Graph& graph) {
  const auto text = print(graph);
  const Graph back = parse(text);
  CHECK(print(back) == text);
  CHECK(back.hash() == graph.hash());
}

std::string parse_error_of(const std::string& text) {
  try {
    (void)parse(text);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kPlan);
    return error.line();
  }
  return "";
}

constexpr const char* kInput = "%0 = input() {kind = ids} : i32[T]\n";
constexpr const char* kTable = "%1 = weight() {name = \"e\"} : f32[8,4]\n";
const std::string kEmbed = std::string(kInput) + kTable + "%2 = embed(%1, %0) : f32[T,4]\n";

}  // namespace

TEST_CASE("a whole model's graph and every op round-trip") {
  check_round_trip(Graph());
  check_round_trip(test::SmallLlama{}.build());
  const Graph all = test::every_op();
  verify(all);
  check_round_trip(all);
  std::set<Op> ops;
  for (const NodeId node : all.nodes()) ops.insert(all.op(node));
  CHECK(ops.size() == static_cast<std::size_t>(Op::kCount_));
}

TEST_CASE("the parameters of an activation follow it by name") {
  const auto line = [](const std::string& attributes) {
    return kEmbed + "%3 = activate(%2) {" + attributes + "} : f32[T,4]\noutput \"y\" = %3\n";
  };
  const auto text = line("activation = xielu; alpha_n = 0.8; alpha_p = 1.25; beta = 0.5; eps = -1e-06");
  const Graph graph = parse(text);
  check_round_trip(graph);
  CHECK_THAT(print(graph),
             Catch::Contains("activation = xielu; alpha_n = 0.8; alpha_p = 1.25; beta = 0.5; eps = -1e-06"));
  CHECK(parse(line("activation = xielu; beta = 0.5")).hash() != graph.hash());
  CHECK_THAT(parse_error_of(line("activation = silu; beta = 0.5")), Catch::Contains("there is no attribute 'beta'"));
  CHECK_THAT(parse_error_of(line("beta = 0.5; activation = xielu")), Catch::Contains("there is no attribute 'beta'"));
  CHECK_THAT(parse_error_of(line("activation = xielu; beta = 0.5; beta = 1")),
             Catch::Contains("'beta' is given twice"));
  CHECK_THAT(parse_error_of(line("activation = xielu; beta = nan")), Catch::Contains("beta = nan: must be finite"));
  CHECK_THAT(parse_error_of(line("activation = xielu; eps = inf")), Catch::Contains("eps = inf: must be finite"));
}

TEST_CASE("a printed node has values, op, attributes, types, layer and group") {
  Graph graph;
  Builder b(graph);
  const Value table = b.weight("e", DType::kQ8_0, {8, 64});
  const Value x = b.embed(table, b.input(InputKind::kIds));
  const NodeId split = graph.add(Op::kSplit, {x}, PartsAttrs{{16, 48}, 0}, 3);
  graph.set_group(split, 7);
  graph.add_output("y", {split, 1});
  CHECK(print(graph) ==
        "%0 = weight() {name = \"e\"} : q8_0[8,64]\n"
        "%1 = input() {kind = ids} : i32[T]\n"
        "%2 = embed(%0, %1) : f32[T,64]\n"
        "%3, %4 = split(%2) {sizes = [16, 48]; unit = 0} : f32[T,16], f32[T,48] @layer 3 #group 7\n"
        "output \"y\" = %4\n");
}

TEST_CASE("floats are read back bit for bit") {
  CHECK(rc::check("constants round-trip", [](const std::vector<std::uint32_t>& bits) {
    std::vector<float> values{0.0f, -0.0f, 1e-45f, 3.4028235e38f, 0.1f};
    for (const std::uint32_t b : bits) {
      float value = 0;
      std::memcpy(&value, &b, sizeof value);
      if (value == value) values.push_back(value);  // the payload of a NaN is not kept
    }
    Graph graph;
    const auto count = static_cast<std::int64_t>(values.size());
    graph.add(Op::kConstant, {}, ConstantAttrs{values, {DType::kF32, {count}}});
    const auto back = parse(print(graph)).attrs_as<ConstantAttrs>(0).values;
    RC_ASSERT(std::memcmp(values.data(), back.data(), values.size() * sizeof(float)) == 0);
  }));
}

TEST_CASE("random graphs round-trip") {
  CHECK(rc::check("print and parse are inverse", [](std::uint32_t seed) {
    Graph graph = test::random_graph(seed);
    const auto text = print(graph);
    const Graph back = parse(text);
    RC_ASSERT(print(back) == text);
    RC_ASSERT(back.hash() == graph.hash());
    graph.compact();
    RC_ASSERT(print(graph) == text);
    RC_ASSERT(graph.hash() == back.hash());
  }));
}

TEST_CASE("hand-written text parses: comments, blank lines, omitted attributes, arbitrary numbers") {
  const Graph graph = parse(
      "// a comment\n\n  %70 = input() : i32[T]  // kind is ids by default\r\n"
      "%5 = weight(){name=\"\\x65\\\\\\\"\"}:f32[ 8 , 4 ]\n%6=embed(%5,%70):f32[T,4]@layer 2#group 9\noutput \"o\"=%6");
  CHECK(graph.attrs_as<WeightAttrs>(1).name == "e\\\"");
  CHECK(graph.layer(2) == 2);
  CHECK(graph.group(2) == 9);
  CHECK(Graph(graph).new_group() == 10);
}

TEST_CASE("errors name the place and the reason") {
  const auto with = [](const std::string& line) { return parse_error_of(kEmbed + line); };
  CHECK(parse_error_of(kEmbed).empty());
  CHECK_THAT(with("%3 = nonsense(%2) : f32[T,4]"), Catch::Contains("4:6: there is no op 'nonsense'"));
  CHECK_THAT(with("%3 = scale(%9) {factor = 2} : f32[T,4]"), Catch::Contains("4:13: %9 is not defined above"));
  CHECK_THAT(with("%2 = scale(%2) {factor = 2} : f32[T,4]"), Catch::Contains("%2 is defined twice"));
  CHECK_THAT(with("%3 = scale(%2) {factor = 2} : f32[T,5]"), Catch::Contains("result 0 is f32[T,4], not f32[T,5]"));
  CHECK_THAT(with("%3 = scale(%2) {factor = 2} : f33[T,4]"), Catch::Contains("no element type 'f33'"));
  CHECK_THAT(with("%3 = scale(%2) {size = 2} : f32[T,4]"), Catch::Contains("no attribute 'size'"));
  CHECK_THAT(with("%3 = scale(%2) {factor = 1; factor = 2} : f32[T,4]"), Catch::Contains("'factor' is given twice"));
  CHECK_THAT(with("%3 = scale(%2) {factor = 1e99} : f32[T,4]"), Catch::Contains("out of range"));
  CHECK_THAT(with("%3 = scale(%2) {factor = nan} : f32[T,4]"), Catch::Contains("must be finite"));
  CHECK_THAT(with("%3 = add(%2) : f32[T,4]"), Catch::Contains("takes 2 to 2"));
  CHECK_THAT(with("%3 = glu(%2, %2) {activation = swish} : f32[T,4]"), Catch::Contains("'swish' is no value"));
  CHECK_THAT(with("%3 = scale(%2) : f32[T,4] @layer -5"), Catch::Contains("layer is out of range"));
  CHECK_THAT(with("%3 = scale(%2) : f32[T,4] #group 4294967295"), Catch::Contains("group is out of range"));
  CHECK_THAT(with("%3 = scale(%2) : f32[T,4] junk"), Catch::Contains("unexpected text at the end of the line"));
  CHECK_THAT(with("%3, %4 = scale(%2) : f32[T,4], f32[T,4]"), Catch::Contains("2 names and 2 types for 1 results"));
  CHECK_THAT(with("%3 = weight() {name = \"w} : f32[4]"), Catch::Contains("a string does not end"));
  CHECK_THAT(with("%3 = weight() {name = \"\\q\"} : f32[4]"), Catch::Contains("an escape is"));
  CHECK_THAT(with("%3 = weight() {name = \"w\"} : f32[99999999999999,99999999999]"), Catch::Contains("2^40"));
  CHECK_THAT(with("%3 = weight() {name = \"w\"} : q4_0[4,33]"), Catch::Contains("whole blocks"));
  CHECK_THAT(with("%3 = weight() {name = \"e\"} : f32[4]"), Catch::Contains("IR-013"));
  CHECK_THAT(with("output \"a\" = %2\noutput \"a\" = %2"), Catch::Contains("IR-007"));
  CHECK_THAT(parse_error_of("hello"), Catch::Contains("1:1: neither a node nor an output"));
  CHECK_THAT(parse_error_of(std::string(std::size_t{17} << 20, ' ')), Catch::Contains("at most"));
}

TEST_CASE("damaged text is refused or parsed, never a crash") {
  const auto texts = std::vector{print(test::every_op()), print(test::SmallLlama{.layers = 1}.build())};
  CHECK(rc::check("mutations", [&](std::uint32_t seed) {
    std::string text = texts[seed % texts.size()];
    test::Random random(seed);
    for (int i = 0; i < 1 + static_cast<int>(random.below(3)); ++i) {
      const auto at = random.below(text.size());
      switch (random.below(4)) {
        case 0:
          text[at] = static_cast<char>(random.below(256));
          break;
        case 1:
          text.erase(at, random.below(20));
          break;
        case 2:
          text.insert(at, std::to_string(random.below(1u << 31) * (1ull << 33)));
          break;
        default:
          text.insert(at, text.substr(random.below(text.size()), random.below(60)));
          break;
      }
    }
    try {
      const Graph graph = parse(text);
      RC_ASSERT(print(parse(print(graph))) == print(graph));
    } catch (const Error& error) {
      RC_ASSERT(error.code() == ErrorCode::kPlan);
    }
  }));
}
