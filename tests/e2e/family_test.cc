// The llama family: metadata of the file appears in the graph, and files that are contradictory or need unsupported
// features are refused by name.

#include <catch2/catch.hpp>

#include <cmath>

#include "support/error.h"
#include "tests/e2e/tiny_model.h"

using namespace forge;
using namespace forge::tests;

namespace {

template <class Attrs>
std::vector<Attrs> all(const ir::Graph& graph, ir::Op op) {
  std::vector<Attrs> found;
  for (const auto node : graph.nodes())
    if (graph.op(node) == op) found.push_back(graph.attrs_as<Attrs>(node));
  return found;
}

/// `image` with the first `from` after `after` overwritten by `to`, which must have equal length.
std::string edited(std::string image, std::string_view after, std::string_view from, std::string_view to) {
  const auto at = image.find(from, image.find(after) + after.size());
  REQUIRE(at != std::string::npos);
  REQUIRE(from.size() == to.size());
  return image.replace(at, from.size(), to);
}

/// The error line of building a model from `image`; empty if it builds.
std::string refusal(const std::string& image) {
  try {
    const auto file = loader::Gguf::from(std::as_bytes(std::span(image)));
    (void)loader::build_model(file);
    return "";
  } catch (const Error& error) {
    CHECK(error.exit_status() == 3);
    return error.line();
  }
}

std::string u32(std::uint32_t value) {
  return GgufWriter::raw(value);
}

}  // namespace

TEST_CASE("epsilon, RoPE, scale and geometry of the file appear in every node of the graph") {
  const TinyModel model({.layers = 3, .head_dim = 32, .rope_base = 54321, .eps = 3e-4F});
  const auto& graph = model.portable().graph;
  const auto norms = all<ir::NormAttrs>(graph, ir::Op::kRmsNorm);
  CHECK(norms.size() == 7);  // two per layer and the final one
  for (const auto& norm : norms) CHECK((norm.eps == 3e-4F && norm.dim == 64));
  for (const auto& freqs : all<ir::RopeFreqsAttrs>(graph, ir::Op::kRopeFreqs))
    CHECK((freqs.base == 54321 && freqs.dims == 32));
  for (const auto& rope : all<ir::RopeAttrs>(graph, ir::Op::kRope))
    CHECK((rope.mode == ir::RopeMode::kPairs && rope.rotary_dims == 32));
  for (const auto& scale : all<ir::ScaleAttrs>(graph, ir::Op::kScale)) CHECK(scale.factor == 1 / std::sqrt(32.0F));
  const auto attention = all<ir::AttentionAttrs>(graph, ir::Op::kAttention);
  REQUIRE(attention.size() == 3);
  for (const auto& a : attention)
    CHECK((a.heads == 4 && a.kv_heads == 2 && a.head_dim == 32 && a.window == 0 && a.softcap == 0));
  CHECK(model.portable().info.vocab == 90);
}

TEST_CASE("scaled RoPE: linear stretches positions, YaRN also scales cos and sin") {
  const TinyModel linear({.rope_scaling = "linear"}), yarn({.rope_scaling = "yarn"});
  const auto of = [](const TinyModel& model) {
    return std::pair(all<ir::RopeFreqsAttrs>(model.portable().graph, ir::Op::kRopeFreqs).at(0),
                     all<ir::RopeTableAttrs>(model.portable().graph, ir::Op::kRopeTable).at(0).magnitude);
  };
  CHECK(
      (of(linear).first.scaling == ir::RopeScaling::kLinear && of(linear).first.factor == 4 && of(linear).second == 1));
  CHECK((of(yarn).first.scaling == ir::RopeScaling::kYarn && of(yarn).first.original_context == 64));
  CHECK(of(yarn).second == Approx(1 + 0.1 * std::log(4.0)));
}

TEST_CASE("a file that contradicts itself or needs an unsupported feature is refused by name") {
  const auto good = tiny_gguf({});
  CHECK(refusal(good).empty());
  const auto says = [](const std::string& line, std::initializer_list<const char*> words) {
    INFO(line);
    for (const auto* word : words) CHECK(line.find(word) != std::string::npos);
  };
  says(refusal(edited(good, "general.architecture", "llama", "llamo")),
       {"llamo", "'forge-inspect families' lists the"});
  says(refusal(edited(good, "llama.attention.head_count_kv", u32(2), u32(3))), {"4 and 3"});
  says(refusal(edited(good, "llama.embedding_length", u32(64), u32(65))), {"token_embd.weight", "[90, 65]"});
  says(refusal(edited(good, "llama.block_count", u32(2), u32(3))), {"blk.2."});
  says(refusal(edited(good, "llama.block_count", u32(2), u32(0))), {"block_count", "0"});
  says(refusal(edited(good, "llama.attention.value_length", u32(16), u32(8))), {"value heads"});
  says(refusal(edited(good, "llama.rope.dimension_count", u32(16), u32(17))), {"17 of 16"});
  says(refusal(edited(good, "", "blk.1.ffn_up.weight", "blk.1.ffn_uq.weight")), {"blk.1.ffn_up.weight"});
  const auto scaled = tiny_gguf({.rope_scaling = "linear"});
  says(refusal(edited(scaled, "llama.rope.scaling.type", "linear", "spiral")), {"spiral", "not supported"});
  CHECK(refusal(tiny_gguf({.dtype = DType::kQ8_0})).empty());
  const auto mixture = tiny_gguf({.experts = 6, .experts_used = 2});
  CHECK(refusal(mixture).empty());
  says(refusal(edited(mixture, "llama.expert_used_count", u32(2), u32(7))), {"7 of 6"});
  says(refusal(edited(mixture, "llama.expert_used_count", u32(2), u32(0))), {"0 of 6"});
  says(refusal(edited(mixture, "llama.expert_count", u32(6), u32(3))), {"[64, 6]", "[3, 64]"});
  says(refusal(edited(mixture, "llama.expert_count", u32(6), u32(2000))), {"2000 experts", "at most 1024"});
  says(refusal(edited(mixture, "", "blk.0.ffn_up_exps.weight", "blk.0.ffn_uq_exps.weight")), {"ffn_up_exps"});
}
