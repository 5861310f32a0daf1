// Encoders against the NumPy models of make_families.py: the hidden rows of one text, from the interpreter and from the
// compiled program; and each part is noticed when it is taken out.

#include <catch2/catch.hpp>

#include "tests/e2e/family_errors.h"

using namespace forge;
using namespace forge::tests;
using ir::Op;

namespace {

constexpr double kBoundOfRows = 1e-7;  // keys and values are rounded to f16
constexpr double kExactRows = 1e-10;   // f32 sums only

}  // namespace

TEST_CASE("every encoder of the fixture gives the NumPy models' rows") {
  for (const auto& model : family_fixture()["encoders"]) {
    INFO(model["name"].get<std::string>());
    const TinyModel tiny(FileImage{family_gguf(model)});
    CHECK(error_of(model, tiny.portable().graph) < kExactRows);
    const auto rows = hidden_rows_of(*tiny.open(2), family_tokens());
    CHECK(nmse(kept_rows(rows), family_logits_of_f16_cache(model)) < kBoundOfRows);
  }
}

TEST_CASE("a part that an encoder lacks, and another window, base or rotation are noticed") {
  for (const auto& model : family_fixture()["encoders"]) {
    const auto graph = family_graph(model);
    for (const auto op : {Op::kScale, Op::kRmsNorm, Op::kLayerNorm, Op::kRope}) {
      const auto cut = without(graph, op);
      if (cut.hash() == graph.hash()) continue;
      INFO(model["name"].get<std::string>() << " without " << ir::op_def(op).name);
      CHECK_FALSE(error_of(model, cut) <= kNoticed);
    }
  }
  const auto& gemma = family_model("gemma_embedding");
  const auto graph = family_graph(gemma);
  for (const std::int64_t window : {0, 5, 9})
    CHECK(error_of(gemma, with_attrs<ir::SelfAttentionAttrs>(graph, Op::kSelfAttention, [&](auto& a) {
                     if (a.window > 0) a.window = window;
                   })) > kNoticed);
  CHECK(error_of(gemma, with_attrs<ir::RopeFreqsAttrs>(graph, Op::kRopeFreqs, [](auto& a) { a.base = 1e6F; })) >
        kNoticed);
}
