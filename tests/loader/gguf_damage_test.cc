// Damaged GGUF files: every damage gives one clean error line, never a crash, a hang or an absurd allocation. Model
// files are downloads, so the reader must treat them as hostile.

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <random>

#include "loader/gguf/gguf.h"
#include "support/error.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_dir.h"
#include "text/tokenizer/tokenizer.h"

using namespace forge;
using loader::Gguf;
using tests::GgufWriter;

namespace {

template <class T>
std::string raw(T value) {
  return GgufWriter::raw(value);
}

/// A valid file with a bit of everything: 3 tensors and a BPE vocabulary.
GgufWriter sound() {
  GgufWriter w("llama");
  w.add("llama.block_count", 2U).add("general.name", "tiny").add("flag", true);
  w.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", "gpt-2");
  std::vector<std::string> tokens{"a", "b", "ab", "</s>",
                                  "Ġ"};  // plus the rest of ASCII, which a byte-level vocabulary must have
  for (char c = '!'; c <= '~'; ++c)
    if (c != 'a' && c != 'b') tokens.emplace_back(1, c);
  std::vector<std::int32_t> types(tokens.size(), 1);
  types[3] = 3;
  w.add("tokenizer.ggml.tokens", tokens).add("tokenizer.ggml.merges", {"a b"});
  w.add("tokenizer.ggml.token_type", types).add("tokenizer.ggml.eos_token_id", 3U);
  w.add_f32("one", {4, 2}, std::vector<float>(8)).add_f32("two", {16}, std::vector<float>(16));
  w.add_tensor("three", {32, 2}, DType::kQ4_1, std::vector<std::byte>(40));
  return w;
}

/// The valid file with `count` bytes replaced by `with`, starting `skip` bytes after the first occurrence of `mark`.
std::string patched(std::string_view mark, std::size_t skip, std::string_view with) {
  std::string bytes = sound().bytes();
  const std::size_t at = bytes.find(mark);
  REQUIRE(at != std::string::npos);
  return bytes.replace(at + skip, with.size(), with);
}

/// The valid file's metadata, followed by the tensor table that `add` writes.
std::string with_tensor(const std::function<void(GgufWriter&)>& add) {
  GgufWriter w("llama");
  w.add_f32("one", {16}, std::vector<float>(16));
  add(w);
  return w.bytes();
}

std::string with_entry(std::uint32_t type, std::string_view body) {
  return GgufWriter("llama").entry("bad", type, body).bytes();
}

struct Damage {
  const char* name;
  std::string bytes;
  const char* says;  // text that the error line must contain
};

std::vector<Damage> damaged_headers() {
  const std::string good = sound().bytes();
  const auto u32 = [](std::uint32_t v) { return raw(v); };
  const auto u64 = [](std::uint64_t v) { return raw(v); };
  return {
      {"one byte", "G", "not a GGUF file"},
      {"another format", "PK\x03\x04 and so on", "ZIP archive"},
      {"a Git LFS pointer", "version https://git-lfs.github.com/spec/v1\n", "git lfs pull"},
      {"an older format", "tjgg\3\0\0\0", "GGUF's predecessor"},
      {"a web page", "<!DOCTYPE html>", "HTML"},
      {"magic alone", good.substr(0, 4), "the file ends inside the version"},
      {"version 0", patched("GGUF", 4, u32(0)), "GGUF version 0"},
      {"version 1", patched("GGUF", 4, u32(1)), "GGUF version 1"},
      {"version 4", patched("GGUF", 4, u32(4)), "GGUF version 4"},
      {"big-endian", patched("GGUF", 4, std::string("\0\0\0\3", 4)), "big-endian (version 3)"},
      {"no counts", good.substr(0, 12), "the file ends inside the tensor count"},
      {"absurd tensor count", patched("GGUF", 8, u64(UINT64_MAX)), "states 18446744073709551615 tensors"},
      {"large tensor count", patched("GGUF", 8, u64(good.size())), "tensors"},
      {"absurd metadata count", patched("GGUF", 16, u64(std::uint64_t{1} << 40)), "metadata entries"},
      {"one tensor too many", patched("GGUF", 8, u64(4)), "tensor 3"},
      {"absurd key length", patched("GGUF", 24, u64(UINT64_MAX)), "ends inside metadata key 0"},
      {"empty key", patched("GGUF", 24, u64(0)), "metadata key 0 has 0 bytes"},
      {"a key of 64 KiB", GgufWriter("x").add(std::string(65536, 'k'), 1).bytes(), "65536 bytes"},
      {"the same key twice", sound().add("flag", true).bytes(), "metadata key 'flag' occurs twice"},
      {"unknown value type", with_entry(13, u64(0)), "unknown value type 13"},
      {"absurd value type", with_entry(UINT32_MAX, u64(0)), "unknown value type 4294967295"},
      {"a bool of 2", with_entry(7, "\2"), "neither 0 nor 1"},
      {"a bool array with a 3", with_entry(9, u32(7) + u64(2) + "\1\3"), "neither 0 nor 1"},
      {"absurd string length", with_entry(8, u64(INT64_MAX)), "ends inside metadata key 'bad'"},
      {"unknown element type", with_entry(9, u32(99) + u64(1)), "unknown value type 99"},
      {"absurd array count", with_entry(9, u32(4) + u64(UINT64_MAX / 2)), "only 0 bytes of the file are left"},
      {"absurd string array", with_entry(9, u32(8) + u64(1000) + std::string(100, '\0')), "states 1000 elements"},
      {"a string array that runs out", with_entry(9, u32(8) + u64(2) + u64(0) + u64(9) + "short"), "ends inside"},
      {"arrays without end",
       [&] {
         std::string body;
         for (int i = 0; i < 1000; ++i) body += u32(9) + u64(1);
         return with_entry(9, body);
       }(),
       "nests arrays deeper"},
  };
}

std::vector<Damage> damaged_tensors() {
  const auto alignment = [](std::uint32_t v) {
    return GgufWriter("x").add("general.alignment", v).add("padding", std::string(64, ' ')).bytes();
  };
  const auto row = [](std::string_view name, const std::vector<std::int64_t>& dims, std::uint32_t type,
                      std::uint64_t offset) {
    return with_tensor([&](GgufWriter& w) { w.add_tensor_row(name, dims, type, offset); });
  };
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  return {
      {"alignment 0", alignment(0), "general.alignment is 0"},
      {"alignment 48", alignment(48), "general.alignment is 48"},
      {"alignment 4", alignment(4), "general.alignment is 4"},
      {"alignment 2^31", alignment(1U << 31), "general.alignment is 2147483648"},
      {"alignment as text", GgufWriter("x").add("general.alignment", "32").bytes(), "holds string '32'"},
      {"no dimensions", row("t", {}, 0, 64), "has 0 dimensions"},
      {"five dimensions", row("t", {1, 1, 1, 1, 1}, 0, 64), "has 5 dimensions"},
      {"a dimension of 0", row("t", {4, 0}, 0, 64), "it has no elements"},
      {"a negative dimension", row("t", {-1}, 0, 64), "the size overflows"},
      {"dimensions that overflow", row("t", {kHuge, 4}, 0, 64), "the size overflows"},
      {"a product that overflows", row("t", {1 << 30, 1 << 30, 1 << 30}, 0, 64), "the size overflows"},
      {"unknown element type", row("weird", {4}, 77, 64), "tensor 'weird' has the unknown element type 77"},
      {"a withdrawn element type", row("t", {32}, 31, 64), "withdrawn"},
      {"forge's own element type", row("t", {32}, 128, 64), "unknown element type 128"},
      {"half a block", row("t", {48}, 8, 64), "packs 32 elements a block"},
      {"an empty name", row("", {4}, 0, 64), "a name of 0 bytes"},
      {"a long name", row(std::string(65, 'n'), {4}, 0, 64), "a name of 65 bytes"},
      {"the same name twice", row("one", {4}, 0, 64), "tensor 'one' occurs twice"},
      {"an offset out of line", row("t", {4}, 0, 4), "not a multiple of 32"},
      {"an overlap", row("t", {4}, 0, 32), "tensors 'one' and 't' overlap"},
      {"the same bytes twice", row("t", {16}, 0, 0), "overlap"},
      {"past the end", row("t", {4}, 0, 64), "past the end of the file"},
      {"an absurd offset", row("t", {4}, 0, UINT64_MAX - 31), "past the end of the file"},
      {"an absurd size", row("t", {std::int64_t{1} << 50}, 0, 64), "past the end of the file"},
  };
}

GgufWriter vocabulary(std::string_view model) {
  return GgufWriter("x").add("tokenizer.ggml.model", model);
}

std::vector<Damage> damaged_vocabularies() {
  const auto bpe = [](const std::function<void(GgufWriter&)>& add) {
    auto w = vocabulary("gpt2");
    add(w);
    return w.bytes();
  };
  const auto spm = [](const std::function<void(GgufWriter&)>& add) {
    auto w = vocabulary("llama");
    w.add("tokenizer.ggml.tokens", {"a", "b"});
    add(w);
    return w.bytes();
  };
  static constexpr const char *kTokens = "tokenizer.ggml.tokens", *kMerges = "tokenizer.ggml.merges";
  return {
      {"no tokenizer", GgufWriter("x").bytes(), "has no tokenizer"},
      {"an unknown tokenizer", vocabulary("abacus").bytes(), "unknown tokenizer model 'abacus'"},
      {"a model that is a number", GgufWriter("x").add("tokenizer.ggml.model", 1).bytes(), "a string is expected"},
      {"no tokens", bpe([](auto&) {}), "no vocabulary"},
      {"zero tokens", bpe([](auto& w) { w.add(kTokens, {}); }), "the vocabulary is empty"},
      {"tokens that are numbers", bpe([](auto& w) { w.add(kTokens, std::vector<int>{1}); }), "array of 1 i32s"},
      {"tokens in one string", bpe([](auto& w) { w.add(kTokens, "a b"); }), "an array of strings is expected"},
      {"a token twice", bpe([](auto& w) { w.add(kTokens, {"a", "a"}).add(kMerges, {}); }), "'a' occurs twice"},
      {"no merges", bpe([](auto& w) { w.add(kTokens, {"a"}); }), "no merges"},
      {"a merge of one part", bpe([](auto& w) { w.add(kTokens, {"a"}).add(kMerges, {"ab"}); }), "merge 0 is 'ab'"},
      {"an empty merge", bpe([](auto& w) { w.add(kTokens, {"a"}).add(kMerges, {""}); }), "merge 0 is ''"},
      {"a merge without its end", bpe([](auto& w) { w.add(kTokens, {"a"}).add(kMerges, {"a "}); }), "merge 0"},
      {"too few types", spm([](auto& w) { w.add("tokenizer.ggml.token_type", std::vector<int>{1}); }), "token_type"},
      {"types as floats", spm([](auto& w) { w.add("tokenizer.ggml.token_type", std::vector<float>{1, 1}); }),
       "an i32 for each"},
      {"too few scores", spm([](auto& w) { w.add("tokenizer.ggml.scores", std::vector<float>{1}); }),
       "an f32 for each"},
      {"scores as text", spm([](auto& w) { w.add("tokenizer.ggml.scores", "high"); }), "an f32 for each"},
      {"a BOS id as text", spm([](auto& w) { w.add("tokenizer.ggml.bos_token_id", "<s>"); }), "integer is expected"},
      {"add_bos as a number", spm([](auto& w) { w.add("tokenizer.ggml.add_bos_token", 1); }), "a bool is expected"},
  };
}

/// Opens the file and its tokenizer. Returns the error line; empty if there is none.
std::string refusal(std::string_view bytes) {
  // On the heap with its exact size, so that a sanitizer detects reads beyond the end.
  const std::vector<std::byte> exact(reinterpret_cast<const std::byte*>(bytes.data()),
                                     reinterpret_cast<const std::byte*>(bytes.data()) + bytes.size());
  try {
    const Gguf gguf = Gguf::from(exact);
    const auto tokenizer = text::Tokenizer::open(gguf);
    (void)tokenizer->encode("ab </s>", {.add_special = true, .parse_special = true});
    for (std::int32_t id = 0; id < tokenizer->vocab_size(); ++id) (void)tokenizer->decode_piece(id, true);
    for (const auto& tensor : gguf.tensors()) (void)tensor.describe();
    for (const auto& entry : gguf.metadata())
      (void)(entry.value.describe() + std::to_string(entry.value.elements().size()));
  } catch (const Error& error) {
    return error.line();
  }
  return {};
}

}  // namespace

