// The BPE and SentencePiece tokenizers on small vocabularies: each rule in isolation, and random tests against the
// definition.

#include "text/tokenizer/tokenizer.h"

#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <span>
#include <tuple>

#include "support/error.h"
#include "tests/support/gguf_writer.h"
#include "tests/text/opened.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/string_table.h"

using namespace forge;
using tests::GgufWriter;
using tests::Opened;
using tests::Piece;
using tests::refusal_of;
using text::EncodeOptions;
using Ids = std::vector<std::int32_t>;

namespace {

using tests::kByte, tests::kControl, tests::kNormal, tests::kUnknown, tests::kUser;

/// A byte-level BPE vocabulary: ids 0 to 255 are the bytes, followed by the tokens of `more` (text and type). `merges`
/// are the merge rules in rank order.
GgufWriter byte_level(const std::vector<std::pair<std::string, int>>& more, const std::vector<std::string>& merges,
                      std::string_view pre = "gpt-2") {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types(256, kNormal);
  for (int byte = 0; byte < 256; ++byte)
    text::append_printable_bytes(tokens.emplace_back(), std::string(1, static_cast<char>(byte)));
  for (const auto& [text, type] : more) {
    tokens.push_back(text);
    types.push_back(type);
  }
  GgufWriter w("llama");
  w.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", pre);
  w.add("tokenizer.ggml.tokens", tokens).add("tokenizer.ggml.token_type", types).add("tokenizer.ggml.merges", merges);
  return w;
}

GgufWriter sentencepiece(const std::vector<Piece>& pieces) {
  return tests::scored("llama", pieces);
}

const std::vector<Piece> kSmallSpm{{"<unk>", 0, kUnknown},
                                   {"<s>", 0, kControl},
                                   {"</s>", 0, kControl},
                                   {"<0xC3>", 0, kByte},
                                   {"<0xA9>", 0, kByte},
                                   {"▁", -1},
                                   {"a", -2},
                                   {"b", -3},
                                   {"ab", -5},
                                   {"ba", -4},
                                   {"▁a", -6}};

}  // namespace

TEST_CASE("merges join by rank, then from left to right, and only inside words") {
  const Opened t(byte_level({{"ab", 1}, {"bc", 1}, {"abc", 1}, {"Ġa", 1}}, {"b c", "a b", "a bc", "Ġ a"}));
  CHECK(t.encode("abc") == Ids{258});
  CHECK(t.encode("ab") == Ids{256});
  CHECK(t.encode("bbcc") == Ids{'b', 257, 'c'});
  CHECK(t.encode(" ab") == Ids{' ', 256});  // "a b" has the better rank, and "Ġ ab" is not a merge
  CHECK(t.encode("b a") == Ids{'b', 259});
  CHECK(t.encode("b.c") == Ids{'b', '.', 'c'});
  CHECK(t.encode("").empty());
}

TEST_CASE("a merge that is listed twice has its first rank") {
  const Opened t(byte_level({{"ab", 1}, {"bc", 1}}, {"b c", "a b", "b c"}));
  CHECK(t.encode("abc") == Ids{'a', 257});
}

TEST_CASE("merges with unknown tokens and vocabularies without all bytes are refused, with the place") {
  CHECK(refusal_of(byte_level({}, {"a b"})).find("merge 0 is 'a b', but 'ab' is not a token") != std::string::npos);
  CHECK(refusal_of(byte_level({{"abc", 1}, {"bc", 1}}, {"b c", "ab c"}))
            .find("merge 1 is 'ab c', but 'ab' is not a token") != std::string::npos);
  auto bare = byte_level({}, {});
  bare = GgufWriter("llama");
  bare.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.tokens", {"a", "b", "Ġ"});
  bare.add("tokenizer.ggml.merges", std::vector<std::string>{});
  CHECK(refusal_of(bare).find("byte 0x21 has no token") != std::string::npos);
}

