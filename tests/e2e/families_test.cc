// Every model family, as a small random model, against the NumPy models of make_families.py, whose logits are in
// families.json. Further cases prove that this comparison is sensitive: removing or changing any part of a model's
// graph moves the logits by more than kNoticed.

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <set>

#include "ir/text/text.h"
#include "passes/pass.h"
#include "support/error.h"
#include "tests/e2e/family_errors.h"

using namespace forge;
using namespace forge::tests;
using Json = FamilyJson;

namespace {

constexpr double kBound = 1e-7;   // f32 sums; rounding of a key or value to f16 may differ
constexpr double kExact = 1e-10;  // f32 sums only

bool is_bias(const ir::Graph& graph, ir::NodeId add) {
  return graph.type(graph.operand(add, 1)).shape.size() == 1;
}

}  // namespace

TEST_CASE("every family gives the NumPy models' logits, as one prefill and token by token") {
  std::map<std::string, int> seen;
  for (const auto& model : family_fixture()["models"]) {
    INFO(model["name"].get<std::string>());
    ++seen[model["family"].get<std::string>()];
    const TinyModel tiny(FileImage{family_gguf(model)});
    const auto executor = tiny.open(2);
    const auto prefill = run_alone(*executor, family_tokens(), 64, {0});
    CHECK(nmse(kept_rows(prefill), family_logits_of_f16_cache(model)) < kBound);
    CHECK(prefill == run_alone(*executor, family_tokens(), 1, {0}));
    CHECK(error_of(model, tiny.portable().graph) < kExact);
  }
  for (const auto& encoder : family_fixture()["encoders"]) ++seen[encoder["family"].get<std::string>()];
  // llama has tests of its own. Encoders and most families with recurrent state are compared with reference data (stage
  // judge); nomic-bert is bert with parts that others have.
  const std::set<std::string_view> elsewhere{"llama",       "bert",       "falcon-h1",      "granitehybrid", "jamba",
                                             "kimi-linear", "lfm2",       "lfm2moe",        "mamba",         "mamba2",
                                             "modern-bert", "nemotron_h", "nemotron_h_moe", "nomic-bert",    "qwen35",
                                             "qwen35moe",   "qwen3next",  "rwkv7"};
  for (const auto& family : loader::families()) {
    INFO(family.name);
    CHECK((seen.contains(std::string(family.name)) || elsewhere.contains(family.name)));
  }
}

TEST_CASE("files of early and late converters of the same model give the same model") {
  const auto same = [](const char* name, const std::string& without, const Json& change) {
    auto model = family_model(name);
    if (!change.is_null()) model.merge_patch(change);
    INFO(name << " without '" << without << "', with " << change.dump());
    const TinyModel tiny(FileImage{family_gguf(model, without)});
    CHECK(nmse(kept_rows(tiny.reference(tiny.portable().graph, family_tokens(), false)), family_logits(model)) <
          kExact);
  };
  same("qwen2moe", "expert_feed_forward_length", {});
  same("deepseek_v3", "expert_gating_func", {});
  same("dots1", "expert_gating_func", {});
  same("minicpm", "", {{"keys", {{"embedding_scale", 12.0}, {"residual_scale", 0.80829038}, {"logit_scale", 0.1875}}}});
  same("gemma3", "rope.freq_base", {{"keys", {{"rope.global.freq_base", 1e6}, {"rope.local.freq_base", 1e4}}}});
  same("mistral3", "rope.scaling.yarn_log_multiplier", {{"keys", {{"rope.scaling.mscale_all_dim", 1.0}}}});
  same("mistral3", "attention.temperature_scale", {{"keys", {{"rope.scaling_beta", 0.4}}}});
  same("qwen3vl", "", {{"tensors", {{"v.blk.0.ln1.weight", {{8}, 0.0, 1.0}}, {"mm.0.weight", {{8, 8}, 0.0, 1.0}}}}});
  same("hunyuan_dense", "", {{"keys", {{"expert_count", 1}}}});
  same("qwen3", "", {{"keys", {{"rope.scaling.type", ""}}}});
  same("exaone4", "",
       {{"keys",
         {{"block_count", 6},
          {"nextn_predict_layers", 1},
          {"attention.sliding_window_pattern", {true, true, true, false, true}}}}});
  // A multi-token-prediction layer counts in block_count and is ignored.
  same("deepseek_v3", "",
       {{"keys", {{"block_count", 4}, {"nextn_predict_layers", 1}}},
        {"tensors", {{"blk.3.nextn.eh_proj.weight", {{48, 96}, 0.0, 1.0}}}}});
}

