// Fuzzes the tokenizers (text/tokenizer). The input's first byte chooses a small vocabulary made here (SentencePiece,
// unigram, WordPiece, and byte-level BPE with each pre-tokenizer), the second chooses how special tokens are treated,
// the rest is the text. No text may be refused, so any exception is a finding. Ids must lie inside the vocabulary,
// streamed text must be valid UTF-8 for any pieces, and with a vocabulary of all bytes decode(encode(text)) must give
// the text.

#include "text/tokenizer/tokenizer.h"

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/target.h"
#include "tests/support/gguf_writer.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/detokenizer.h"

namespace {

using namespace forge;
using tests::GgufWriter;

constexpr std::int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUser = 4, kByte = 6;

/// One name for each list of expressions in text/pretokenizer/split.cc, and dbrx, which merges words that are tokens.
constexpr std::array kSplits{"default",
                             "falcon",
                             "gpt-2",
                             "smollm",
                             "llama-bpe",
                             "dbrx",
                             "qwen2",
                             "qwen35",
                             "seed-coder",
                             "ufakzeka",
                             "minicpm5",
                             "gpt-4o",
                             "tekken",
                             "bloom",
                             "viking",
                             "laguna",
                             "deepseek-llm",
                             "deepseek-coder",
                             "deepseek-v3",
                             "spark2_5",
                             "afmoe",
                             "kimi-k2",
                             "youtu",
                             "tiny_aya",
                             "jais-2",
                             "exaone-moe",
                             "chameleon",
                             "superbpe",
                             "granite-embed-multi-97m"};

struct Vocabulary {
  std::string bytes;
  loader::Gguf gguf;
  std::unique_ptr<text::Tokenizer> tokenizer;
  explicit Vocabulary(const GgufWriter& writer)
      : bytes(writer.bytes()),
        gguf(loader::Gguf::from(std::as_bytes(std::span(bytes)))),
        tokenizer(text::Tokenizer::open(gguf)) {}
};

/// Byte-level BPE: ids 0 to 255 are the bytes, followed by words with their merges, a user-defined token and two
/// control tokens.
GgufWriter byte_level(std::string_view split) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte)
    text::append_printable_bytes(tokens.emplace_back(), std::string(1, static_cast<char>(byte)));
  std::vector<std::int32_t> types(256, kNormal);
  for (const char* word : {"ab", "bc", "abc", "Ġa", "Ġab", "11", "ĊĊ", "ĠĠ", "'s"}) {
    tokens.emplace_back(word);
    types.push_back(kNormal);
  }
  for (const auto& [text, type] :
       {std::pair("<tool>", kUser), std::pair("<s>", kControl), std::pair("</s>", kControl)}) {
    tokens.emplace_back(text);
    types.push_back(type);
  }
  GgufWriter w("llama");
  w.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", split);
  w.add("tokenizer.ggml.tokens", tokens).add("tokenizer.ggml.token_type", types);
  w.add("tokenizer.ggml.merges", {"b c", "a b", "a bc", "Ġ a", "Ġa b", "1 1", "Ċ Ċ", "Ġ Ġ", "' s"});
  w.add("tokenizer.ggml.bos_token_id", 266U).add("tokenizer.ggml.eos_token_id", 267U);
  return w;
}

GgufWriter sentencepiece(bool all_bytes, std::string_view model = "llama") {
  std::vector<std::string> tokens{"<unk>", "<s>", "</s>", "<tool>", "▁", "a", "b", "ab", "ba", "▁a", "▁▁", "é", "aba"};
  std::vector<float> scores{0, 0, 0, 0, -1, -2, -3, -5, -4, -6, -7, -8, -9};
  std::vector<std::int32_t> types(tokens.size(), kNormal);
  types[0] = kUnknown;
  types[1] = types[2] = kControl;
  types[3] = kUser;
  for (int byte = 0; byte < (all_bytes ? 256 : 128); ++byte) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    const auto digit = [&](int value) { return kDigits[static_cast<std::size_t>(value)]; };
    tokens.push_back(std::string("<0x") + digit(byte / 16) + digit(byte % 16) + '>');
    scores.push_back(0);
    types.push_back(kByte);
  }
  GgufWriter w("llama");
  w.add("tokenizer.ggml.model", model).add("tokenizer.ggml.tokens", tokens).add("tokenizer.ggml.scores", scores);
  w.add("tokenizer.ggml.token_type", types).add("tokenizer.ggml.bos_token_id", 1U);
  return w;
}

