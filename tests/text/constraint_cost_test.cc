// What masks cost, counted in memory for states, and that the short ways to them are exact: choices of keys, strings.

#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/text/byte_trie.h"
#include "tests/text/splitmix.h"
#include "text/constraint/constraint.h"

using namespace forge;
using namespace forge::tests;
using namespace forge::text::constraint;

namespace {

/// The end token, every byte, and texts around quotes, escapes, keys and characters of several bytes.
std::shared_ptr<const TokenTrie> quoted_trie() {
  static const auto trie = [] {
    std::vector<std::string> tokens;
    SplitMix random{11};
    const std::vector<std::string> parts{"a", "b", "é", "\"", "\\", ",", ":", " ", "p1", "\xC3", "{", "}", "1", "東"};
    for (int i = 0; i < 3000; ++i) {
      std::string text;
      for (auto n = random.below(9) + 2; n > 0; --n) text += parts[random.below(parts.size())];
      tokens.push_back(text);
    }
    tokens.emplace_back(40, 'a');
    return byte_trie(tokens);
  }();
  return trie;
}

/// Tokens of a walk along `text` on which the mask and accept() differ.
std::size_t differences(const std::shared_ptr<CompiledConstraint>& compiled, const std::string& text) {
  Constraint constraint(compiled);
  std::size_t wrong = 0;
  for (const char byte : text) {
    const auto span = constraint.mask();
    const std::vector<std::uint32_t> mask(span.begin(), span.end());
    for (std::int32_t id = 1; id < static_cast<std::int32_t>(quoted_trie()->vocab()); ++id) {
      const bool taken = constraint.accept(id);
      if (taken) constraint.roll_back(1);
      wrong += taken != allows(mask, static_cast<std::size_t>(id));
    }
    if (!constraint.accept(static_cast<unsigned char>(byte) + 1)) return SIZE_MAX;
  }
  return constraint.can_end() ? wrong : SIZE_MAX;
}

std::string object_schema(int properties, int length_max) {
  std::string list;
  for (int i = 0; i < properties; ++i)
    list += fmt::format(R"({}"p{:03}": {{"type": "string", "maxLength": {}}})", i > 0 ? "," : "", i, length_max);
  return fmt::format(R"({{"type": "object", "properties": {{{}}}, "additionalProperties": false}})", list);
}

/// Bytes of states that masks along `text` add to those of the first one.
std::size_t growth(const std::string& schema, const std::string& text) {
  const auto compiled = compile({ConstraintSyntax::kJsonSchema, schema}, quoted_trie());
  Constraint constraint(compiled);
  (void)constraint.mask();
  const auto before = compiled->memory_bytes();
  for (const char byte : text) {
    CHECK(constraint.accept(static_cast<unsigned char>(byte) + 1));
    (void)constraint.mask();
  }
  CHECK(constraint.can_end());
  return compiled->memory_bytes() - before;
}

std::string tools_pieces(int tools) {
  std::string choice;
  for (int i = 0; i < tools; ++i) {
    std::string list;
    for (int k = 0; k < 8; ++k)
      list += fmt::format(R"({}\"field_{}_{}\": {{\"type\": \"{}\"}})", k > 0 ? ", " : "", i % 7, k,
                          k % 2 == 0 ? "string" : "integer");
    choice += fmt::format(
        R"({}["{{\"name\": \"tool_{}\", \"arguments\": ", {{"schema": "{{\"type\": \"object\", \"title\": \"{}\", )"
        R"(\"properties\": {{{}}}, \"required\": [\"field_{}_0\"], \"additionalProperties\": false}}"}}, "}}"])",
        i > 0 ? "," : "", i, i, list, i % 7);
  }
  return fmt::format(R"([{{"choice": [{}]}}])", choice);
}

}  // namespace

TEST_CASE("masks inside strings and before keys are those of accept()", "[constraint]") {
  const std::vector<std::pair<std::string, std::string>> cases{
      {R"({"type": "string"})", R"("aé\n東")"},
      {R"({"type": "string", "maxLength": 4})", R"("aéb\n")"},
      {R"({"type": "string", "minLength": 3, "maxLength": 19})", R"("aé\"ba")"},
      {R"({"type": "array", "items": {"type": "string", "minLength": 2}})", R"(["ab", "aéa","bb"])"},
      {R"({"enum": ["ab", "é", "a,b"]})", R"("a,b")"},
      {R"({"properties": {"a": {}, "ab": {"type": "string"}, "b": {"const": 1}, "p1": {}, "p1a": {}}, "required": ["b"]})",
       R"({"ab":"é", "b":1,"p1":"a","x":{}})"},
      {R"({"properties": {"a": {"type": "string"}, "ab": {}, "b": {"properties": {"a": {"const": 1}}}, "é\"": {}},
          "additionalProperties": false, "maxProperties": 3})",
       R"({"a":"é", "b":{"a":1},"é\"":[]})"},
      {R"({"type": "array", "items": {"properties": {"a": {"type": "string"}, "b": {}}, "required": ["a", "b"],
          "additionalProperties": false}})",
       R"([{"a":"","b":"x"},{"a":"b","b":1}])"},
  };
  for (const auto& [schema, text] : cases) {
    INFO(schema << "  along  " << text);
    CHECK(differences(compile({ConstraintSyntax::kJsonSchema, schema}, quoted_trie()), text) == 0);
  }
}

TEST_CASE("masks cost the same for any number of properties and any length", "[constraint]") {
  const std::string text = R"({"p000":"abc", "p001":"a","p003":"","p012":"abcabc"})";
  const auto few = growth(object_schema(20, 20), text);
  CHECK(growth(object_schema(400, 20), text) < few * 2);
  CHECK(growth(object_schema(20, 20'000), text) < few * 2);
}

TEST_CASE("a hundred tools in one constraint", "[constraint]") {
  std::vector<std::size_t> bytes;
  for (const int tools : {10, 100}) {
    const auto compiled = compile({ConstraintSyntax::kCalls, tools_pieces(tools)}, quoted_trie());
    Constraint constraint(compiled);
    (void)constraint.mask();
    bytes.push_back(compiled->memory_bytes());
  }
  CHECK(bytes[1] < bytes[0] * 12);
  CHECK(bytes[1] < std::size_t{16} << 20);
}

TEST_CASE("a length beside an expression costs states near its end only", "[constraint]") {
  const std::size_t length = 200;
  const auto used = growth(R"({"type": "string", "pattern": "^[a-c:]+(-[a-c]+)*$", "maxLength": 5000})",
                           '"' + std::string(length, 'a') + '"');
  // Masks that each state had for itself would alone be this much.
  CHECK(used < length * TokenTrie::kBands * quoted_trie()->mask_words() * sizeof(std::uint32_t));
  CHECK_NOTHROW(compile(
      {ConstraintSyntax::kJsonSchema, R"({"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083})"},
      quoted_trie()));
}