TEST_CASE("every family gives the same logits without the optional passes") {
  std::vector<std::string> skip;
  for (const auto& pass : passes::pipeline_passes())
    if (pass.optional) skip.emplace_back(pass.name);
  for (const auto& model : family_fixture()["models"]) {
    INFO(model["name"].get<std::string>());
    const TinyModel tiny(FileImage{family_gguf(model)});
    const auto plain = run_alone(*tiny.open(1, 4, skip), family_tokens(), 64, {0});
    CHECK(nmse(kept_rows(plain), family_logits_of_f16_cache(model)) < kBound);
  }
}

TEST_CASE("every family's graph survives its text form") {
  for (const auto& model : family_fixture()["models"]) {
    const TinyModel tiny(FileImage{family_gguf(model)});
    CHECK(ir::parse(ir::print(tiny.portable().graph)).hash() == tiny.portable().graph.hash());
  }
}

TEST_CASE("removing a factor, soft-cap, norm, bias or rotation is noticed, in every model that has it") {
  using ir::Op;
  std::map<Op, int> tried;
  for (const auto& model : family_fixture()["models"]) {
    const TinyModel tiny(FileImage{family_gguf(model)});
    const auto& graph = tiny.portable().graph;
    for (const auto op : {Op::kScale, Op::kSoftcap, Op::kRmsNorm, Op::kLayerNorm, Op::kAdd, Op::kRope, Op::kActivate}) {
      const auto which = [&](const ir::Graph& g, ir::NodeId node) { return op != Op::kAdd || is_bias(g, node); };
      const auto cut = without(graph, op, which);
      if (cut.hash() == graph.hash()) continue;
      INFO(model["name"].get<std::string>() << " without " << ir::op_def(op).name);
      CHECK_FALSE(error_of(model, cut) <= kNoticed);  // negated: without norms the error may be NaN
      ++tried[op];
    }
    // Only the norms of heads (QK-norm), and only the post-norms.
    for (const bool heads : {true, false}) {
      const auto cut = without(graph, Op::kRmsNorm, [&](const ir::Graph& g, ir::NodeId node) {
        if (heads) return g.attrs_as<ir::NormAttrs>(node).dim != tiny.portable().info.width;
        const auto users = g.users(node);
        return users.size() == 1 && g.op(users[0]) == Op::kAdd;
      });
      if (cut.hash() == graph.hash()) continue;
      INFO(model["name"].get<std::string>() << " without norms " << (heads ? "of heads" : "behind blocks"));
      CHECK(error_of(model, cut) > kNoticed);
    }
  }
  CHECK(tried.size() == 7);
}

