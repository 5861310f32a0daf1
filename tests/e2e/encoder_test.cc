// Encoders in the engine, on a tiny BERT: whole texts share steps, the rows are bit-identical in any batch and those of
// the session, and a reranker's head gives the score that its formula gives.

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "runtime/engine/engine_core.h"
#include "tests/e2e/tiny_model.h"

using namespace forge;
using namespace forge::tests;

namespace {

constexpr std::int64_t kBertWidth = 64, kBertContext = 96, kBertVocab = 90, kBertFfn = 96, kBertHeads = 4;

/// A reranker's head; empty parts are missing.
struct RankHead {
  std::vector<float> dense, dense_bias, out, out_bias;
};

std::vector<float> random_floats(std::int64_t count, float deviation, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (auto& value : values) value = normal(engine);
  return values;
}

std::string bert_gguf(std::uint32_t pooling, const RankHead& head = {}) {
  GgufWriter w("bert");
  w.add("bert.block_count", 2u).add("bert.context_length", 96u).add("bert.embedding_length", 64u);
  w.add("bert.feed_forward_length", 96u).add("bert.attention.head_count", 4u);
  w.add("bert.attention.layer_norm_epsilon", 1e-6F).add("bert.attention.causal", false);
  w.add("bert.pooling_type", pooling).add("tokenizer.ggml.token_type_count", 2u);
  unsigned seed = 7;
  const auto tensor = [&](const std::string& name, std::int64_t cols, std::int64_t rows, float deviation,
                          float mean = 0) {
    auto values = random_floats(cols * std::max<std::int64_t>(rows, 1), deviation, ++seed);
    for (auto& value : values) value += mean;
    w.add_f32(name, rows == 0 ? std::vector{cols} : std::vector{cols, rows}, values);
  };
  const auto linear = [&](const std::string& stem, std::int64_t cols, std::int64_t rows) {
    tensor(stem + ".weight", cols, rows, 0.2F);
    tensor(stem + ".bias", rows, 0, 0.1F);
  };
  const auto norm = [&](const std::string& stem) {
    tensor(stem + ".weight", kBertWidth, 0, 0.2F, 1);
    tensor(stem + ".bias", kBertWidth, 0, 0.1F);
  };
  tensor("token_embd.weight", kBertWidth, kBertVocab, 1);
  tensor("token_types.weight", kBertWidth, 2, 0.5F);
  tensor("position_embd.weight", kBertWidth, kBertContext, 0.5F);
  norm("token_embd_norm");
  for (int layer = 0; layer < 2; ++layer) {
    const auto stem = fmt::format("blk.{}.", layer);
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) linear(stem + name, kBertWidth, kBertWidth);
    norm(stem + "attn_output_norm");
    linear(stem + "ffn_up", kBertWidth, kBertFfn);
    linear(stem + "ffn_down", kBertFfn, kBertWidth);
    norm(stem + "layer_output_norm");
  }
  if (!head.dense.empty()) w.add_f32("cls.weight", {kBertWidth, kBertWidth}, head.dense);
  if (!head.dense_bias.empty()) w.add_f32("cls.bias", {kBertWidth}, head.dense_bias);
  if (!head.out.empty()) w.add_f32("cls.output.weight", {kBertWidth, std::ssize(head.out) / kBertWidth}, head.out);
  if (!head.out_bias.empty()) w.add_f32("cls.output.bias", {std::ssize(head.out_bias)}, head.out_bias);
  return w.bytes();
}

std::unique_ptr<runtime::CpuExecutor> open_bert(const TinyModel& model, std::int64_t batch) {
  std::shared_ptr<const plan::ProgramT> program =
      codegen::compile_program(model.portable().graph, model.file(), codegen::host_target(),
                               {.context = kBertContext, .batch_max = batch, .hidden = true});
  runtime::SpanWeightSource source("tiny", model.bytes());
  return std::make_unique<runtime::CpuExecutor>(std::move(program), source, runtime::ExecutorOptions{.threads = 2});
}

struct Embedded {
  std::vector<std::vector<float>> rows;
  std::uint64_t steps = 0, fed = 0;
};

/// The pooled row of each text, when all are submitted at once.
Embedded embed_all(runtime::Executor& executor, const std::vector<std::vector<std::int32_t>>& texts,
                   engine::OutputKind kind, const engine::EngineOptions& options = {}) {
  engine::Time now{};
  engine::EngineCore core(executor, options, [&] { return now += std::chrono::milliseconds(1); });
  std::vector<std::shared_ptr<engine::Stream>> streams;
  for (const auto& text : texts) {
    auto prepared = core.prepare({.prompt = text, .wants = kind});
    REQUIRE(prepared.has_value());
    streams.push_back(engine::EngineCore::stream_of(*prepared));
    REQUIRE(core.submit(*std::move(prepared)).has_value());
  }
  while (core.step()) core.scheduler().audit();
  Embedded out{.rows = {}, .steps = core.metrics().steps, .fed = core.metrics().fed_tokens};
  for (const auto& stream : streams)
    while (auto event = stream->next({})) out.rows.push_back(std::move(event->row));
  return out;
}

std::vector<std::vector<std::int32_t>> some_texts() {
  std::vector<std::vector<std::int32_t>> texts;
  for (unsigned i = 0; i < 12; ++i) texts.push_back(random_ids(1 + i * 83 % 96, kBertVocab, 30 + i));
  return texts;
}

}  // namespace

