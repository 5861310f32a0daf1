#pragma once
// Helpers for tests of the reference interpreter on small graphs whose results are computed by hand.

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/interpreter.h"

namespace forge::ir::test {

using Floats = std::vector<float>;

/// The inputs of a step of `n` tokens at positions first, first + 1, ... of one sequence. Block b of its table is
/// physical block `b + shift`.
inline StepInputs step(std::size_t n, std::int32_t first = 0, std::int32_t shift = 0, std::int32_t blocks = 4) {
  StepInputs in;
  for (std::size_t i = 0; i < n; ++i) {
    in.ids.push_back(static_cast<std::int32_t>(first + i));
    in.positions.push_back(static_cast<std::int32_t>(first + i));
    in.sequence.push_back(0);
    in.rows.push_back(static_cast<std::int32_t>(i));
  }
  in.kv_length = {static_cast<std::int32_t>(first + n)};
  in.block_table.emplace_back();
  for (std::int32_t b = 0; b < blocks; ++b) in.block_table[0].push_back(b + shift);
  return in;
}

/// Runs the graph that `make` builds and returns its result. Constants stand for the tokens' rows; the graph must not
/// use weights.
inline Floats run(const std::function<Value(Builder&)>& make, bool quantize = false, const StepInputs& in = step(2)) {
  Graph graph;
  Builder b(graph);
  graph.add_output("y", make(b));
  ReferenceKv kv;
  return interpret(
             graph, in, kv,
             [](const std::string& name, const TensorType&) -> Floats {
               throw std::runtime_error("no weight " + name);
             },
             quantize)
      .at("y")
      .f32;
}

/// Checks that both have the same size and agree within `margin`.
inline void check_near(const Floats& got, const Floats& want, double margin = 1e-6) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(want[i]).margin(margin));
}

}  // namespace forge::ir::test
