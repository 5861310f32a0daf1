// The Unigram and WordPiece tokenizers on small vocabularies: each rule in isolation.

#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <map>

#include "tests/text/opened.h"

using namespace forge;
using namespace forge::tests;
using Ids = std::vector<std::int32_t>;

namespace {

const std::vector<Piece> kSmallUnigram{{"<pad>", 0, kControl},
                                       {"</s>", 0, kControl},
                                       {"<unk>", 0, kUnknown},
                                       {"▁", -2},
                                       {"a", -3},
                                       {"b", -4},
                                       {"ab", -5},
                                       {"▁a", -4.5F},
                                       {"ba", -6},
                                       {"ꞏ", -3, kUnused}};

GgufWriter unigram(const std::vector<Piece>& pieces = kSmallUnigram, bool merge_spaces = true) {
  auto w = scored("t5", pieces);
  w.add("tokenizer.ggml.add_space_prefix", true).add("tokenizer.ggml.remove_extra_whitespaces", merge_spaces);
  return w;
}

/// A precompiled charsmap (normalisation rules) with one key, "A" -> "ab". It is a double-array trie: the root's offset
/// is 1, so 'A' leads to unit 1 ^ 'A', and the unit beside it holds the value.
std::string charsmap(std::uint32_t units = 96, std::uint32_t value_at = 0, std::string_view values = {"ab\0", 3}) {
  constexpr std::uint32_t kOffset = 1, kLeaf = 0x100, kNode = kOffset ^ 'A';
  std::vector<std::uint32_t> all(units, 0xFF);
  all[0] = kOffset << 10;
  all.at(kNode) = 'A' | kLeaf | kOffset << 10;
  all.at(kNode ^ kOffset) = 1U << 31 | value_at;
  std::string bytes = GgufWriter::raw(units * 4);
  for (const auto unit : all) bytes += GgufWriter::raw(unit);
  return bytes += values;
}

GgufWriter with_charsmap(const std::string& bytes) {
  auto w = unigram();
  w.add("tokenizer.ggml.precompiled_charsmap", std::vector<std::uint8_t>(bytes.begin(), bytes.end()));
  return w;
}

const std::vector<std::string> kWords{"[PAD]",  "[UNK]", "[CLS]", "[SEP]", "▁hell", "▁hello", "o",  "▁,",
                                      "▁world", "s",     "▁日",   "▁e",    "▁1",    "▁[",     "▁]", "▁cls"};

GgufWriter wordpiece(bool lowercase = true) {
  std::vector<std::int32_t> types(kWords.size(), kNormal);
  std::fill(types.begin(), types.begin() + 4, kControl);
  GgufWriter w("bert");
  w.add("tokenizer.ggml.model", "bert").add("tokenizer.ggml.tokens", kWords).add("tokenizer.ggml.token_type", types);
  w.add("tokenizer.ggml.unknown_token_id", 1U).add("tokenizer.ggml.cls_token_id", 2U);
  w.add("tokenizer.ggml.seperator_token_id", 3U).add("tokenizer.ggml.normalizer.lowercase", lowercase);
  return w;
}

}  // namespace

TEST_CASE("unigram: the best segmentation by total score, which greedy choice misses") {
  const Opened t(unigram());
  CHECK(t.encode("ab") == Ids{3, 6});      // ▁ + ab = -7, ▁a + b = -8.5
  CHECK(t.encode("aba") == Ids{3, 6, 4});  // -10; ▁a + ba = -10.5
  CHECK(t.encode("a") == Ids{7});
  CHECK(t.encode("").empty());
  CHECK(t.encode("a", {.add_special = true}) == Ids{7, 1});  // T5 ends with EOS
  CHECK(t->decode(t.encode("ab a")) == "ab a");
  CHECK(t->warnings().empty());
}

TEST_CASE("unigram: uncovered text is the unknown token, once per run; unused tokens cover nothing") {
  const Opened t(unigram());
  CHECK(t.encode("axyzb") == Ids{7, 2, 5});
  CHECK(t.encode("aꞏb") == Ids{7, 2, 5});
  CHECK(t.encode("日本") == Ids{3, 2});
  CHECK(t.encode("\xFF") == Ids{3, 2});
  CHECK(t.encode(std::string_view("a\0b", 3)) == Ids{7, 2, 5});
}