TEST_CASE("llama-bpe takes words that are tokens before it merges, and adds BOS") {
  auto file = byte_level({{"abc", 1}, {"<s>", kControl}}, {}, "llama-bpe");
  file.add("tokenizer.ggml.bos_token_id", 257U);
  const Opened t(file);
  CHECK(t.encode("abc") == Ids{256});
  CHECK(t.encode("abc", {.add_special = true}) == Ids{257, 256});
  CHECK(t->add_bos());
  CHECK(Opened(byte_level({{"abc", 1}}, {}, "dbrx")).encode("abc") == Ids{'a', 'b', 'c'});
}

TEST_CASE("the file's add_bos and add_eos keys take precedence") {
  auto file = byte_level({{"<s>", kControl}, {"</s>", kControl}}, {}, "llama-bpe");
  file.add("tokenizer.ggml.bos_token_id", 256U).add("tokenizer.ggml.eos_token_id", 257U);
  file.add("tokenizer.ggml.add_bos_token", false).add("tokenizer.ggml.add_eos_token", true);
  const Opened t(file);
  CHECK(t.encode("a", {.add_special = true}) == Ids{'a', 257});
  CHECK((t->bos() == 256 && t->eos() == 257 && !t->add_bos() && t->add_eos()));
}

TEST_CASE("control tokens are parsed on demand, user-defined ones always; the longest match wins") {
  const Opened t(byte_level({{"<a>", kControl}, {"<a><b>", kControl}, {"<b><c><d>", kControl}, {"[U]", kUser}}, {}));
  const EncodeOptions special{.parse_special = true};
  CHECK(t.encode("x<a>y", special) == Ids{'x', 256, 'y'});
  CHECK(t.encode("<a>") == Ids{'<', 'a', '>'});
  CHECK(t.encode("x[U]y") == Ids{'x', 259, 'y'});
  CHECK(t.encode("<a><b>", special) == Ids{257});
  CHECK(t.encode("<a><b><c><d>", special) == Ids{256, 258});  // the longer one, although the other begins first
  CHECK(t.encode("<a><a>", special) == Ids{256, 256});
  CHECK(t.encode("", special).empty());
}

TEST_CASE("special tokens match in the order of length, id and position") {
  CHECK(rc::check("against all matches at once, sorted", [] {
    const auto letter = rc::gen::element('a', 'b', ' ');
    const auto name =
        rc::gen::resize(5, rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::element('a', 'b'))));
    auto pieces = kSmallSpm;
    const auto first = static_cast<std::int32_t>(pieces.size());
    for (const auto& text : *rc::gen::unique<std::vector<std::string>>(name))
      if (text.size() > 1 && text != "ab" && text != "ba") pieces.push_back({text, 0, kControl});
    const auto text = *rc::gen::container<std::string>(letter);
    const bool strips = *rc::gen::arbitrary<bool>();

    struct Match {
      std::size_t bytes = 0;
      std::int32_t id = 0;
      std::size_t at = 0;
    };
    std::vector<Match> matches;
    for (std::int32_t id = first; id < std::ssize(pieces); ++id) {
      const auto& token = pieces[static_cast<std::size_t>(id)].text;
      for (auto at = text.find(token); at != std::string::npos; at = text.find(token, at + 1))
        matches.push_back({token.size(), id, at});
    }
    std::ranges::sort(matches, {}, [](const Match& m) { return std::tuple(SIZE_MAX - m.bytes, m.id, m.at); });
    std::vector<std::int32_t> owner(text.size(),
                                    -1);  // per byte: the special token that covers it, or that strips this white space
    std::map<std::size_t, std::int32_t> found;
    for (const auto& m : matches) {
      const auto bytes = std::span(owner).subspan(m.at, m.bytes);
      if (std::ranges::any_of(bytes, [](auto id) { return id >= 0; })) continue;
      std::ranges::fill(bytes, m.id);
      found[m.at] = m.id;
      for (auto at = m.at + m.bytes; strips && at < text.size() && text[at] == ' ' && owner[at] < 0; ++at)
        owner[at] = m.id;
    }
    Ids wanted;
    for (const auto& [at, id] : found) wanted.push_back(id);

    auto file = sentencepiece(pieces);
    if (strips) file.add("general.name", "Phi-3 mini");
    auto ids = Opened(file).encode(text, {.parse_special = true});
    std::erase_if(ids, [&](auto id) { return id < first; });
    RC_ASSERT(ids == wanted);
  }));
}

