// Streaming text: the stream never emits part of a character or part of a stop string, and its text does not depend on
// how the tokens are cut into pieces.

#include "text/tokenizer/detokenizer.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>

#include "tests/support/gguf_writer.h"

using namespace forge;
using text::Detokenizer;
using text::StopMatcher;

namespace {

/// Pushes `text` in pieces of `step` bytes, then flushes. Returns everything that was emitted.
template <class Stream>
std::string push_all(Stream& stream, std::string_view text, std::size_t step) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += std::min(step, text.size())) {
    if constexpr (std::is_same_v<Stream, Detokenizer>) {
      out += stream.push_bytes(text.substr(at, step));
    } else {
      out += stream.push(text.substr(at, step));
    }
  }
  out += stream.flush();
  return out;
}

struct Bytes {
  Bytes() : file(writer().bytes()), gguf(loader::Gguf::from(std::as_bytes(std::span(file)))) {}
  static tests::GgufWriter writer() {
    tests::GgufWriter w("llama");
    std::vector<std::string> tokens{"<unk>", "<s>", "</s>"};
    std::vector<std::int32_t> types{2, 3, 3};
    for (int byte = 0; byte < 256; ++byte) {
      char text[8];
      std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(byte));
      tokens.emplace_back(text);
      types.push_back(6);
    }
    w.add("tokenizer.ggml.model", "llama").add("tokenizer.ggml.tokens", tokens);
    return w.add("tokenizer.ggml.token_type", types);
  }
  std::string file;
  loader::Gguf gguf;
  std::unique_ptr<text::Tokenizer> tokenizer = text::Tokenizer::open(gguf);
};

}  // namespace

TEST_CASE("a character is emitted with its last byte") {
  const Bytes bytes;
  Detokenizer stream(*bytes.tokenizer);
  const auto byte = [](int value) { return value + 3; };
  CHECK(stream.push(byte('a')) == "a");
  CHECK(stream.push(byte(0xF0)).empty());
  CHECK(stream.push(byte(0x9F)).empty());
  CHECK(stream.push(byte(0xA6)).empty());
  CHECK(stream.push(byte(0x99)) == "🦙");
  CHECK(stream.push(1).empty());  // a control token
  CHECK(stream.push(byte(0xE6)).empty());
  CHECK(stream.flush() == "\uFFFD");
  CHECK(stream.flush().empty());
}

TEST_CASE("bytes that cannot become a character are replaced by U+FFFD at once") {
  const Bytes bytes;
  Detokenizer stream(*bytes.tokenizer);
  CHECK(stream.push_bytes("\xFF"
                          "a\x80") ==
        "\uFFFD"
        "a\uFFFD");
  CHECK(stream.push_bytes("\xC0") == "\uFFFD");
  CHECK(stream.push_bytes("\xED\xA0") == "\uFFFD\uFFFD");  // a surrogate
  CHECK(stream.push_bytes("\xE6\x97").empty());
  CHECK(stream.push_bytes("x") == "\uFFFDx");  // one replacement for the two bytes of the incomplete sequence
}

TEST_CASE("for any pieces the text is the same, and each part is well-formed UTF-8") {
  const Bytes bytes;
  CHECK(rc::check("cut anywhere", [&] {
    const auto text = *rc::gen::container<std::string>(
        rc::gen::oneOf(rc::gen::arbitrary<char>(), rc::gen::element('\xE6', '\x97', '\xA5', '\xF0', '\x9F', 'a')));
    const auto step = *rc::gen::inRange<std::size_t>(1, 6);
    Detokenizer whole(*bytes.tokenizer), cut(*bytes.tokenizer), again(*bytes.tokenizer);
    const std::string first = push_all(whole, text, SIZE_MAX);
    RC_ASSERT(push_all(cut, text, step) == first);
    RC_ASSERT(push_all(again, first, SIZE_MAX) == first);
  }));
}

TEST_CASE("a stop string is found across pieces; a possible beginning of one is held back") {
  StopMatcher stream({"STOP", "", "\n\nUser:"});
  CHECK(stream.push("abcS") == "abc");
  CHECK(stream.push("TO").empty());
  CHECK(stream.push("RE ST") == "STORE ");
  CHECK(stream.push("S") == "ST");
  CHECK(stream.push("TOP and more").empty());
  CHECK(stream.matched() == "STOP");
  CHECK(stream.push("nothing").empty());
  CHECK(stream.flush().empty());
}

TEST_CASE("text that was held back is emitted at the end") {
  StopMatcher stream({"aab"});
  CHECK(stream.push("xaa") == "x");
  CHECK(stream.push("a") == "a");
  CHECK(stream.flush() == "aa");
  CHECK_FALSE(stream.matched());
}

TEST_CASE("an empty piece, as from a token in the middle of a character, changes nothing") {
  StopMatcher stream({"ab"});
  CHECK(stream.push("xa") == "x");
  CHECK(stream.push("").empty());
  CHECK(stream.push("b").empty());
  CHECK(stream.matched() == "ab");
}

TEST_CASE("without stop strings all text passes") {
  StopMatcher stream({""});
  CHECK(stream.push("abc") == "abc");
  CHECK_FALSE(stream.matched());
}

TEST_CASE("the first stop string to end is found, as by a plain search, for any pieces") {
  CHECK(rc::check("against std::string::find", [] {
    const auto letters = rc::gen::container<std::string>(rc::gen::element('a', 'b'));
    const auto text = *rc::gen::resize(40, letters);
    const auto stops = *rc::gen::resize(4, rc::gen::container<std::vector<std::string>>(rc::gen::resize(4, letters)));
    const auto step = *rc::gen::inRange<std::size_t>(1, 5);
    std::size_t first_end = SIZE_MAX, bytes = 0;
    for (const auto& stop : stops) {
      const auto at = stop.empty() ? std::string::npos : text.find(stop);
      if (at == std::string::npos) continue;
      const std::size_t end = at + stop.size();
      if (end < first_end || (end == first_end && stop.size() > bytes))
        std::tie(first_end, bytes) = std::pair(end, stop.size());
    }
    StopMatcher stream(stops);
    const std::string out = push_all(stream, text, step);
    RC_ASSERT(stream.matched().has_value() == (first_end != SIZE_MAX));
    RC_ASSERT(out == (first_end == SIZE_MAX ? text : text.substr(0, first_end - bytes)));
  }));
}
