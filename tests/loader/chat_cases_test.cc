// Templates made at random by chat_compare.py, with what jinja2 rendered them to.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "loader/chat/chat.h"
#include "support/error.h"

using namespace forge::loader::chat;

namespace {

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("random templates render as jinja2 renders them", "[cases]") {
  const char* own = std::getenv("FORGE_CHAT_CASES");
  const std::string text = read(own != nullptr ? own : FORGE_CHAT_FIXTURE);
  REQUIRE_FALSE(text.empty());
  const ChatRequest request = parse_chat_request(text);
  const Dict& context = request.extra.find("context")->dict();
  std::size_t wrong = 0;
  for (const Value& item : request.extra.find("cases")->list().items) {
    const std::string& source = item.dict().find("template")->text();
    const Value* expected = item.dict().find("output");
    std::string got, error;
    try {
      got = ChatTemplate::parse(source).render(context, Clock::parse("2026-01-15T12:30:00"));
    } catch (const forge::Error& failure) {
      error = failure.line();
    }
    const bool right = expected != nullptr ? error.empty() && got == expected->text() : !error.empty();
    if (right || ++wrong > 40) continue;
    UNSCOPED_INFO("template: " << source << "\nexpected: "
                               << (expected != nullptr ? expected->text() : item.dict().find("error")->text())
                               << "\ngot: " << got << error << "\n--");
  }
  CHECK(wrong == 0);
}