TEST_CASE("a wrong window, attention soft-cap, epsilon, RoPE base, RoPE mode or list of factors is noticed") {
  using ir::Op;
  const auto graph_of = [](const Json& model) { return TinyModel(FileImage{family_gguf(model)}).portable().graph; };
  for (const char* name : {"afmoe", "cohere2", "cohere2moe", "exaone4", "exaone_moe", "gemma2", "gemma3", "olmo3",
                           "phi3", "phimoe", "step35"}) {
    const auto& model = family_model(name);
    CHECK(error_of(model, with_attrs<ir::AttentionAttrs>(graph_of(model), Op::kAttention,
                                                         [](auto& a) { a.window = 0; })) > kNoticed);
    CHECK(error_of(model, with_attrs<ir::AttentionAttrs>(graph_of(model), Op::kAttention, [](auto& a) {
                     a.window += a.window > 0 ? 1 : 0;
                   })) > kNoticed);
  }
  const auto& gemma2 = family_model("gemma2");
  CHECK(error_of(gemma2, with_attrs<ir::AttentionAttrs>(graph_of(gemma2), Op::kAttention,
                                                        [](auto& a) { a.softcap = 0; })) > kNoticed);
  const auto& gemma3 = family_model("gemma3");
  const auto wrong = [&](auto change) {
    return error_of(gemma3, with_attrs<ir::RopeFreqsAttrs>(graph_of(gemma3), Op::kRopeFreqs, change));
  };
  CHECK(wrong([](auto& a) { a.base = 10000; }) > kNoticed / 10);  // affects one layer of seven
  CHECK(wrong([](auto& a) { a.base = 1e6F; }) > kNoticed);
  CHECK(wrong([](auto& a) { a.factor = 1; }) > kNoticed / 10);
  const auto& phi3 = family_model("phi3");
  CHECK(error_of(phi3, with_attrs<ir::RopeTableAttrs>(graph_of(phi3), Op::kRopeTable,
                                                      [](auto& a) { a.magnitude = 1; })) > kNoticed);
  const auto& mistral3 = family_model("mistral3");
  const auto table_wrong = [&](auto change) {
    return error_of(mistral3, with_attrs<ir::RopeTableAttrs>(graph_of(mistral3), Op::kRopeTable, change));
  };
  const auto tempered = [](auto& a) { return a.temperature != 0; };
  CHECK(table_wrong([&](auto& a) { a.temperature = tempered(a) ? 0.5F : 0; }) > kNoticed);
  CHECK(table_wrong([&](auto& a) { a.temperature_length = tempered(a) ? 6 : 0; }) > kNoticed);
  CHECK(table_wrong([](auto& a) { a.magnitude = 1.14F; }) > kNoticed);
  auto slower = mistral3;
  slower.merge_patch({{"keys", {{"rope.scaling.beta_slow", 0.01}}}});  // a key name that Ollama writes
  CHECK(error_of(slower, graph_of(slower)) > kNoticed);
  for (const auto& model : family_fixture()["models"]) {
    INFO(model["name"].get<std::string>());
    const auto flip = [](auto& a) {
      a.mode = a.mode == ir::RopeMode::kPairs ? ir::RopeMode::kHalves : ir::RopeMode::kPairs;
    };
    const auto graph = graph_of(model);
    const bool rotates = std::ranges::any_of(graph.nodes(), [&](auto node) { return graph.op(node) == Op::kRope; });
    const std::set<std::string> without_rope{"baichuan_13b", "bloom", "falcon_mamba", "gpt2",
                                             "granite_nope", "jais",  "mpt",          "starcoder"};
    CHECK(rotates == !without_rope.contains(model["name"].get<std::string>()));
    if (rotates) CHECK(error_of(model, with_attrs<ir::RopeAttrs>(graph, Op::kRope, flip)) > kNoticed);
  }
  CHECK(family_logits(family_model("phi3")) != family_logits(family_model("phi3_long")));  // short and long factors
}