TEST_CASE("unigram: with all byte tokens, unknown characters are spelled in bytes") {
  auto pieces = kSmallUnigram;
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(byte));
    pieces.push_back({text, 0, kByte});
  }
  CHECK(Opened(unigram(pieces)).encode("aé") == Ids{7, 10 + 0xC3, 10 + 0xA9});
  pieces.pop_back();
  CHECK(Opened(unigram(pieces)).encode("aé") == Ids{7, 2});
}

TEST_CASE("unigram: extra spaces are removed exactly if the model was trained so") {
  const Opened merged(unigram());
  CHECK(merged.encode("  a   a ") == Ids{7, 7});
  CHECK(merged.encode("   ").empty());
  const Opened kept(unigram(kSmallUnigram, false));
  CHECK(kept.encode(" a  a ") == Ids{3, 7, 3, 7, 3});
  CHECK(kept->decode(kept.encode(" a  a ")) == " a  a ");
  auto bare = scored("t5", kSmallUnigram);
  bare.add("tokenizer.ggml.remove_extra_whitespaces", true);
  CHECK(Opened(bare).encode(" a") == Ids{4});
}

TEST_CASE("unigram: normalisation replaces the longest key; damaged rules are refused with the place") {
  const Opened t(with_charsmap(charsmap()));
  CHECK(t.encode("A") == t.encode("ab"));
  CHECK(t.encode("bA\tAb") == t.encode("bab\tabb"));
  const auto refused = [](const std::string& bytes, std::string_view what) {
    INFO(what);
    CHECK(refusal_of(with_charsmap(bytes)).find(what) != std::string::npos);
  };
  refused("abc", "it has 3 bytes");
  refused(GgufWriter::raw(400U) + std::string(100, '\0'), "declares 400 for its trie");
  refused(charsmap(96, 7), "the value of unit 64 of 96 is out of bounds");
  refused(charsmap(96, 0, "ab"), "its last value has no terminating NUL");
  const auto of_length = [](std::size_t bytes) { return charsmap(96, 0, std::string(bytes, 'b') + '\0'); };
  CHECK(Opened(with_charsmap(of_length(256))).encode("A") == t.encode(std::string(256, 'b')));
  refused(of_length(257), "has more than 256 bytes");  // otherwise a prompt could grow without bound
}

TEST_CASE("unigram: invalid scores are refused with the place") {
  auto pieces = kSmallUnigram;
  pieces[4].score = std::numeric_limits<float>::quiet_NaN();
  CHECK(refusal_of(unigram(pieces)).find("the score of token 4 is nan") != std::string::npos);
  GgufWriter none("t5");
  none.add("tokenizer.ggml.model", "t5").add("tokenizer.ggml.tokens", {"a", "b"});
  CHECK(refusal_of(none).find("the vocabulary has no scores") != std::string::npos);
  none.add("tokenizer.ggml.scores", std::vector<float>{1});
  CHECK(refusal_of(none).find("an f32 for each of the 2 tokens is expected") != std::string::npos);
}

TEST_CASE("unigram: the result has the best score of all segmentations") {
  CHECK(rc::check("against trying all of them", [] {
    const auto letters = rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::element('a', 'b')));
    std::map<std::string, float> scores{{"a", -1}, {"b", -2}};
    for (const auto& text : *rc::gen::container<std::vector<std::string>>(rc::gen::resize(4, letters)))
      scores.emplace(text, -static_cast<float>(*rc::gen::inRange(1, 40)) / 8);
    std::vector<Piece> pieces{{"<unk>", 0, kUnknown}};
    for (const auto& [text, score] : scores) pieces.push_back({text, score});
    const std::string text = *rc::gen::resize(12, letters);
    std::vector<double> best(text.size() + 1, -1e9);
    best[0] = 0;
    for (std::size_t at = 0; at < text.size(); ++at)
      for (const auto& [piece, score] : scores)
        if (text.substr(at).starts_with(piece))
          best[at + piece.size()] = std::max(best[at + piece.size()], best[at] + score);
    double sum = 0;
    std::string spelled;
    const Opened t(scored("t5", pieces));
    for (const auto id : t.encode(text)) {
      sum += pieces.at(static_cast<std::size_t>(id)).score;
      spelled += pieces.at(static_cast<std::size_t>(id)).text;
    }
    RC_ASSERT(spelled == text);
    RC_ASSERT(sum == best.back());  // multiples of 1/8: sums are exact
  }));
}