/// With normalisation rules: a tab becomes a space, "A" becomes "ab".
GgufWriter unigram(bool all_bytes, bool merge_spaces) {
  GgufWriter w = sentencepiece(all_bytes, "t5");
  w.add("tokenizer.ggml.unknown_token_id", 0U).add("tokenizer.ggml.eos_token_id", 2U);
  w.add("tokenizer.ggml.add_space_prefix", true).add("tokenizer.ggml.remove_extra_whitespaces", merge_spaces);
  // The charsmap is a double-array trie: the root's offset is 1, and a node's value lies in the unit beside it.
  std::vector<std::uint32_t> units(80, 0xFF);
  units[0] = 1U << 10;
  const auto key = [&](char c, std::uint32_t value) {
    const std::uint32_t node = 1U ^ static_cast<std::uint8_t>(c);
    units.at(node) = static_cast<std::uint8_t>(c) | 0x100U | 1U << 10;
    units.at(node ^ 1U) = 1U << 31 | value;
  };
  key('\t', 0);
  key('A', 2);
  std::string map = GgufWriter::raw(static_cast<std::uint32_t>(units.size() * 4));
  for (const auto unit : units) map += GgufWriter::raw(unit);
  map.append(" \0ab\0", 5);
  w.add("tokenizer.ggml.precompiled_charsmap", std::vector<std::uint8_t>(map.begin(), map.end()));
  return w;
}

GgufWriter wordpiece(bool lowercase) {
  const std::vector<std::string> tokens{"[UNK]", "[CLS]", "[SEP]", "▁a", "▁ab", "b", "c", "▁é", "▁.", "▁日", "<tool>"};
  std::vector<std::int32_t> types(tokens.size(), kNormal);
  types[0] = types[1] = types[2] = kControl;
  types.back() = kUser;
  GgufWriter w("bert");
  w.add("tokenizer.ggml.model", "bert").add("tokenizer.ggml.tokens", tokens).add("tokenizer.ggml.token_type", types);
  w.add("tokenizer.ggml.unknown_token_id", 0U).add("tokenizer.ggml.cls_token_id", 1U);
  w.add("tokenizer.ggml.seperator_token_id", 2U).add("tokenizer.ggml.normalizer.lowercase", lowercase);
  return w;
}

/// The first kOthers vocabularies are SentencePiece and unigram (each without and with all bytes) and WordPiece; the
/// rest are byte-level.
constexpr std::size_t kOthers = 6;
const std::vector<std::unique_ptr<Vocabulary>>& vocabularies() {
  static const auto all = [] {
    std::vector<std::unique_ptr<Vocabulary>> made;
    for (const bool yes : {false, true}) {
      made.push_back(std::make_unique<Vocabulary>(sentencepiece(yes)));
      made.push_back(std::make_unique<Vocabulary>(unigram(yes, !yes)));
      made.push_back(std::make_unique<Vocabulary>(wordpiece(yes)));
    }
    for (const char* split : kSplits) made.push_back(std::make_unique<Vocabulary>(byte_level(split)));
    return made;
  }();
  return all;
}

/// Length of the UTF-8 character at the beginning of `text`; 0 if it is not valid (source: RFC 3629, section 4).
std::size_t character_bytes(std::string_view text) {
  const auto at = [&](std::size_t i) { return i < text.size() ? static_cast<std::uint8_t>(text[i]) : 0; };
  const auto tail = [&](std::size_t i) { return (at(i) & 0xC0) == 0x80; };
  const int first = at(0), second = at(1);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return tail(1) ? 2 : 0;
  if (first >= 0xE0 && first < 0xF0) {
    const bool range = (first != 0xE0 || second >= 0xA0) && (first != 0xED || second < 0xA0);
    return range && tail(1) && tail(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first < 0xF5) {
    const bool range = (first != 0xF0 || second >= 0x90) && (first != 0xF4 || second < 0x90);
    return range && tail(1) && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto bytes = character_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

void try_text(std::size_t index, std::uint8_t flags, std::string_view text) {
  const text::Tokenizer& tokenizer = *vocabularies()[index]->tokenizer;
  const text::EncodeOptions options{.add_special = (flags & 1) != 0, .parse_special = (flags & 2) != 0};
  const auto ids = tokenizer.encode(text, options);
  text::Detokenizer stream(tokenizer, (flags & 4) != 0);
  std::string shown;
  for (const std::int32_t id : ids) {
    fuzz::expect(id >= 0 && id < tokenizer.vocab_size(), "an id outside the vocabulary");
    const std::string piece = stream.push(id);
    fuzz::expect(is_utf8(piece), "streamed text is not UTF-8");
    shown += piece;
  }
  shown += stream.flush();
  fuzz::expect(is_utf8(shown), "streamed text is not UTF-8");
  text::Detokenizer whole(tokenizer), bytes(tokenizer);
  const std::string at_once = whole.push_bytes(text) + whole.flush();
  std::string by_byte;
  for (const char byte : text) by_byte += bytes.push_bytes({&byte, 1});
  by_byte += bytes.flush();
  fuzz::expect(is_utf8(at_once), "text that came at once is not UTF-8");
  fuzz::expect(by_byte == at_once, "text that came byte by byte is another one");
  // Control tokens have no text. Without them in the text and without replaced bytes, byte-level BPE is lossless.
  const bool byte_level = index >= kOthers;
  if (byte_level && flags == 4 && is_utf8(text)) fuzz::expect(shown == text, "the text does not come back");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  try {
    try_text(data[0] % vocabularies().size(), data[1] % 8, fuzz::text_of(data + 2, size - 2));
  } catch (const std::exception& error) {
    fuzz::finding(error.what());
  }
  return 0;
}
