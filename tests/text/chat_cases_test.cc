// The chat template engine against jinja2: random templates from the grammar in chat_cases.json, compared by hash with
// jinja2's output. chat_compare.py writes that file; FORGE_CHAT_CASES names another one.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "support/error.h"
#include "tests/text/splitmix.h"
#include "text/chat/chat.h"

using namespace forge::text;
using namespace forge::text::jinja;

namespace {

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The same template generator as in chat_compare.py: expands the grammar with splitmix64.
class Templates {
 public:
  Templates(const Dict& grammar, std::uint64_t seed) : grammar_(grammar), random_(seed) {}

  // NOLINTNEXTLINE(misc-no-recursion)
  std::string expand(const std::string& rule, std::uint64_t depth) {
    std::vector<const std::vector<Value>*> groups;
    std::uint64_t weights = 0;
    for (const Value& group : grammar_.find(rule)->list().items) {
      const auto& items = group.list().items;
      if (depth == 0 && items[1].text().find("@^") != std::string::npos) continue;
      groups.push_back(&items);
      weights += static_cast<std::uint64_t>(items[0].integer());
    }
    std::uint64_t at = random_.below(weights);
    std::size_t chosen = 0;
    for (; at >= static_cast<std::uint64_t>(groups[chosen]->front().integer()); ++chosen)
      at -= static_cast<std::uint64_t>(groups[chosen]->front().integer());
    std::istringstream text((*groups[chosen])[1 + random_.below(groups[chosen]->size() - 1)].text());
    std::string out;
    bool name = false;
    for (std::string part; std::getline(text, part, '@'); name = !name) {
      const std::size_t colon = part.find(':');
      if (!name)
        out += part;
      else if (part[0] == '^')
        out += expand(part.substr(1), depth - 1);
      else
        out += expand(part.substr(0, colon), colon == part.npos ? depth : std::stoull(part.substr(colon + 1)));
    }
    return out;
  }

 private:
  const Dict& grammar_;
  forge::tests::SplitMix random_;
};

/// FNV-1a, 32 bits, as eight hexadecimal digits; the same as in chat_compare.py.
std::string digest(const std::string& text) {
  std::uint32_t hash = 0x811C9DC5U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193U;
  std::string digits(8, '0');
  for (std::size_t i = 8; i-- > 0; hash >>= 4) digits[i] = "0123456789abcdef"[hash & 15];
  return digits;
}

}  // namespace

TEST_CASE("thousands of random templates render as in jinja2, or are refused where jinja2 refuses", "[cases]") {
  const char* own = std::getenv("FORGE_CHAT_CASES");
  const std::string text = read(own != nullptr ? own : FORGE_CHAT_FIXTURE);
  REQUIRE_FALSE(text.empty());
  const ChatRequest request = parse_chat_request(text);
  const Dict& context = request.extra.find("context")->dict();
  const Value* texts = request.extra.find("texts");
  Templates templates(request.extra.find("grammar")->dict(),
                      static_cast<std::uint64_t>(request.extra.find("seed")->integer()));
  std::size_t rendered = 0, wrong = 0, i = 0;
  for (const Value& line : request.extra.find("digests")->list().items) {
    std::istringstream digests(line.text());
    for (std::string expected; digests >> expected; ++i) {
      const std::string source = templates.expand("template", 2);
      if (expected == "-") continue;
      rendered += expected != "!" ? 1 : 0;
      std::string got, error;
      try {
        got = ChatTemplate::parse(source).render(context, Clock::parse("2026-01-15T12:30:00"));
      } catch (const forge::Error& failure) {
        error = failure.line();
      }
      if ((error.empty() ? digest(got) : "!") == expected || ++wrong > 40) continue;
      UNSCOPED_INFO("template: " << source
                                 << "\nexpected: " << (texts != nullptr ? texts->list().items[i].text() : expected)
                                 << "\ngot: " << got << error << "\n--");
    }
  }
  CHECK(wrong == 0);
  CHECK(rendered >= 2000U);
}
