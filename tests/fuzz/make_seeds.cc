// Writes the binary and generated seeds into FOLDER/gguf, FOLDER/plan and FOLDER/ir: a small model, small vocabularies,
// plans without their header, and the graphs of tests. The other seeds are written by hand.
// usage: fuzz_seeds FOLDER
// `tools/scripts/fuzz --seeds` runs it after a format has changed; the files are kept in tests/fuzz/corpus.

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "ir/text/text.h"
#include "loader/arch/family.h"
#include "runtime/plan/plan_file.h"
#include "support/error.h"
#include "tests/fuzz/target.h"
#include "tests/ir/every_op.h"
#include "tests/ir/small_llama.h"
#include "tests/runtime/plan_samples.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/split_gguf.h"

namespace {

using namespace forge;
using tests::GgufWriter;

void save(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (!out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()))) throw Error(ErrorCode::kIo, "cannot write");
}

GgufWriter llama_header() {
  GgufWriter w("llama");
  w.add("general.name", "seed").add("llama.block_count", 1U).add("llama.context_length", 64U);
  w.add("llama.embedding_length", 4U).add("llama.feed_forward_length", 4U);
  w.add("llama.attention.head_count", 2U).add("llama.attention.head_count_kv", 1U);
  w.add("llama.rope.dimension_count", 2U).add("llama.rope.freq_base", 10000.0F);
  w.add("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  return w;
}

void add_weights(GgufWriter& w) {
  const auto add = [&](const char* name, const std::vector<std::int64_t>& dims) {
    std::size_t elems = 1;
    for (const auto dim : dims) elems *= static_cast<std::size_t>(dim);
    w.add_f32(name, dims, std::vector<float>(elems, 0.5F));
  };
  add("token_embd.weight", {4, 6});
  add("output_norm.weight", {4});
  add("blk.0.attn_norm.weight", {4});
  add("blk.0.ffn_norm.weight", {4});
  add("blk.0.attn_q.weight", {4, 4});
  add("blk.0.attn_k.weight", {4, 2});
  add("blk.0.attn_v.weight", {4, 2});
  add("blk.0.attn_output.weight", {4, 4});
  add("blk.0.ffn_gate.weight", {4, 4});
  add("blk.0.ffn_up.weight", {4, 4});
  add("blk.0.ffn_down.weight", {4, 4});
}

void write_gguf(const std::filesystem::path& folder) {
  GgufWriter model = llama_header();
  model.add("tokenizer.ggml.model", "llama").add("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "a", "b", "ab"});
  model.add("tokenizer.ggml.scores", std::vector<float>{0, 0, 0, -1, -2, -3});
  model.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{2, 3, 3, 1, 1, 1});
  add_weights(model);
  const std::string bytes = model.bytes();
  (void)loader::build_model(
      loader::Gguf::from(std::as_bytes(std::span(bytes))));  // the seed must be a model that builds
  save(folder / "model", bytes);

  const auto parts = tests::split_gguf(bytes, {2, 4, 7});
  const std::string next(fuzz::kNextPart);
  save(folder / "split", parts[0] + next + parts[1] + next + parts[2]);

  GgufWriter scaled = llama_header();
  scaled.add("llama.rope.scaling.type", "yarn").add("llama.rope.scaling.factor", 4.0F);
  scaled.add("llama.rope.scaling.original_context_length", 16U);
  scaled.alignment = 8;
  add_weights(scaled);
  save(folder / "scaled", scaled.bytes());

  GgufWriter values("none");
  values.add("u8", std::uint8_t{1}).add("i8", std::int8_t{-1}).add("u16", std::uint16_t{2});
  values.add("i64", std::int64_t{-5}).add("f64", 2.5).add("flag", true).add("text", "ä");
  values.add("numbers", std::vector<float>{1, NAN, INFINITY}).add("texts", {"a", "", "b"});
  values.add("ints", std::vector<std::int32_t>{1, -1});
  save(folder / "values", values.bytes());

  GgufWriter bpe("llama");
  bpe.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", "llama-bpe");
  std::vector<std::string> tokens{"a",  "b",  "Ġ", "ab",
                                  "Ġa", "<s>"};  // plus the rest of ASCII, which a byte-level vocabulary must have
  for (char c = '!'; c <= '~'; ++c)
    if (c != 'a' && c != 'b') tokens.emplace_back(1, c);
  std::vector<std::int32_t> types(tokens.size(), 1);
  types[5] = 3;
  bpe.add("tokenizer.ggml.tokens", tokens).add("tokenizer.ggml.merges", {"a b", "Ġ a"});
  bpe.add("tokenizer.ggml.token_type", types);
  bpe.add("tokenizer.ggml.bos_token_id", 5U).add("tokenizer.ggml.add_bos_token", true);
  save(folder / "bpe", bpe.bytes());

  // A charsmap with one key, "A" -> "b".
  GgufWriter unigram("llama");
  unigram.add("tokenizer.ggml.model", "t5").add("tokenizer.ggml.tokens", {"<pad>", "</s>", "<unk>", "▁", "a", "▁a"});
  unigram.add("tokenizer.ggml.scores", std::vector<float>{0, 0, 0, -1, -2, -3});
  unigram.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{3, 3, 2, 1, 1, 1});
  unigram.add("tokenizer.ggml.add_space_prefix", true).add("tokenizer.ggml.remove_extra_whitespaces", true);
  std::vector<std::uint32_t> map(67);
  map[0] = 66 * 4;
  map[1] = 1U << 10;
  map[1 + (1 ^ 'A')] = 'A' | 0x100 | 1U << 10;
  map[1 + 'A'] = 1U << 31;
  std::string charsmap;
  for (std::size_t i = 0; i < map.size(); ++i) charsmap += GgufWriter::raw(map[i]);
  charsmap.append("b\0", 2);
  unigram.add("tokenizer.ggml.precompiled_charsmap", std::vector<std::uint8_t>(charsmap.begin(), charsmap.end()));
  save(folder / "unigram", unigram.bytes());

  GgufWriter wordpiece("llama");
  wordpiece.add("tokenizer.ggml.model", "bert").add("tokenizer.ggml.tokens", {"[PAD]", "[UNK]", "▁a", "b", "[CLS]"});
  wordpiece.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{3, 3, 1, 1, 3});
  wordpiece.add("tokenizer.ggml.unknown_token_id", 1U).add("tokenizer.ggml.cls_token_id", 4U);
  save(folder / "wordpiece", wordpiece.bytes());
}

void write_plans(const std::filesystem::path& folder) {
  for (const auto& [name, steps] : {std::pair("empty", 0), std::pair("small", 1)}) {
    const auto image = plan::serialize_plan(test::sample_plan(steps, 20));
    const auto payload = std::span(image).subspan(plan::kHeaderBytes);
    save(folder / name, {reinterpret_cast<const char*>(payload.data()), payload.size()});
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) throw Error(ErrorCode::kUsage, "one folder, please", {}, "fuzz_seeds FOLDER");
  const std::filesystem::path folder = argv[1];
  write_gguf(folder / "gguf");
  write_plans(folder / "plan");
  const ir::test::SmallLlama small{.layers = 1};
  save(folder / "ir" / "llama", ir::print(small.build()));
  save(folder / "ir" / "every_op", ir::print(ir::test::every_op()));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "fuzz_seeds: %s\n", error.what());
  return 1;
}