TEST_CASE("WordPiece takes the longest token, then continuations; or the whole word is unknown") {
  const Opened t(wordpiece());
  CHECK(t.encode("hello") == Ids{5});
  CHECK(t.encode("hellos") == Ids{5, 9});
  CHECK(t.encode("helloo, worlds") == Ids{5, 6, 7, 8, 9});
  CHECK(t.encode("hellox world") == Ids{1, 8});
  CHECK(t.encode("o") == Ids{1});  // a continuation only
  CHECK(t.encode(std::string(101, 'o')) == Ids{1});
  CHECK(t.encode("hello", {.add_special = true}) == Ids{2, 5, 3});
  CHECK(t.encode("[CLS]hello", {.parse_special = true}) == Ids{2, 5});
  CHECK(t.encode("[CLS]") == Ids{13, 15, 14});
  CHECK(t->decode(t.encode("hellos world")) == " hellos world");
}

TEST_CASE("a pair of texts has the separators that the model was trained with") {
  CHECK(Opened(wordpiece())->encode_pair("hello", "world") == Ids{2, 5, 3, 8, 3});
  CHECK(Opened(wordpiece())->encode_pair("hello", "") == Ids{2, 5, 3, 3});
  CHECK(Opened(wordpiece().add("tokenizer.ggml.add_sep_token", false))->encode_pair("hello", "world") == Ids{2, 5, 8});
  CHECK(Opened(unigram())->encode_pair("a", "ab") == Ids{7, 1, 3, 6, 1});
  auto separated = unigram();
  separated.add("tokenizer.ggml.seperator_token_id", 0U);
  CHECK(Opened(separated)->encode_pair("a", "ab") == Ids{7, 1, 0, 3, 6, 1});
  CHECK(Opened(separated).encode("a", {.add_special = true}) == Ids{7, 1});
  separated.add("tokenizer.ggml.add_sep_token", false);
  CHECK(Opened(separated)->encode_pair("a", "ab") == Ids{7, 1, 3, 6, 1});
}

TEST_CASE("WordPiece normalises text as BERT does") {
  const Opened t(wordpiece());
  CHECK(t.encode("HELLO\tWorld\n") == Ids{5, 8});
  CHECK(t.encode("É e\u0301") == Ids{11, 11});
  CHECK(t.encode("日日1") == Ids{10, 10, 12});
  CHECK(t.encode("hel\u200Dlo h\x01"
                 "ello hel\xFFlo") == Ids{5, 5, 5});  // control characters and invalid UTF-8
  CHECK(t.encode("\u00A0hello\u3000") == Ids{5});
  CHECK(t.encode("").empty());
  const Opened cased(wordpiece(false));
  CHECK(cased.encode("hello Hello é") == Ids{5, 1, 1});
}

TEST_CASE("WordPiece without a token that begins a word gives a warning") {
  GgufWriter w("bert");
  w.add("tokenizer.ggml.model", "bert").add("tokenizer.ggml.tokens", {"a", "[UNK]"});
  w.add("tokenizer.ggml.unknown_token_id", 1U);
  const Opened t(w);
  REQUIRE(t->warnings().size() == 1);
  CHECK(t->warnings()[0].find("no token begins a word") != std::string::npos);
  CHECK(t.encode("a a") == Ids{1, 1});
}

TEST_CASE("a mask token absorbs the white space before it, if its tokenizer does") {
  auto pieces = kSmallUnigram;
  pieces.push_back({"<mask>", 0, kControl});
  auto file = unigram(pieces);
  CHECK(Opened(file).encode("a <mask> a", {.parse_special = true}) == Ids{7, 10, 7});  // merged anyway
  auto kept = unigram(pieces, false);
  CHECK(Opened(kept).encode("a  <mask>", {.parse_special = true}) == Ids{7, 3, 3, 10});
  auto jina = kept;
  jina.add("tokenizer.ggml.pre", "jina-v2-de");
  CHECK(Opened(jina).encode("a  <mask> a", {.parse_special = true}) == Ids{7, 10, 3, 7});
}