TEST_CASE("the undamaged file is accepted") {
  CHECK(refusal(sound().bytes()).empty());
}

TEST_CASE("damaged headers, tensor tables and vocabularies are refused with a one-line reason") {
  for (const auto& list : {damaged_headers(), damaged_tensors(), damaged_vocabularies()})
    for (const auto& damage : list) {
      const std::string line = refusal(damage.bytes);
      INFO(damage.name << " -> " << line);
      CHECK(line.starts_with("error["));
      CHECK(line.find(damage.says) != std::string::npos);
      CHECK(line.find('\n') == std::string::npos);
    }
}

TEST_CASE("a file on disk gives the same error, with its name first") {
  const tests::TempDir dir;
  const auto path = dir.write("cut.gguf", sound().bytes().substr(0, 300));
  CHECK_THROWS_WITH(Gguf::open(path),
                    Catch::Contains("reading " + path.string()) && Catch::Contains("the file is damaged"));
}

TEST_CASE("a file truncated at any byte is refused") {
  const std::string good = sound().bytes();
  const std::size_t needed = good.size() - 24;  // the padding after the last tensor may be missing
  for (std::size_t size = 0; size < needed; ++size) {
    INFO("cut to " << size << " of " << good.size());
    CHECK(refusal(std::string_view(good).substr(0, size)).starts_with("error["));
  }
}

TEST_CASE("any header byte set to any of six values is read or refused") {
  const std::string good = sound().bytes();
  std::size_t refused = 0, tried = 0;
  for (std::size_t at = 0; at < good.size() - 256; ++at)
    for (const int value : {0x00, 0x01, 0x7F, 0x80, 0xFF, static_cast<int>(good[at] ^ 0x20)}) {
      std::string bad = good;
      bad[at] = static_cast<char>(value);
      ++tried;
      refused += refusal(bad).empty() ? 0 : 1;
    }
  CHECK(refused > tried / 4);
}

TEST_CASE("random damage in many places is read or refused") {
  const std::string good = sound().bytes();
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::string bad = good;
    for (unsigned i = 0; i < 1 + random() % 8; ++i) {
      const std::size_t at = random() % bad.size();
      if (random() % 4 == 0) {
        bad.replace(at, std::min<std::size_t>(8, bad.size() - at), raw(random() | std::uint64_t{random()} << 32), 0,
                    std::min<std::size_t>(8, bad.size() - at));
      } else {
        bad[at] = static_cast<char>(random());
      }
    }
    const std::string line = refusal(bad);
    CHECK((line.empty() || line.starts_with("error[")));
  }
}