TEST_CASE("strings with equal unseeded hashes have different hashes here") {
  // An attack on the hash table: XXH3 multiplies (input ^ secret). These bytes of its public secret make one factor 0,
  // so the other bytes have no effect. A seeded hash is not affected.
  const std::string secret(
      "\xb8\xfe\x6c\x39\x23\xa4\x4b\xbe\x7c\x01\x81\x2c\xf7\x21\xad\x1c\xde\xd4\x6d\xe9\x83\x90\x97\xdb\x72\x40\xa4\xa4"
      "\xb7\xb3\x67\x1f",
      32);
  const auto with = [&](std::string_view own) {
    return secret.substr(0, 8) + std::string(own) + secret.substr(16, 8) + std::string(8, 'A');
  };
  const auto one = with("00000001"), other = with("00000002");
  REQUIRE(XXH3_64bits(one.data(), one.size()) == XXH3_64bits(other.data(), other.size()));
  CHECK(text::hash_of(one) != text::hash_of(other));
}

TEST_CASE("NUL bytes are text; invalid UTF-8 is read as U+FFFD") {
  const Opened t(byte_level({}, {}));
  CHECK(t.encode(std::string_view("a\0b", 3)) == Ids{'a', 0, 'b'});
  CHECK(t.encode("\xFF") == Ids{0xEF, 0xBF, 0xBD});
  CHECK(t.encode("é\x80") == Ids{0xC3, 0xA9, 0xEF, 0xBF, 0xBD});
}

TEST_CASE("decoding gives the bytes back; control tokens show only on demand") {
  const Opened t(byte_level({{"Ġhi", 1}, {"<x>", kControl}, {"[U]", kUser}}, {}));
  for (int byte = 0; byte < 256; ++byte) CHECK(t->decode_piece(byte) == std::string(1, static_cast<char>(byte)));
  CHECK(t->decode_piece(256) == " hi");
  CHECK(t->decode_piece(257).empty());
  CHECK(t->decode_piece(257, true) == "<x>");
  CHECK(t->decode_piece(258) == "[U]");
  CHECK(t->decode_piece(-1).empty());
  CHECK(t->decode_piece(259).empty());
  CHECK((t->vocab_size() == 259 && t->token_text(256) == "Ġhi" && t->is_control(257) && !t->is_control(256)));
}

TEST_CASE("end of generation: the file's ids and well-known texts") {
  auto file =
      byte_level({{"<|im_end|>", 1}, {"<stop>", kControl}, {"<|eot_id|>", kControl}, {"<other>", kControl}}, {});
  file.add("tokenizer.ggml.eos_token_id", 257U);
  const Opened t(file);
  CHECK(t->end_of_generation() == Ids{256, 257, 258});
  CHECK(t->decode_piece(256).empty());  // a control token, whatever type the file gives it
  const Opened harmony(byte_level({{"<|end|>", 3}, {"<|return|>", 3}, {"<|call|>", 3}}, {}));
  CHECK(harmony->end_of_generation() == Ids{257, 258});
}

TEST_CASE("an unknown or missing pre-tokenizer and ids out of range give warnings") {
  const Opened unknown(byte_level({}, {}, "from-the-future"));
  REQUIRE(unknown->warnings().size() == 1);
  CHECK(unknown->warnings()[0].find("'from-the-future' is unknown; 'default' is used") != std::string::npos);
  CHECK(unknown.encode("12.34") == Ids{'1', '2', '.', '3', '4'});
  auto file = byte_level({}, {});
  file.add("tokenizer.ggml.bos_token_id", 999U).add("tokenizer.ggml.add_bos_token", true);
  const Opened bad(file);
  CHECK(bad->warnings().size() == 2);
  CHECK((bad->bos() == -1 && !bad->add_bos()));
  CHECK(bad.encode("a", {.add_special = true}) == Ids{'a'});
  CHECK(Opened(byte_level({}, {}))->warnings().empty());
}

