// RWKV's tokenizer: the longest token from the left, with tokens spelled as Python does.

#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "tests/text/opened.h"

using namespace forge;
using namespace forge::tests;
using Ids = std::vector<std::int32_t>;

namespace {

/// Tokens as a GGUF file of RWKV spells them. Ids 1 .. 256 are the bytes, as in the "World" vocabulary.
std::vector<std::string> rwkv_tokens(const std::vector<std::string>& more) {
  std::vector<std::string> tokens{"<s>"};
  for (int byte = 0; byte < 256; ++byte) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    const char c = static_cast<char>(byte);
    if (c == '\t' || c == '\n' || c == '\r')
      tokens.emplace_back(c == '\t' ? "\\t" : c == '\n' ? "\\n" : "\\r");
    else if (byte < 0x20 || byte >= 0x7F)
      tokens.push_back(
          {'\\', 'x', kDigits[static_cast<std::size_t>(byte / 16)], kDigits[static_cast<std::size_t>(byte % 16)]});
    else
      tokens.emplace_back(c == '\\' ? "\\\\" : std::string(1, c));
  }
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

GgufWriter rwkv(const std::vector<std::string>& tokens) {
  std::vector<std::int32_t> types(tokens.size(), kNormal);
  types[0] = kControl;
  for (std::size_t id = 0; id < tokens.size(); ++id)
    if (tokens[id].starts_with("[PAD")) types[id] = kUnused;
  GgufWriter w("rwkv7");
  w.add("tokenizer.ggml.model", "rwkv").add("tokenizer.ggml.tokens", tokens).add("tokenizer.ggml.token_type", types);
  w.add("tokenizer.ggml.bos_token_id", 0U).add("tokenizer.ggml.eos_token_id", 0U);
  return w;
}

constexpr std::int32_t byte_id(unsigned char byte) {
  return byte + 1;
}

}  // namespace

TEST_CASE("RWKV: the longest token from the left, as bytes, whatever would be shorter in all") {
  const Opened t(
      rwkv(rwkv_tokens({"ab", "abc", "cdefg", "\\xe6\\x97", "\\xe6\\x97\\xa5", "\\n\\n", "it\\'s", "[PAD264]"})));
  CHECK(t->warnings().empty());
  CHECK(t.encode("abcdefg") == Ids{258, byte_id('d'), byte_id('e'), byte_id('f'), byte_id('g')});  // not ab cdefg
  CHECK(t.encode("abab c") == Ids{257, 257, byte_id(' '), byte_id('c')});
  CHECK(t.encode("日\xE6\x97\xFF") == Ids{261, 260, byte_id(0xFF)});
  CHECK(t.encode("\n\n\n\\x") == Ids{262, byte_id('\n'), byte_id('\\'), byte_id('x')});
  CHECK(t.encode("it's") == Ids{263});
  CHECK(t.encode(std::string_view("\0a", 2)) == Ids{byte_id(0), byte_id('a')});
  CHECK(t.encode("").empty());
}

TEST_CASE("RWKV: control tokens are not text, padding covers nothing, and decoding unescapes") {
  const Opened t(rwkv(rwkv_tokens({"\\n\\n", "a\\\\b", "[PAD259]"})));
  CHECK(t.encode("<s>") == Ids{byte_id('<'), byte_id('s'), byte_id('>')});
  CHECK(t.encode("<s>a", {.parse_special = true}) == Ids{0, byte_id('a')});
  CHECK(t.encode("a", {.add_special = true}) == Ids{byte_id('a')});  // the file does not ask for BOS
  CHECK(t.encode("[PAD259]").size() == 8);
  CHECK(t->decode(Ids{257, 258, byte_id(0xE6), 0}) == "\n\na\\b\xE6");
  CHECK(t->decode(Ids{0}, true) == "<s>");
  CHECK(t->end_of_generation() == Ids{0});
  CHECK(t->describe() == "RWKV, longest token first");
}

TEST_CASE("RWKV: of two spellings of the same bytes the last counts; a byte without a token is the unknown token") {
  CHECK(Opened(rwkv({"<s>", "a", "\\x61"})).encode("ba") == Ids{2});
  auto w = rwkv({"<s>", "a", "<unk>"});
  w.add("tokenizer.ggml.unknown_token_id", 2U);
  CHECK(Opened(w).encode("ba") == Ids{2, 1});
}

TEST_CASE("RWKV: damaged escapes are refused with the token; so are long tokens, with a warning") {
  for (const std::string token : {"a\\", "\\x", "\\x4", "\\xg0", "\\x+1", "\\x 1"}) {
    INFO(token);
    CHECK(refusal_of(rwkv({"<s>", "a", token})).find("token 2 is '") != std::string::npos);
  }
  const Opened t(rwkv(rwkv_tokens({std::string(1024, 'a'), std::string(1025, 'a')})));
  REQUIRE(t->warnings().size() == 1);
  CHECK(t->warnings()[0].find("1 tokens are longer than 1024 bytes") != std::string::npos);
  CHECK(t.encode(std::string(2049, 'a')) == Ids{257, 257, byte_id('a')});
}

TEST_CASE("RWKV: the same ids as a search through all tokens") {
  CHECK(rc::check("longest match", [] {
    const auto letters = rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::element('a', 'b', '\xE6', '\n')));
    auto tokens = *rc::gen::container<std::vector<std::string>>(rc::gen::resize(5, letters));
    for (const char c : {'a', 'b', '\xE6'}) tokens.emplace_back(1, c);  // no line break: some bytes are unknown
    std::ranges::sort(tokens);
    tokens.erase(std::ranges::unique(tokens).begin(), tokens.end());
    std::vector<std::string> spelled{"<s>"};
    for (const auto& token : tokens) {
      auto& text = spelled.emplace_back();
      for (const char c : token) text += c == '\n' ? "\\n" : c == '\xE6' ? "\\xe6" : std::string(1, c);
    }
    const std::string text = *rc::gen::resize(30, letters);
    Ids expected;
    for (std::size_t at = 0; at < text.size();) {
      std::size_t best = tokens.size(), bytes = 0;
      for (std::size_t i = 0; i < tokens.size(); ++i)
        if (tokens[i].size() > bytes && text.compare(at, tokens[i].size(), tokens[i]) == 0) {
          best = i;
          bytes = tokens[i].size();
        }
      if (bytes != 0) expected.push_back(static_cast<std::int32_t>(best) + 1);
      at += std::max<std::size_t>(bytes, 1);
    }
    RC_ASSERT(Opened(rwkv(spelled)).encode(text) == expected);
  }));
}
