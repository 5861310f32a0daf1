// Embeddings as step input: graphs that take rows of floats in place of token ids.

#include <catch2/catch.hpp>

#include "ir/builder.h"
#include "ir/interpreter.h"
#include "ir/text/text.h"
#include "tests/support/error_of.h"

namespace forge::ir {

TEST_CASE("input embeddings are f32 rows of the step, one per token") {
  Graph graph;
  Builder b(graph);
  graph.add_output("y", b.add(b.input(InputKind::kEmbeddings, 3), b.constant({10, 20, 30}, {3})));
  StepInputs in{
      .ids = {0, 0}, .positions = {0, 1}, .sequence = {0, 0}, .rows = {}, .kv_length = {2}, .block_table = {{0}}};
  const auto run = [&] {
    ReferenceKv kv;
    return interpret(graph, in, kv, {}).at("y").f32;
  };
  in.embeddings = {1, 2, 3, 4, 5, 6};
  CHECK(run() == std::vector<float>{11, 22, 33, 14, 25, 36});
  in.embeddings.pop_back();
  CHECK_THAT(tests::error_of([&] { (void)run(); }), Catch::Contains("one row for each token"));

  const auto text = print(graph);
  CHECK_THAT(text, Catch::Contains("{kind = embeddings; width = 3} : f32[T,3]"));
  CHECK(print(parse(text)) == text);
}

}  // namespace forge::ir