TEST_CASE("SentencePiece joins the pair with the best score first; spaces are U+2581") {
  const Opened t(sentencepiece(kSmallSpm));
  CHECK(t.encode("aba") == Ids{10, 9});  // "ba" (-4) before "ab" (-5), then "▁a"
  CHECK(t.encode("a") == Ids{10});
  CHECK(t.encode(" a") == Ids{5, 10});
  CHECK(t.encode("").empty());
  CHECK(t.encode("a", {.add_special = true}) == Ids{1, 10});  // BOS, unless the file says otherwise
}

TEST_CASE("SentencePiece falls back to byte tokens, then to the unknown token") {
  const Opened t(sentencepiece(kSmallSpm));
  CHECK(t.encode("é") == Ids{5, 3, 4});
  CHECK(t.encode("z") == Ids{5, 0});
  CHECK(t.encode("\xC3") == Ids{5, 3});  // invalid UTF-8 keeps its bytes
  CHECK(t->decode_piece(3) == "\xC3");
  CHECK(t->decode_piece(10) == " a");
  CHECK(t->warnings().size() == 1);  // 252 byte tokens are missing
}

TEST_CASE("SentencePiece adds a space before the text and after special tokens, unless disabled") {
  const Opened t(sentencepiece(kSmallSpm));
  const EncodeOptions special{.parse_special = true};
  CHECK(t.encode("a<s>a", special) == Ids{10, 1, 10});
  auto bare = sentencepiece(kSmallSpm);
  bare.add("tokenizer.ggml.add_space_prefix", false);
  CHECK(Opened(bare).encode("a<s>a", special) == Ids{6, 1, 6});
}

TEST_CASE("SentencePiece decodes without the spaces that it added, and with the text's own") {
  const Opened t(sentencepiece(kSmallSpm));
  for (const std::string text : {"a", " a", "  a a", "a<s>a", "a<s> a <s><s>a", "<s>", "é", " "})
    CHECK(t->decode(t.encode(text, {.parse_special = true}), true) == text);
  CHECK(t->decode(t.encode("aba", {.add_special = true})) == "aba");  // BOS has no text here
  CHECK(t->decode(t.encode("z"), true) == "<unk>");
  auto bare = sentencepiece(kSmallSpm);
  bare.add("tokenizer.ggml.add_space_prefix", false);
  const Opened plain(bare);
  CHECK(plain->decode(plain.encode(" a")) == " a");
}

TEST_CASE("Phi-3's special tokens absorb the white space after them, with few exceptions") {
  auto pieces = kSmallSpm;
  pieces.push_back({"<|user|>", 0, kControl});
  auto file = sentencepiece(pieces);
  file.add("general.name", "Phi-3 mini");
  const EncodeOptions special{.parse_special = true};
  CHECK(Opened(file).encode("<|user|> \n a", special) == Ids{11, 10});
  CHECK(Opened(file).encode("<s> a", special) == Ids{1, 5, 10});
  CHECK(Opened(sentencepiece(pieces)).encode("<|user|> a", special) == Ids{11, 5, 10});
}

TEST_CASE("a vocabulary with U+2581 inside a token is not split into words first") {
  auto pieces = kSmallSpm;
  pieces.push_back({"a▁", -0.5F});
  pieces.push_back({"a▁b", -0.25F});
  CHECK(Opened(sentencepiece(pieces)).encode("a b") == Ids{5, 12});
}