TEST_CASE("an encoder's rows are bit-identical alone and in any batch, and texts share steps") {
  const TinyModel model(FileImage{bert_gguf(1)});
  const auto executor = open_bert(model, 8);
  const auto texts = some_texts();
  std::size_t all = 0;
  for (const auto& text : texts) all += text.size();
  for (const auto kind : {engine::OutputKind::kMeanRow, engine::OutputKind::kFirstRow, engine::OutputKind::kLastRow}) {
    std::vector<std::vector<float>> alone;
    for (const auto& text : texts) {
      alone.push_back(embed_all(*executor, {text}, kind).rows.at(0));
      const auto rows = model.reference(model.portable().graph, text, false);
      std::vector<float> pooled(kBertWidth);
      for (std::size_t t = 0; t < text.size(); ++t) {
        if (kind == engine::OutputKind::kFirstRow && t > 0) break;
        if (kind == engine::OutputKind::kLastRow && t + 1 < text.size()) continue;
        for (std::size_t c = 0; c < pooled.size(); ++c)
          pooled[c] += rows[t * pooled.size() + c] /
                       (kind == engine::OutputKind::kMeanRow ? static_cast<float>(text.size()) : 1);
      }
      CHECK(nmse(alone.back(), pooled) < 3e-3);
    }
    const auto together = embed_all(*executor, texts, kind);
    CHECK(together.rows == alone);
    CHECK((together.steps == 2 && together.fed == all));  // 8 and 4 of 12 texts
    // Steps of 96 tokens: more of them, and each still has whole texts only.
    const auto narrow = embed_all(*executor, texts, kind, {.step_tokens = 96});
    CHECK(narrow.rows == alone);
    CHECK((narrow.steps > all / 96 && narrow.steps < texts.size() && narrow.fed == all));
  }
}

TEST_CASE("what an encoder cannot do is refused with the numbers") {
  const TinyModel model(FileImage{bert_gguf(2)});
  const auto executor = open_bert(model, 4);
  const auto refusal = [&](engine::Request request, const engine::EngineOptions& options = {}) {
    engine::EngineCore core(*executor, options, [] { return engine::Time{}; });
    const auto prepared = core.prepare(std::move(request));
    REQUIRE_FALSE(prepared.has_value());
    return prepared.error();
  };
  const auto long_text = random_ids(97, kBertVocab, 3);
  const auto text = refusal({.prompt = {1, 2}, .max_tokens = 4});
  CHECK((text.kind == engine::RefusalKind::kInvalid &&
         text.message == "the model is an encoder, which generates no text"));
  const auto context = refusal({.prompt = long_text, .wants = engine::OutputKind::kFirstRow});
  CHECK((context.kind == engine::RefusalKind::kTooLong && context.asked == 97 && context.limit == 96));
  CHECK(context.message == "an input of 97 tokens does not fit into the context of 96");
  const auto step =
      refusal({.prompt = random_ids(50, kBertVocab, 3), .wants = engine::OutputKind::kMeanRow}, {.step_tokens = 40});
  CHECK((step.kind == engine::RefusalKind::kTooLong && step.asked == 50 && step.limit == 40));
  CHECK(step.message == "an input of 50 tokens does not fit into one step of 40, as an encoder needs");
}

TEST_CASE("a reranker's head: classifier(tanh(dense(first row))), either part of it, or an error") {
  const RankHead whole{.dense = random_floats(kBertWidth * kBertWidth, 0.2F, 101),
                       .dense_bias = random_floats(kBertWidth, 0.3F, 102),
                       .out = random_floats(kBertWidth, 0.3F, 103),
                       .out_bias = random_floats(1, 1, 104)};
  RankHead flat = whole;
  flat.dense.clear();
  flat.dense_bias.clear();
  const TinyModel plain(FileImage{bert_gguf(2)});
  const auto texts = some_texts();
  const auto rows = embed_all(*open_bert(plain, 8), texts, engine::OutputKind::kFirstRow).rows;
  for (const auto& head : {whole, flat}) {
    const TinyModel model(FileImage{bert_gguf(4, head)});
    const auto executor = open_bert(model, 8);
    REQUIRE(executor->hidden_width() == 1);
    const auto scores = embed_all(*executor, texts, engine::OutputKind::kFirstRow).rows;
    std::vector<float> got, expected;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      double score = head.out_bias[0];
      for (std::size_t n = 0; n < head.out.size(); ++n) {
        double x = head.dense.empty() ? static_cast<double>(rows[i][n]) : static_cast<double>(head.dense_bias[n]);
        for (std::size_t k = 0; k < head.out.size() && !head.dense.empty(); ++k)
          x += static_cast<double>(head.dense[n * head.out.size() + k]) * static_cast<double>(rows[i][k]);
        score += static_cast<double>(head.out[n]) * (head.dense.empty() ? x : std::tanh(x));
      }
      expected.push_back(static_cast<float>(score));
      got.push_back(scores[i].at(0));
      CHECK(embed_all(*executor, {texts[i]}, engine::OutputKind::kFirstRow).rows.at(0) == scores[i]);
    }
    CHECK(nmse(got, expected) < 1e-4);
  }
  const auto refused = [](const RankHead& head) {
    try {
      const TinyModel model(FileImage{bert_gguf(4, head)});
    } catch (const Error& error) {
      return error.line();
    }
    return std::string();
  };
  CHECK_THAT(refused({}), Catch::Contains("a rank head with 64 outputs"));
  RankHead two = whole;
  two.out = random_floats(2 * kBertWidth, 0.3F, 105);
  two.out_bias = random_floats(2, 1, 106);
  CHECK_THAT(refused(two), Catch::Contains("a rank head with 2 outputs"));
}