TEST_CASE("a wrong router gate, normalisation, scale, groups or bias is noticed, and so is wrong YaRN") {
  using ir::Op;
  const auto graph_of = [](const Json& model) { return TinyModel(FileImage{family_gguf(model)}).portable().graph; };
  for (const char* name :
       {"afmoe", "bailingmoe2", "cohere2moe", "deepseek", "deepseek_v2", "deepseek_v3", "dots1", "ernie4_5_moe",
        "exaone_moe", "glm4moe", "glm4moe_air", "minimax_m2", "mistral4", "smallthinker", "step35"}) {
    INFO(name);
    const auto& model = family_model(name);
    const auto graph = graph_of(model);
    const auto routed = [&](auto change) {
      return error_of(model, with_attrs<ir::RouteAttrs>(graph, Op::kRoute, [&](auto& a) {
                        if (a.used == 3) change(a);  // not the routing that selects heads
                      }));
    };
    CHECK(routed([](auto& a) { a.scale *= 1.25F; }) > kNoticed);
    CHECK(routed([](auto& a) {
            a.share = a.share == ir::RoutingNormalization::kAll ? ir::RoutingNormalization::kChosen
                                                                : ir::RoutingNormalization::kAll;
          }) > kNoticed);
    CHECK(routed([](auto& a) {
            a.gate = a.gate == ir::RouteGate::kSoftmax ? ir::RouteGate::kSigmoid : ir::RouteGate::kSoftmax;
          }) > kNoticed);
    if (!model["keys"].contains("expert_group_count")) continue;
    CHECK(routed([](auto& a) { a.groups_used = 3; }) > kNoticed);
    CHECK(routed([](auto& a) { a.group_top = 3 - a.group_top; }) > kNoticed);
  }
  for (const char* name : {"deepseek_v2", "deepseek_v3"}) {
    INFO(name);
    const auto& model = family_model(name);
    const auto graph = graph_of(model);
    CHECK(error_of(model, with_attrs<ir::RopeFreqsAttrs>(
                              graph, Op::kRopeFreqs, [](auto& a) { a.scaling = ir::RopeScaling::kNone; })) > kNoticed);
    CHECK(error_of(model, with_attrs<ir::RopeTableAttrs>(graph, Op::kRopeTable, [](auto& a) { a.magnitude = 1.14F; })) >
          kNoticed);
  }
  for (const char* name : {"afmoe", "bailingmoe2", "deepseek_v3", "dots1", "ernie4_5_moe", "exaone_moe", "glm4moe",
                           "minimax_m2", "mistral4", "step35"}) {
    INFO(name);
    const auto& model = family_model(name);
    auto graph = graph_of(model);
    for (const auto node : graph.topological_order()) {
      if (graph.op(node) != Op::kRoute || graph.operands(node).size() < 2) continue;
      const auto bare = graph.add(Op::kRoute, {graph.operand(node, 0)}, graph.attrs(node), graph.layer(node));
      for (std::uint32_t i = 0; i < 2; ++i) graph.replace_uses({node, i}, {bare, i});
    }
    CHECK(error_of(model, graph) > kNoticed);
  }
}

TEST_CASE("latent attention caches one latent row per token if the file allows absorbed queries") {
  const auto group = [](const char* name) {
    const TinyModel model(FileImage{family_gguf(family_model(name))});
    return model.open()->program().kv_groups.at(0);
  };
  const auto latent = group("deepseek_v3"), full = group("deepseek_v2_lite");
  CHECK((latent.kv_heads() == 1 && latent.head_dim() == 24 + 8 && latent.value_dim() == 24 && latent.shared_row()));
  CHECK(latent.block_bytes() == 32 * (24 + 8) * 2);  // 32 tokens of f16; values are part of the key's row
  CHECK((full.kv_heads() == 4 && full.head_dim() == 16 + 8 && full.value_dim() == 8 && !full.shared_row()));
  CHECK(full.block_bytes() == 32 * 4 * (24 + 8) * 2);
}

TEST_CASE("removing a bias of a LayerNorm is noticed") {
  for (const char* name : {"starcoder2", "stablelm"}) {
    const auto& model = family_model(name);
    auto graph = TinyModel(FileImage{family_gguf(model)}).portable().graph;
    for (const auto node : graph.topological_order()) {
      if (graph.op(node) != ir::Op::kLayerNorm) continue;
      const auto bare = graph.add(ir::Op::kLayerNorm, {graph.operand(node, 0), graph.operand(node, 1)},
                                  graph.attrs(node), graph.layer(node));
      graph.replace_uses({node, 0}, {bare, 0});
    }
    CHECK(error_of(model, graph) > kNoticed);
  }
}

