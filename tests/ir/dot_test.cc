// The DOT form of a graph: clusters, groups and notes, and that Graphviz accepts it.

#include "ir/text/dot.h"

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>

#include "every_op.h"
#include "small_llama.h"
#include "tests/support/skip.h"

using namespace forge;
using namespace forge::ir;

namespace {

/// True if Graphviz's `program` reads `text` without a message.
bool accepted(const std::string& program, const std::string& text) {
  FILE* pipe = popen((program + " > /dev/null 2>&1").c_str(), "w");
  REQUIRE(pipe != nullptr);
  std::fwrite(text.data(), 1, text.size(), pipe);
  return pclose(pipe) == 0;
}

}  // namespace

TEST_CASE("layers are clusters, groups are boxes inside, and notes are shown") {
  Graph graph = test::SmallLlama{}.build();
  NodeId glu = 0;
  for (const NodeId node : graph.nodes())
    if (graph.op(node) == Op::kGlu && graph.layer(node) == 0) glu = node;
  graph.set_group(glu, 4);
  graph.set_group(graph.operand(glu, 0).node, 4);
  const DotOptions options{
      .only_layer = kNoLayer,
      .note = [&](Value value) { return value.node == glu ? std::string("arena \"0x1200\"") : std::string(); },
      .group_note = [](std::uint32_t group) { return "swiglu, step " + std::to_string(group); }};
  const auto text = dot(graph, options);
  CHECK_THAT(text, Catch::Contains("subgraph cluster_layer_0") && Catch::Contains("subgraph cluster_layer_1"));
  CHECK_THAT(text, Catch::Contains("subgraph cluster_group_4") && Catch::Contains("swiglu, step 4"));
  CHECK_THAT(text, Catch::Contains("arena \\\"0x1200\\\"") && Catch::Contains("blk.0.ffn_gate.weight"));
  CHECK_THAT(text, Catch::Contains("f32[T,96]") && Catch::Contains("label=\"logits\""));
  const auto one = dot(graph, {.only_layer = 1});
  CHECK_THAT(one, !Catch::Contains("cluster_layer_0") && Catch::Contains("cluster_layer_1"));
  CHECK_THAT(one, Catch::Contains("style=dashed];"));
  CHECK_THAT(one, !Catch::Contains("blk.0.ffn_gate.weight"));
}

TEST_CASE("Graphviz accepts every graph") {
  if (!tests::is_installed("dot")) return tests::skip_case("Graphviz is not installed");
  CHECK(accepted("dot -Tsvg", dot(test::every_op())));
  CHECK(accepted("dot -Tsvg", dot(test::SmallLlama{}.build(), {.only_layer = 0})));
  CHECK(accepted("dot -Tcanon", dot(test::SmallLlama{.layers = 4}.build())));
  CHECK_FALSE(accepted("dot -Tcanon", "digraph {"));
}
