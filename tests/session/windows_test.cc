// Sliding windows on whole (tiny) models: the logits are bit-identical whether the window's blocks are released during
// the run, or everything is kept and masked.

#include <catch2/catch.hpp>

#include <numeric>

#include "session/sequences.h"
#include "session/state_report.h"
#include "tests/e2e/family_models.h"

namespace forge::session {
namespace {

using namespace forge::tests;

constexpr std::size_t kTokens = 700;

/// A model of the fixture with another window and a context of kTokens.
TinyModel model_of(const char* name, int window) {
  FamilyJson model = family_model(name);
  model.merge_patch({{"keys", {{"attention.sliding_window", window}, {"context_length", 1024}}}});
  return TinyModel(FileImage{family_gguf(model)});
}

/// Size of the KV pool of the layers with a window.
runtime::KvPoolSize windowed_room(const runtime::Executor& executor) {
  const auto rooms = executor.kv_pool_sizes();
  return *std::ranges::find_if(rooms, [](const auto& room) { return room.window > 0; });
}

/// Logits [ids, vocab] of a run that feeds `chunk` tokens per step and releases the window's blocks.
std::vector<float> run_released(runtime::Executor& executor, const std::vector<std::int32_t>& ids, std::size_t chunk) {
  Sequences sequences(executor, 1024, 1);
  std::vector<float> logits;
  for (std::size_t at = 0; at < ids.size(); at += chunk) {
    const auto part = std::span(ids).subspan(at, std::min(chunk, ids.size() - at));
    sequences.prefill(0, part, 0,
                      [&](std::span<const float> rows) { logits.insert(logits.end(), rows.begin(), rows.end()); });
  }
  return logits;
}

TEST_CASE(
    "beyond the window, prefill in any chunks and decode give the bits of a run that keeps and masks everything") {
  for (const auto& [name, window] : {std::pair("gemma2", 40), std::pair("gemma3", 32), std::pair("gpt_oss", 70),
                                     std::pair("phi3", 33), std::pair("gemma3", 1)}) {
    INFO(name << ", window " << window);
    const auto model = model_of(name, window);
    const auto ids = random_ids(kTokens, model.file().vocab, 3);
    const auto roomy = model.open(2, 16);  // its pools hold a whole sequence in every group
    std::vector<std::int32_t> all(32);
    std::iota(all.begin(), all.end(), 0);
    REQUIRE(windowed_room(*roomy).blocks >= all.size());
    const auto masked = run_alone(*roomy, ids, 16, all);

    const auto executor = model.open(2, 1);
    const auto room = windowed_room(*executor);
    CHECK(room.window == static_cast<std::size_t>(window));
    CHECK(room.blocks < all.size());
    for (const std::size_t chunk : {std::size_t{1}, std::size_t{37}, std::size_t{160}, kTokens})
      CHECK(run_released(*executor, ids, chunk) == masked);
  }
}

TEST_CASE("a longer window gives other logits") {  // proves that the comparison above is sensitive
  const auto narrow = model_of("gemma2", 40), wide = model_of("gemma2", 41);
  const auto ids = random_ids(200, narrow.file().vocab, 3);
  CHECK(run_released(*narrow.open(), ids, 200) != run_released(*wide.open(), ids, 200));
}

TEST_CASE("the memory report counts the window's positions and one block, and a step's own tokens once") {
  const auto model = model_of("gemma3", 64);
  const auto executor = model.open(1, 1);
  const auto report = state_report(executor->program(), 1024, 1);
  REQUIRE(report.kv.size() == 2);
  const auto& local = report.kv[0].window > 0 ? report.kv[0] : report.kv[1];
  const auto& global = report.kv[0].window > 0 ? report.kv[1] : report.kv[0];
  CHECK((local.layers == 6 && global.layers == 1));
  CHECK((local.blocks_sequence == 64 / 32 + 1 && global.blocks_sequence == 1024 / 32));
  CHECK((local.blocks == 3 + 512 / 32 && global.blocks == 1024 / 32));
  CHECK(executor->memory_requirements().kv == local.bytes + global.bytes);
  CHECK(executor->memory_requirements().kv_windows == local.bytes);
  CHECK(state_report_text(report).find("window of 64 tokens: 3 blocks of 32 tokens per sequence") != std::string::npos);
}

TEST_CASE("the memory report counts recurrent state independent of the context, and shared rows of values once") {
  const auto model = model_of("gemma3", 64);
  auto program = model.open(1, 1)->program();
  program.recurrent_groups = {plan::RecurrentGroup(3, 1000), plan::RecurrentGroup(2, 24)};
  program.batch_max = 2;
  CHECK(runtime::CpuExecutor::memory_need_of(program, 0).recurrent == 2 * (3000 + 48));
  auto& group = program.kv_groups[0];
  group = plan::KvGroup(group.layers(), 1, 576, 512, group.block_tokens(), 0, group.block_bytes(), group.dtype(), true);
  const auto report = state_report(program, 1024, 4);
  REQUIRE(report.recurrent.size() == 2);
  CHECK((report.recurrent[0].bytes_sequence == 3000 && report.recurrent[0].bytes == 12000));
  CHECK((report.recurrent[1].bytes_sequence == 48 && report.recurrent[1].bytes == 192));
  const auto text = state_report_text(report);
  CHECK(text.find("recurrent state of 3 layers: 2.9 KiB per slot, 11.7 KiB in total") != std::string::npos);
  CHECK(text.find("1 heads of 576, of which the first 512 columns are the values, whole context") != std::string::npos);
  program.recurrent_groups[1] = plan::RecurrentGroup(2, 0);
  CHECK_THROWS_WITH(state_report(program, 1024, 4), Catch::Contains("recurrent state is broken"));
}

TEST_CASE("several sequences are prefilled one after the other and decode together, each as in a single run") {
  const auto model = model_of("gemma3", 40);
  const auto executor = model.open(2, 4);
  const auto ids = random_ids(620, model.file().vocab, 8);
  Sequences all(*executor, 1024, 4);
  for (std::size_t s = 0; s < 4; ++s) (void)all.prefill(s, std::span(ids).first(600 + s));
  std::vector<float> together;
  for (std::size_t i = 0; i < 16; ++i) {
    const std::int32_t next[] = {ids[600 + i], ids[601 + i], ids[602 + i], ids[603 + i]};
    const auto rows = all.decode(next);
    together.assign(rows.begin(), rows.end());
  }
  for (std::size_t s = 0; s < 4; ++s) {
    Sequences alone(*executor, 1024, 1);
    const auto row = alone.prefill(0, std::span(ids).first(616 + s));
    CHECK(std::ranges::equal(row, std::span(together).subspan(s * row.size(), row.size())));
  }
}

TEST_CASE("a sequence continues from where it was trimmed to, or from the start if its windows were released") {
  const auto model = model_of("gemma2", 40);
  const auto executor = model.open(2, 1);
  const auto ids = random_ids(300, model.file().vocab, 4);
  const auto whole = run_released(*executor, ids, 300);
  Sequences sequences(*executor, 1024, 1);
  (void)sequences.prefill(0, ids);
  for (const std::int64_t wanted : {299, 295, 20}) {
    const auto left = sequences.trim(0, wanted);
    CHECK((left == wanted || left == 0));
    const auto last = sequences.prefill(0, std::span(ids).subspan(static_cast<std::size_t>(left)));
    CHECK(std::ranges::equal(last, std::span(whole).last(last.size())));
  }
  (void)sequences.decode(std::span(ids).first(1));  // the blocks of the last step's tokens are released
  CHECK(sequences.trim(0, 20) == 0);
}

}  // namespace
}  // namespace forge::session
