// Start-up time of the model file and its tokenizer, and the speed of encoding and of chat templates.
//   FORGE_TEST_MODEL=model.gguf FORGE_TEXT=text.txt loader_tok_bench
// Without FORGE_TEXT the text is the model's vocabulary spelled out, which repeats less than prose does.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "loader/gguf/gguf.h"
#include "support/error.h"
#include "text/chat/chat.h"
#include "text/tokenizer/tokenizer.h"

using namespace forge::loader;

namespace {

const char* g_model = nullptr;

void gguf_open(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Gguf::open(g_model).tensors().size());
}

void gguf_identity(benchmark::State& state) {
  const Gguf gguf = Gguf::open(g_model);
  for (auto _ : state) benchmark::DoNotOptimize(gguf.identity());
}

void tokenizer_open(benchmark::State& state) {
  const Gguf gguf = Gguf::open(g_model);
  for (auto _ : state) benchmark::DoNotOptimize(forge::text::Tokenizer::open(gguf)->vocab_size());
}

std::string text_of(const forge::text::Tokenizer& tokenizer) {
  if (const char* path = std::getenv("FORGE_TEXT")) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  std::string text;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) text += tokenizer.decode_piece(id);
  return text;
}

void encode(benchmark::State& state) {
  const Gguf gguf = Gguf::open(g_model);
  const auto tokenizer = forge::text::Tokenizer::open(gguf);
  const std::string text = text_of(*tokenizer);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer->encode(text).size());
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
}

/// One word of n letters, to check for linear time: ten times the letters may take at most twelve times as long.
void encode_one_word(benchmark::State& state) {
  const Gguf gguf = Gguf::open(g_model);
  const auto tokenizer = forge::text::Tokenizer::open(gguf);
  const std::string text(static_cast<std::size_t>(state.range(0)), 'a');
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer->encode(text).size());
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
}

/// The file's chat template with a conversation of 200 messages.
void render_chat(benchmark::State& state) {
  const Gguf gguf = Gguf::open(g_model);
  const auto source = gguf.find<std::string_view>("tokenizer.chat_template");
  if (!source) return state.SkipWithError("the file has no chat template");
  const auto compiled = forge::text::ChatTemplate::parse(*source);
  std::string json = R"({"add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "messages": [)";
  for (int i = 0; i < 200; ++i)
    json += std::string(i == 0 ? "" : ", ") + R"({"role": ")" + (i % 2 == 0 ? "user" : "assistant") +
            R"(", "content": "A sentence or two, as people write them to each other. This is the second."})";
  const auto request = forge::text::parse_chat_request(json + "]}");
  for (auto _ : state) benchmark::DoNotOptimize(forge::text::render_chat(compiled, request).size());
}

BENCHMARK(render_chat)->Unit(benchmark::kMillisecond);
BENCHMARK(gguf_open)->Unit(benchmark::kMicrosecond);
BENCHMARK(gguf_identity)->Unit(benchmark::kMicrosecond);
BENCHMARK(tokenizer_open)->Unit(benchmark::kMicrosecond);
BENCHMARK(encode)->Unit(benchmark::kMillisecond);
BENCHMARK(encode_one_word)->Arg(1'000)->Arg(10'000)->Arg(100'000)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  g_model = std::getenv("FORGE_TEST_MODEL");
  if (g_model == nullptr) {
    std::fputs("set FORGE_TEST_MODEL to a GGUF file with a tokenizer\n", stderr);
    return EXIT_FAILURE;
  }
  try {
    benchmark::RunSpecifiedBenchmarks();
  } catch (const forge::Error& error) {
    std::fprintf(stderr, "%s\n", error.line().c_str());
    return error.exit_status();
  }
  return EXIT_SUCCESS;
}
