// PLaMo 2's tokenizer, with a second implementation that tries every token at every character.

#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/support/sanitizers.h"
#include "tests/text/opened.h"

using namespace forge;
using namespace forge::tests;
using Ids = std::vector<std::int32_t>;

namespace {

/// The byte tokens have the ids 4 .. 259, `more` those from 260 on.
constexpr std::int32_t kFirstByte = 4, kFirst = 260;

std::vector<Piece> plamo_pieces(const std::vector<Piece>& more) {
  std::vector<Piece> pieces{{"<|plamo:unk|>", 0, kUnknown},
                            {"<|plamo:bos|>", 0, kControl},
                            {"<|plamo:eos|>", 0, kControl},
                            {"<|plamo:pad|>", 0, kControl}};
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(byte));
    pieces.push_back({text, 0, kByte});
  }
  pieces.insert(pieces.end(), more.begin(), more.end());
  return pieces;
}
GgufWriter plamo(const std::vector<Piece>& more) {
  return scored("plamo2", plamo_pieces(more));
}

Ids bytes_of(std::string_view text) {
  Ids ids;
  for (const char c : text) ids.push_back(kFirstByte + static_cast<unsigned char>(c));
  return ids;
}

/// The definition: the best sum of scores from each character to the end, then the longest token; characters without
/// one are spelled in bytes. `characters` are those of the text.
Ids second_opinion(const std::vector<Piece>& more, const std::vector<std::string>& characters) {
  constexpr std::int64_t kBytes = -10'000'000;
  const std::size_t count = characters.size();
  std::vector<std::int64_t> best(count + 1, 0);
  std::vector<std::size_t> length(count, 1);
  std::vector<std::int32_t> chosen(count, -1);
  for (std::size_t at = count; at-- > 0;) {
    best[at] = std::numeric_limits<std::int64_t>::min();
    std::string run;
    for (std::size_t end = at; end < count; ++end) {
      run += characters[end];
      for (std::size_t i = 0; i < more.size(); ++i) {
        if (more[i].text != run || more[i].type != kNormal) continue;
        const std::int64_t sum = std::llround(double{more[i].score} * 1e4) + best[end + 1];
        if (sum < best[at]) continue;
        best[at] = sum;
        length[at] = end + 1 - at;
        chosen[at] = static_cast<std::int32_t>(i);
      }
    }
    if (best[at] >= kBytes + best[at + 1]) continue;
    best[at] = kBytes + best[at + 1];
    length[at] = 1;
    chosen[at] = -1;
  }
  Ids ids;
  for (std::size_t at = 0; at < count; at += length[at]) {
    if (chosen[at] >= 0)
      ids.push_back(kFirst + chosen[at]);
    else
      std::ranges::copy(bytes_of(characters[at]), std::back_inserter(ids));
  }
  return ids;
}

}  // namespace

TEST_CASE("PLaMo 2: the best sum of scores; of equal sums the longest first token") {
  const Opened t(plamo({{"a", -3}, {"b", -4}, {"ab", -5}, {"abc", -9}, {"c", -4}, {"bc", -6}, {" ", -1}}));
  CHECK(t->warnings().empty());
  CHECK(t.encode("ab") == Ids{262});
  CHECK(t.encode("abc") == Ids{263});  // abc = a bc = ab c = -9
  CHECK(t.encode("aabc b") == Ids{260, 263, 266, 261});
  CHECK(t.encode("").empty());
  CHECK(t.encode("a", {.add_special = true}) == Ids{260});
  auto adds = plamo({{"a", -3}});
  adds.add("tokenizer.ggml.add_bos_token", true);
  CHECK(Opened(adds).encode("a", {.add_special = true}) == Ids{1, 260});
  CHECK(t->describe() == "PLaMo 2, best sum of scores");
}

TEST_CASE("PLaMo 2: what no token covers is spelled in bytes, also inside a character's run") {
  const Opened t(plamo({{"日", -2}, {"日本", -3}, {"x", -999}, {"y", -1001}, {"yy", -1999}, {"z", -2000}}));
  CHECK(t.encode("日本é日") == Ids{261, kFirstByte + 0xC3, kFirstByte + 0xA9, 260});
  CHECK(t.encode("x") == Ids{262});
  CHECK(t.encode("yyy") == Ids{264, kFirstByte + 'y'});  // y yy has the same sum: bytes lose
  CHECK(t.encode("z") == bytes_of("z"));                 // -2000 and less: never used
  CHECK(t.encode("\xFF") == bytes_of("\uFFFD"));
  CHECK(t->decode(t.encode("日本é日\xF0\x9F\xA6\x99")) == "日本é日\xF0\x9F\xA6\x99");
}

TEST_CASE("PLaMo 2: control tokens are not text; padding, unusable scores and broken tokens cover nothing") {
  const Opened t(plamo({{"a", std::numeric_limits<float>::quiet_NaN()},
                        {"b", -std::numeric_limits<float>::infinity()},
                        {"[PAD1]", -1000, kUnused},
                        {"\xE6\x97", -1},
                        {"c", 3e38F}}));
  CHECK(t.encode("<|plamo:eos|>") == bytes_of("<|plamo:eos|>"));
  CHECK(t.encode("<|plamo:eos|>", {.parse_special = true}) == Ids{2});
  CHECK(t.encode("[PAD1]") == bytes_of("[PAD1]"));
  CHECK(t.encode("ab日") == bytes_of("ab日"));
  CHECK(t.encode("cc") == Ids{264, 264});
}

TEST_CASE("PLaMo 2: a vocabulary without scores or without a byte is refused") {
  auto pieces = plamo_pieces({});
  pieces[kFirstByte + 0x41].text = "A";
  CHECK(refusal_of(scored("plamo2", pieces)).find("no token <0x41>") != std::string::npos);
  GgufWriter none("plamo2");
  none.add("tokenizer.ggml.model", "plamo2").add("tokenizer.ggml.tokens", {"a", "b"});
  CHECK(refusal_of(none).find("the vocabulary has no scores") != std::string::npos);
}

TEST_CASE("PLaMo 2: a megabyte of one letter takes linear time") {
  const Opened t(plamo({{"a", -1}, {std::string(1024, 'a'), -2}}));
  constexpr std::size_t kBytes = sized(1 << 20);
  CHECK(t.encode(std::string(kBytes, 'a')).size() == kBytes / 1024);
}

TEST_CASE("PLaMo 2: the same ids as the definition") {
  CHECK(rc::check("best sum", [] {
    const auto character = rc::gen::element<std::string>("a", "b", "é", "日", "\xF0\x9F\xA6\x99");
    const auto word = rc::gen::resize(4, rc::gen::nonEmpty(rc::gen::container<std::vector<std::string>>(character)));
    std::vector<Piece> more;
    for (const auto& characters :
         *rc::gen::resize(12, rc::gen::container<std::vector<std::vector<std::string>>>(word))) {
      std::string text;
      for (const auto& one : characters) text += one;
      if (std::ranges::find(more, text, &Piece::text) != more.end()) continue;
      // Few scores, so that many sums are equal; -1000 is what a character in bytes costs.
      more.push_back({text, *rc::gen::element(-1.0F, -2.0F, -3.0F, -1000.0F, -2000.0F)});
      if (more.back().score == -2000) more.back().type = kUnused;  // not used either way
    }
    const auto characters = *rc::gen::resize(20, rc::gen::container<std::vector<std::string>>(character));
    std::string text;
    for (const auto& one : characters) text += one;
    RC_ASSERT(Opened(plamo(more)).encode(text) == second_opinion(more, characters));
  }));
}
