// Sparse attention from the plan to the logits: long contexts against the interpreter, types of the cache, sequences
// that share a step, passes that may be left out, and plans with inconsistent numbers. make_families.py proves the
// families.

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "support/error.h"
#include "tests/e2e/family_errors.h"

using namespace forge;
using namespace forge::tests;
using ir::Op;

namespace {

constexpr std::size_t kContextBlocks = 32;

/// A family's model with a context of 1024 and so many selected keys or blocks.
TinyModel sparse_model(const char* name, int top_k, int block = 1, int local = 0) {
  FamilyJson json = family_model(name);
  json.merge_patch({{"keys", {{"context_length", 1024}, {"attention.indexer.top_k", top_k}}}});
  if (block > 1)
    json.merge_patch({{"keys", {{"attention.indexer.block_size", block}, {"attention.indexer.local_blocks", local}}}});
  return TinyModel(FileImage{family_gguf(json)});
}

std::vector<std::int32_t> all_blocks() {
  std::vector<std::int32_t> blocks(kContextBlocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  return blocks;
}

/// NMSE of each row, sorted. A few rows may be far off: where two keys' scores nearly tie, rounding decides.
std::vector<double> row_errors(std::span<const float> got, std::span<const float> want, std::size_t rows) {
  const std::size_t vocab = want.size() / rows;
  std::vector<double> errors;
  for (std::size_t row = 0; row < rows; ++row)
    errors.push_back(nmse(got.subspan(row * vocab, vocab), want.subspan(row * vocab, vocab)));
  std::ranges::sort(errors);
  return errors;
}

template <class Step>
Step& step_of(plan::ProgramT& program, Step* (plan::BodyUnion::*as)()) {
  for (const auto& step : program.variants.at(0)->steps)
    if (auto* found = (step->body.*as)(); found != nullptr) return *found;
  FAIL("no such step");
  throw std::logic_error("no such step");
}

}  // namespace

TEST_CASE("sparse attention over a context of several chunks: the interpreter's logits, in steps of any size") {
  const std::size_t count = 330;  // more than one attention chunk of 256
  for (const auto& [name, top_k, block, local] :
       {std::tuple("deepseek32", 40, 1, 0), std::tuple("glm_dsa", 12, 1, 0), std::tuple("minimax_m3", 5, 16, 2)}) {
    INFO(name);
    const auto model = sparse_model(name, top_k, block, local);
    const auto ids = random_ids(count, model.file().vocab, 3);
    const auto executor = model.open(2);
    const auto whole = run_alone(*executor, ids, 64, all_blocks());
    const auto errors = row_errors(whole, model.reference(model.portable().graph, ids, false), count);
    INFO("nmse of rows: median " << errors[count / 2] << ", largest " << errors.back());
    CHECK(errors[count / 2] < 1e-5);  // keys and values are rounded to f16
    CHECK(errors[count * 9 / 10] < 1e-3);
    // The same model with all keys: the selection matters.
    const auto dense = sparse_model(name, 1000, block, local);
    CHECK(row_errors(run_alone(*dense.open(2), ids, 64, all_blocks()), whole, count)[count / 2] > kNoticed);
    for (const std::size_t chunk : {1, 7}) CHECK(run_alone(*executor, ids, chunk, all_blocks()) == whole);
    CHECK(run_alone(*model.open(1), ids, 50, all_blocks()) == whole);
    std::vector<std::string> skip;
    for (const auto* pass : {"fuse_qkv", "fuse_attention", "fuse_epilogues", "merge_qkv", "split_rms_norm"})
      skip.emplace_back(pass);
    const auto plain = row_errors(run_alone(*model.open(1, 4, skip), ids, 64, all_blocks()), whole, count);
    CHECK(plain[count / 2] < 1e-6);
  }
}

TEST_CASE("sparse attention with a Q8_0 cache: near the logits of an F16 one, and the same in steps of any size") {
  FamilyJson json = family_model("deepseek32");
  json.merge_patch({{"keys", {{"context_length", 1024}}}});
  // Q8_0 needs rows of whole blocks of 32 columns: index keys have 16 in the fixture.
  json.merge_patch({{"keys", {{"attention.indexer.key_length", 32}, {"attention.indexer.top_k", 20}}}});
  for (auto& [name, recipe] : json["tensors"].items()) {
    if (name.find("indexer.attn_q_b") != std::string::npos) recipe[0][0] = 96;
    if (name.find("indexer.attn_k") != std::string::npos || name.find("indexer.k_norm") != std::string::npos)
      recipe[0][0] = 32;
  }
  const TinyModel model(FileImage{family_gguf(json)});
  const std::size_t count = 60;
  const auto ids = random_ids(count, model.file().vocab, 4);
  const auto exact = run_alone(*model.open(1), ids, 64, all_blocks());
  const auto executor = model.open(2, 4, {}, codegen::host_target(), DType::kQ8_0);
  const auto rounded = run_alone(*executor, ids, 64, all_blocks());
  const auto errors = row_errors(rounded, exact, count);
  INFO("nmse of rows: " << errors.front() << ", median " << errors[count / 2] << ", largest " << errors.back());
  CHECK(errors[count / 2] < 5e-3);
  CHECK(rounded != exact);
  for (const std::size_t chunk : {1, 13}) CHECK(run_alone(*executor, ids, chunk, all_blocks()) == rounded);
}

TEST_CASE("sparse attention: two sequences in a step get the logits of each alone") {
  for (const auto& [name, top_k, block] : {std::tuple("deepseek32", 6, 1), std::tuple("minimax_m3", 3, 4)}) {
    const auto model = sparse_model(name, top_k, block, 1);
    const auto executor = model.open(2);
    const auto first = random_ids(40, model.file().vocab, 5), second = random_ids(24, model.file().vocab, 6);
    const auto alone =
        std::pair(run_alone(*executor, first, 64, all_blocks()), run_alone(*executor, second, 64, all_blocks()));
    std::vector<std::int32_t> ids = first, positions(40), sequence(40, 0), rows(64);
    ids.insert(ids.end(), second.begin(), second.end());
    std::iota(positions.begin(), positions.end(), 0);
    for (std::int32_t p = 0; p < 24; ++p) positions.push_back(p);
    sequence.resize(64, 1);
    std::iota(rows.begin(), rows.end(), 0);
    const std::vector<std::int32_t> length{40, 24};
    std::vector<std::int32_t> tables;
    for (std::size_t group = 0; group < executor->kv_pool_sizes().size(); ++group)
      tables.insert(tables.end(), {3, 1, 2, 0});
    const auto out = executor->forward({.ids = ids,
                                        .positions = positions,
                                        .sequence = sequence,
                                        .rows = rows,
                                        .kv_length = length,
                                        .block_table = tables,
                                        .table_stride = 2});
    const std::vector<float> both(out.begin(), out.end());
    INFO(name);
    CHECK(std::equal(alone.first.begin(), alone.first.end(), both.begin()));
    CHECK(std::equal(both.begin() + static_cast<std::ptrdiff_t>(alone.first.size()), both.end(), alone.second.begin()));
  }
}

TEST_CASE("glm-dsa: a layer without an indexer keeps the keys that the layer before chose") {
  const auto graph = family_graph(family_model("glm_dsa"));
  std::vector<ir::NodeId> choices;
  for (const auto node : graph.nodes())
    if (graph.op(node) == Op::kAttention) choices.push_back(graph.operands(node).back().node);
  REQUIRE(choices.size() == 3);
  CHECK(choices[0] == choices[1]);
  CHECK(choices[0] != choices[2]);
  for (const auto node : choices) CHECK(graph.op(node) == Op::kSelectKeys);
}

TEST_CASE("every part of an indexer is noticed") {
  const auto changed = [](const char* name, auto change) {
    const auto& model = family_model(name);
    return error_of(model, with_attrs<ir::SelectKeysAttrs>(family_graph(model), Op::kSelectKeys, change));
  };
  for (const char* name : {"deepseek32", "glm_dsa", "minimax_m3"}) {
    const auto& model = family_model(name);
    INFO(name);
    const auto cut = [&](Op op) {  // in what leads to select_keys, and to the store of its keys
      return error_of(model, without(family_graph(model), op, [&](const ir::Graph& graph, ir::NodeId node) {
                        const auto users = graph.users(node);
                        return std::ranges::all_of(users, [&](ir::NodeId user) {
                          return graph.op(user) == Op::kSelectKeys || graph.op(user) == Op::kRope ||
                                 (graph.op(user) == Op::kKvStore && graph.operands(user).size() == 5);
                        });
                      }));
    };
    CHECK(cut(Op::kRope) > kNoticed);
    const auto graph = with_attrs<ir::RopeAttrs>(family_graph(model), Op::kRope, [](auto& rope) {
      rope.mode = rope.mode == ir::RopeMode::kPairs ? ir::RopeMode::kHalves : ir::RopeMode::kPairs;
    });
    CHECK(error_of(model, graph) > kNoticed);
  }
  CHECK(changed("minimax_m3", [](auto& select) { select.local = 0; }) > kNoticed);
  const auto& deepseek = family_model("deepseek32");
  CHECK(error_of(deepseek, without(family_graph(deepseek), Op::kLayerNorm)) > kNoticed);
}

TEST_CASE("files whose indexer's numbers contradict each other are refused in one line") {
  const auto says = [](const char* name, const FamilyJson& keys, std::initializer_list<const char*> words) {
    FamilyJson json = family_model(name);
    json.merge_patch({{"keys", keys}});
    std::string line = "built";
    try {
      (void)family_graph(json);
    } catch (const Error& error) {
      line = error.line();
    }
    INFO(line);
    for (const char* word : words) CHECK(line.find(word) != std::string::npos);
    CHECK(line.find('\n') == std::string::npos);
  };
  says("deepseek32", {{"attention.indexer.key_length", 4}}, {"RoPE dimensions", "8 of 4"});
  says("deepseek32", {{"attention.indexer.key_length", 24}}, {"indexer.attn_q_b.weight", "[72, 20]"});
  says("deepseek32", {{"attention.indexer.head_count", 0}}, {"attention.indexer.head_count"});
  says("deepseek32", {{"attention.indexer.top_k", nullptr}}, {"attention.indexer.top_k"});
  says("deepseek32", {{"attention.indexer.top_k", 1 << 21}}, {"top_k = 2097152"});
  says("deepseek32", {{"attention.q_lora_rank", 0}}, {"attention.q_lora_rank"});
  says("glm_dsa", {{"attention.indexer.types", {0, 1, 1}}}, {"no layer before it", "layer 0"});
  says("glm_dsa", {{"attention.indexer.types", {1, 0}}}, {"attention.indexer.types"});
  says("minimax_m3", {{"attention.indexer.local_blocks", 4}}, {"4 local blocks of 3"});
  says("minimax_m3", {{"attention.indexer.block_size", 0}}, {"attention.indexer.block_size"});
  says("minimax_m3", {{"attention.indexer.key_length", 6}}, {"8 rotary dimensions of 6"});
}

TEST_CASE("sparse attention: a plan with inconsistent numbers is refused") {
  const auto model = sparse_model("minimax_m3", 3, 2, 1);
  CHECK(opening(model, [](auto&) {}).empty());
  const auto says = [&](auto edit, const char* why) {
    const auto line = opening(model, edit);
    INFO(line);
    CHECK(line.find(why) != std::string::npos);
  };
  const auto select = [&](auto edit, const char* why) {
    says([&](plan::ProgramT& p) { edit(step_of<plan::SelectKeysT>(p, &plan::BodyUnion::AsSelectKeys)); }, why);
  };
  select([](auto& s) { s.heads = 0; }, "out of range");
  select([](auto& s) { s.heads = 3; }, "rows overlap");
  select([](auto& s) { s.head_dim = 10; }, "not those of the KV group");
  select([](auto& s) { s.top_k = 0; }, "out of range");
  select([](auto& s) { s.top_k = 1 << 21; }, "out of range");
  select([](auto& s) { s.top_k = 30; }, "rows overlap");
  select([](auto& s) { s.block = 0; }, "out of range");
  select([](auto& s) { s.local = 4; }, "out of range");
  select([](auto& s) { s.tokens = 1 << 20; }, "out of range");
  select([](auto& s) { --s.scratch_bytes; }, "scratch is too small");
  select([](auto& s) { s.scores = 60'000; }, "an operand is missing");
  select([](auto& s) { s.weights = s.q; }, "");
  const auto attention = [&](auto edit, const char* why) {
    says(
        [&](plan::ProgramT& p) {
          for (const auto& step : p.variants.at(0)->steps)
            if (auto* found = step->body.AsAttention(); found != nullptr && found->selected > 0) edit(*found);
        },
        why);
  };
  attention([](auto& a) { a.lists = 3; }, "neither one nor one a KV head");
  attention([](auto& a) { a.selected = 0; }, "out of range");
  attention([](auto& a) { a.selected = 100; }, "rows overlap");
  attention([](auto& a) { a.selected_block = 0; }, "out of range");
  attention([](auto& a) { a.selected_keys = a.q; }, "an operand has type");
}