TEST_CASE("BPE and SentencePiece joins equal the definition: always the best pair of all") {
  CHECK(rc::check("random merges on random words", [] {
    const auto letter = rc::gen::element('a', 'b', 'c');
    const auto part = rc::gen::resize(3, rc::gen::nonEmpty(rc::gen::container<std::string>(letter)));
    std::vector<std::string> merges;
    std::map<std::pair<std::string, std::string>, std::size_t> ranks;
    std::vector<std::pair<std::string, int>> more;
    std::map<std::string, std::int32_t> ids{{"a", 'a'}, {"b", 'b'}, {"c", 'c'}};
    for (const auto& [left, right] :
         *rc::gen::container<std::vector<std::pair<std::string, std::string>>>(rc::gen::pair(part, part))) {
      merges.push_back(left + " " + right);
      ranks.emplace(std::pair(left, right), merges.size());
      for (const auto& token : {left, right, left + right})
        if (ids.emplace(token, 256 + static_cast<std::int32_t>(more.size())).second) more.emplace_back(token, kNormal);
    }
    // Some words are long enough for the second implementation of the pair queue.
    auto text = *rc::gen::container<std::string>(letter);
    if (!text.empty() && *rc::gen::inRange(0, 3) == 0)
      while (text.size() < 600) text += text;

    std::vector<std::string> symbols;
    for (const char c : text) symbols.emplace_back(1, c);
    for (;;) {
      std::size_t best = SIZE_MAX, at = 0;
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
        if (const auto rank = ranks.find({symbols[i], symbols[i + 1]}); rank != ranks.end() && rank->second < best)
          std::tie(best, at) = std::pair(rank->second, i);
      if (best == SIZE_MAX) break;
      symbols[at] += symbols[at + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    Ids wanted;
    for (const auto& symbol : symbols) wanted.push_back(ids.at(symbol));
    RC_ASSERT(Opened(byte_level(more, merges)).encode(text) == wanted);
  }));
}

TEST_CASE("a megabyte of one letter, or of noise, takes linear time") {
  // Quadratic joining would take hours here: the test is that it ends.
  const Opened bpe(byte_level({{"aa", 1}, {"aaaa", 1}}, {"a a", "aa aa"}));
  const std::string letters(1 << 20, 'a');
  CHECK(bpe.encode(letters).size() == letters.size() / 4);
  CHECK(bpe->decode(bpe.encode(letters)) == letters);
  auto pieces = kSmallSpm;
  pieces.push_back({"aa", -1});
  CHECK(Opened(sentencepiece(pieces)).encode(letters).size() == letters.size() / 2 + 1);
  std::string angles;
  for (int i = 0; i < 1 << 18; ++i) angles += "<a><";
  CHECK(Opened(byte_level({{"<a>", kControl}}, {})).encode(angles, {.parse_special = true}).size() == 1 << 19);
  std::vector<std::pair<std::string, int>> runs;  // a list of all matches would have half a billion entries
  for (std::size_t bytes = 2; bytes <= 512; ++bytes) runs.emplace_back(std::string(bytes, 'a'), kUser);
  CHECK(Opened(byte_level(runs, {})).encode(letters).size() == letters.size() / 512);
}

TEST_CASE("any bytes can be encoded, and byte-level BPE gives well-formed text back") {
  const Opened bpe(byte_level({{"ab", 1}, {"Ġa", 1}, {"<x>", kControl}}, {"a b", "Ġ a"}));
  const Opened spm(sentencepiece(kSmallSpm));
  CHECK(rc::check("encode never throws; decode(encode(x)) == x", [&] {
    const auto bytes = *rc::gen::container<std::string>(rc::gen::arbitrary<char>());
    for (const bool special : {false, true}) {
      for (const auto id : bpe.encode(bytes, {special, special})) RC_ASSERT(id >= 0 && id < bpe->vocab_size());
      for (const auto id : spm.encode(bytes, {special, special})) RC_ASSERT(id >= 0 && id < spm->vocab_size());
    }
    std::string ascii;
    for (const char c : bytes) ascii += static_cast<char>(c & 0x7F);
    RC_ASSERT(bpe->decode(bpe.encode(ascii)) == ascii);
  }));
}