TEST_CASE("a missing tensor or key is named, and so is one that the family does not use") {
  const auto refusal = [](const std::string& image) -> std::string {
    try {
      (void)TinyModel(FileImage{image});
    } catch (const Error& error) {
      return error.exit_status() == 3 ? error.line() : "";
    }
    return "built";
  };
  for (const auto& model : family_fixture()["models"])
    for (const auto& [name, recipe] : model["tensors"].items()) {
      // Optional tensors: biases, norms that some models of a family lack, and output.weight (tied to the embedding).
      const auto built = refusal(family_gguf(model, name));
      const bool optional = name.ends_with(".bias") || name == "output.weight" || name == "rope_factors_short.weight" ||
                            name == "rope_freqs.weight" || name.ends_with("attn_norm_2.weight") ||
                            name.ends_with("ffn_norm.weight") || name.ends_with("q_norm.weight") ||
                            name.ends_with("layer_output_scale.weight") ||
                            (model["family"] == "bitnet" && name.ends_with(".scale")) ||
                            (model["family"] == "qwen3moe" && name.ends_with(".scale")) ||
                            (model["family"] == "gemma4" && name.ends_with("attn_v.weight"));  // keys are the values
      INFO(model["name"].get<std::string>() << " without " << name << ": " << built);
      if (!optional) CHECK(built != "built");
    }
  const auto says = [&](Json model, const Json& change, std::initializer_list<const char*> words) {
    model.merge_patch(change);
    const auto line = refusal(family_gguf(model));
    INFO(line);
    for (const char* word : words) CHECK(line.find(word) != std::string::npos);
  };
  says(family_model("qwen2"), {{"keys", {{"attention.sliding_window", 4}}}}, {"attention.sliding_window", "4"});
  says(family_model("qwen3"), {{"keys", {{"logit_scale", 0.5}}}}, {"logit_scale", "0.5"});
  says(family_model("granite"), {{"keys", {{"logit_scale", 1e-40}}}}, {"logit_scale", "out of range"});
  says(family_model("qwen3"), {{"keys", {{"rope.dimension_sections", {2, 1, 1, 0}}}}}, {"rope.dimension_sections"});
  says(family_model("qwen3"), {{"keys", {{"attention.causal", false}}}}, {"attention.causal"});
  says(family_model("qwen3moe"), {{"keys", {{"expert_weights_scale", 2.5}}}}, {"expert_weights_scale"});
  says(family_model("deepseek_v3"), {{"keys", {{"attention.temperature_scale", 0.1}}}},
       {"attention.temperature_scale"});
  says(family_model("ernie4_5_moe"), {{"keys", {{"interleave_moe_layer_step", 2}}}},
       {"interleave_moe_layer_step", "2"});
  says(family_model("glm4moe"), {{"keys", {{"leading_dense_block_count", 4}}}}, {"dense first layers", "4 of 3"});
  says(family_model("hunyuan_dense"), {{"keys", {{"rope.scaling.alpha", 50.0}}}}, {"rope.scaling.alpha", "50"});
  says(family_model("dots1"), {{"keys", {{"expert_gating_func", 3}}}}, {"expert_gating_func", "3"});
  says(family_model("gemma4"), {{"keys", {{"attention.shared_kv_layers", 7}}}}, {"share a KV cache", "7 of 6"});
  says(family_model("gemma4"), {{"keys", {{"attention.shared_kv_layers", 3}}}},
       {"layer 3", "layer 2 2 of 16", "1 heads of 32"});
  says(family_model("gemma4"), {{"keys", {{"attention.shared_kv_layers", 6}}}}, {"layer 0 reads that of layer -2"});
  says(family_model("gemma4"), {{"keys", {{"attention.value_length_swa", 8}}}}, {"value heads of 8"});
  says(family_model("gemma4"), {{"keys", {{"rope.dimension_count_swa", 18}}}}, {"18 of 16"});
  says(family_model("gemma3n"), {{"keys", {{"altup.num_inputs", 3}}}}, {"3 streams"});
  says(family_model("gemma3n"), {{"keys", {{"embedding_length_per_layer_input", 0}}}}, {"per-layer inputs"});
  says(family_model("gemma"), {{"keys", {{"final_logit_softcapping", 30.0}}}}, {"final_logit_softcapping", "30"});
  says(family_model("olmo2"), {{"tensors", {{"blk.*.attn_norm.weight", {{48}, 1.0, 0.4}}}}},
       {"blk.0.attn_norm.weight"});
  says(family_model("qwen2"), {{"tensors", {{"blk.*.attn_q_norm.weight", {{16}, 1.0, 0.4}}}}},
       {"blk.0.attn_q_norm.weight"});
  says(family_model("glm4"), {{"keys", {{"feed_forward_length", 32}}}},
       {"blk.0.ffn_up.weight", "[64, 48]", "[48, 128]"});
  says(family_model("phi3"), {{"keys", {{"attention.head_count_kv", 4}}}}, {"blk.0.attn_qkv.weight", "[192, 48]"});
}