TEST_CASE("unigram and WordPiece take linear time on a megabyte of one letter") {
  const std::string letters(1 << 20, 'a');
  CHECK(Opened(unigram()).encode(letters).size() == letters.size());
  CHECK(Opened(wordpiece()).encode(letters) == Ids{1});
}

TEST_CASE(
    "Gemma 4: merges of UTF-8 characters, U+2581 for spaces, runs of line breaks, byte tokens for the rest; decoding "
    "is "
    "lossless") {
  std::vector<std::string> tokens{"a", "b", "▁", "ab", "▁ab", "\n", "\n\n"};
  std::vector<std::int32_t> types(tokens.size(), kNormal);
  for (int byte = 0; byte < 256; ++byte) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    tokens.push_back({'<', '0', 'x', kDigits[static_cast<std::size_t>(byte / 16)],
                      kDigits[static_cast<std::size_t>(byte % 16)], '>'});
    types.push_back(kByte);
  }
  GgufWriter w("none");
  w.add("tokenizer.ggml.model", "gemma4").add("tokenizer.ggml.tokens", tokens);
  w.add("tokenizer.ggml.token_type", types);
  w.add("tokenizer.ggml.merges", std::vector<std::string>{"a b", "▁ ab"});
  const Opened t(w);
  CHECK(t->warnings().empty());
  CHECK(t.encode("ab ab  a\n\nb\n") == Ids{3, 4, 2, 2, 0, 6, 1, 5});
  CHECK(t.encode("a日") == Ids{0, 7 + 0xE6, 7 + 0x97, 7 + 0xA5});
  for (const std::string text : {"ab ab  a\n\nb\n", " 日本 x\t\n", "\n\n\n"})
    CHECK(t->decode(t.encode(text), true) == text);
}

TEST_CASE("Gemma 4 adds BOS unless the file says otherwise") {
  const auto file = [] {
    GgufWriter w("none");
    w.add("tokenizer.ggml.model", "gemma4").add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "<bos>", "aa"});
    w.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{kNormal, kControl, kNormal});
    w.add("tokenizer.ggml.merges", std::vector<std::string>{"a a"}).add("tokenizer.ggml.bos_token_id", 1U);
    return w;
  };
  CHECK(Opened(file()).encode("aa", {.add_special = true}) == Ids{1, 2});
  CHECK(Opened(file().add("tokenizer.ggml.add_bos_token", false)).encode("aa", {.add_special = true}) == Ids{2});
}

TEST_CASE("model 'whitespace': merges of UTF-8 inside words, white space dropped, lower case if the file says so") {
  const auto file = [](bool lowercase) {
    const std::vector<std::string> tokens{"<s>", "a", "b", "ab", "中", "文", "中文", "é", "B", ".", "\u3000"};
    std::vector<std::int32_t> types(tokens.size(), kNormal);
    types[0] = kControl;
    GgufWriter w("jina-bert-v2");
    w.add("tokenizer.ggml.model", "whitespace").add("tokenizer.ggml.pre", "whitespace");
    w.add("tokenizer.ggml.tokens", tokens).add("tokenizer.ggml.token_type", types);
    w.add("tokenizer.ggml.merges", std::vector<std::string>{"a b", "中 文"});
    w.add("tokenizer.ggml.normalizer.lowercase", lowercase);
    return w;
  };
  const Opened as_is(file(false)), lower(file(true));
  CHECK(as_is->warnings().empty());
  CHECK(as_is.encode("ab a b\u3000中文\n\taB.") == Ids{3, 1, 2, 6, 1, 8, 9});
  CHECK(lower.encode("AB aB É") == Ids{3, 3, 7});
  CHECK(as_is.encode("a日b") == Ids{1, 2});  // a character without a token is left out, as in llama.cpp
  CHECK(as_is.encode(" \n").empty());
  CHECK(as_is->decode(Ids{6, 3}) == "中文ab");
  CHECK(as_is->describe() == "character-level BPE, words as 'whitespace'");
}
