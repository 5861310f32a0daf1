// JSON schemas and GBNF grammars through token masks: what they allow, what is refused and how, dead ends and sizes.

#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/error_of.h"
#include "tests/support/skip.h"
#include "tests/text/byte_trie.h"
#include "tests/text/splitmix.h"
#include "text/constraint/constraint.h"

using namespace forge;
using namespace forge::tests;
using namespace forge::text::constraint;

namespace {

/// The end token, every byte, and texts as real vocabularies have them.
std::shared_ptr<const TokenTrie> json_trie() {
  static const auto trie =
      byte_trie({"{\"",  "\":", "\": ", "\",", "\", \"",   "\"}", "\"]", "}}", "true", "null", "abc",
                 "name", "12",  "é",    "東",  "\",\"a\"", "],",  "[[",  "  ", "\\n",  "-1",   "0.5"});
  return trie;
}

std::shared_ptr<CompiledConstraint> schema_of(const std::string& text) {
  return compile({ConstraintSyntax::kJsonSchema, text}, json_trie());
}

/// Whether a text is allowed, by masks; they and accept() must agree.
bool takes(const std::shared_ptr<CompiledConstraint>& compiled, const std::string& text) {
  Constraint constraint(compiled);
  for (const auto id : json_trie()->spelled(text)) {
    const bool allowed = (constraint.mask()[static_cast<std::size_t>(id) / 32] >> id % 32 & 1U) != 0;
    CHECK(constraint.accept(id) == allowed);
    if (!allowed) return false;
  }
  CHECK((constraint.mask()[0] & 1U) == static_cast<std::uint32_t>(constraint.can_end()));
  return constraint.can_end();
}

struct SchemaCase {
  std::string schema;
  std::vector<std::string> accept, reject;
};

void check_cases(const std::vector<SchemaCase>& cases) {
  for (const auto& [schema, accept, reject] : cases) {
    const auto compiled = schema_of(schema);
    for (const auto& text : accept) {
      INFO(schema << "  takes  " << text);
      CHECK(takes(compiled, text));
    }
    for (const auto& text : reject) {
      INFO(schema << "  takes  " << text);
      CHECK_FALSE(takes(compiled, text));
    }
  }
}

std::string schema_refusal(const std::string& schema) {
  return error_of([&] { (void)schema_of(schema); }, ErrorCode::kUsage);
}

}  // namespace

TEST_CASE("values without structure", "[schema]") {
  check_cases({
      {"true",
       {"null", "-0.5e3", "\"a\\u00e9\"", "[]", "{\"a\": [1, {}]}"},
       {"", "nul", "[1,]", "01", "\"\n\"", "{\"a\"}"}},
      {R"({"type": ["integer", "null"]})", {"0", "-12", "null"}, {"1.5", "\"1\"", "true", "-0", "007"}},
      {R"({"type": "integer", "minimum": -120, "maximum": -7})",
       {"-7", "-99", "-120"},
       {"-6", "-121", "7", "0", "-1200"}},
      {R"({"type": "number", "exclusiveMinimum": 0.25, "maximum": 10.5})",
       {"0.26", "0.2501", "10.5", "9.99", "1"},
       {"0.25", "0.2", "10.51", "11", "-1", "0"}},
      {R"({"multipleOf": 0.25})", {"0.5", "-1.75", "12", "\"a\""}, {"0.3", "0.126", "1.1"}},
      {R"({"type": "integer", "multipleOf": 7, "minimum": 100})", {"105", "1001"}, {"98", "100", "106"}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})", {"\"東é\"", "\"\\n\\\"a\""}, {"\"a\"", "\"abcd\""}},
      {R"({"type": "string", "pattern": "^a\"+$"})", {R"("a\"")", R"("a\"\"")"}, {"\"a\"", R"("a\\")"}},
      {R"({"type": "string", "pattern": "^[a-c]+$", "maxLength": 3})", {"\"abc\""}, {"\"abca\"", "\"d\"", "\"\""}},
      {R"({"type": "string", "format": "date"})", {"\"2024-02-29\""}, {"\"2023-02-29\"", "\"2024-13-01\""}},
      {R"({"type": "string", "format": "no such format"})", {"\"abc\""}, {"1"}},
      {R"({"format": "ipv6"})",
       {"\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"::ffff:1.2.3.4\""},
       {"\"1::2::3\"", "\":1\"", "\"12345::\""}},
      {R"({"enum": [1, "a", null, {"b": [2]}, 1.5]})",
       {"1", "\"a\"", "null", "{\"b\": [2]}", "1.5"},
       {"2", "{\"b\": []}", "{}"}},
      {R"({"const": [1, {"a": true}]})", {"[1, {\"a\": true}]", "[1,{\"a\":true}]"}, {"[1]", "[1, {\"a\": false}]"}},
  });
}

TEST_CASE("objects", "[schema]") {
  check_cases({
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]})",
       {R"({"a": 1})", R"({"a":1,"b":"x"})", R"({"a": 1, "c": [null]})", "{\n  \"a\": 1\n}"},
       {"{}", R"({"a": "1"})", R"({"a": 1, "b": 2})", R"({"a": 1, "a": 2})", R"({"a": 1,})", "[]"}},
      {R"({"type": "object", "properties": {"ab": {}}, "additionalProperties": false})",
       {"{}", R"({"ab": 0})"},
       {R"({"a": 0})", R"({"abc": 0})"}},
      {R"({"type": "object", "patternProperties": {"^x": {"type": "integer"}, "y$": {"minimum": 5}}, "additionalProperties": {"type": "null"}})",
       {R"({"x": 1, "z": null})", R"({"xy": 7})"},
       {R"({"xy": 3})", R"({"x": null})", R"({"z": 1})", R"({"xy": 7.5})"}},
      {R"({"type": "object", "patternProperties": {"^.$": {"type": "integer"}}, "additionalProperties": {"type": "number"}})",
       {R"({"x": 1, "": 1.5})", R"({"\r": 1})"},
       {R"({"x": 1.5})", R"({"\r": 1.5})"}},
      {R"({"type": "object", "patternProperties": {"^.$": {"minimum": 2}}, "additionalProperties": false})",
       {R"({"x": 2})"},
       {R"({"x": 1})", R"({"\r": 2})", R"({"\n": 2})", "{\"\u2028\": 2}"}},
      {R"({"type": "object", "patternProperties": {"^\\s$": {"type": "null"}}})",
       {R"({" ": null})", "{\"\uFEFF\": null}", "{\"\uFEFFx\": 1}"},
       {R"({" ": 1})", "{\"\uFEFF\": 1}"}},
      {R"({"type": "object", "minProperties": 2, "maxProperties": 3})",
       {R"({"a": 1, "b": 2})", R"({"a": 1, "b": 2, "c": 3})"},
       {"{}", R"({"a": 1})", R"({"a": 1, "a": 2})", R"({"a":1,"b":2,"c":3,"d":4})"}},
      {R"({"propertyNames": {"maxLength": 2}})", {R"({"ab": 1})"}, {R"({"abc": 1})"}},
      {R"({"properties": {"a": false}, "type": "object"})", {"{}", R"({"b": 1})"}, {R"({"a": 1})"}},
      {R"({"dependentRequired": {"a": ["b"]}})", {R"({"b": 1})", R"({"a": 1, "b": 2})"}, {R"({"a": 1})"}},
      {R"({"dependentSchemas": {"a": {"properties": {"b": {"type": "null"}}}}})",
       {R"({"b": 1})", R"({"a": 1, "b": null})"},
       {R"({"a": 1, "b": 1})"}},
      {R"({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}], "unevaluatedProperties": false})",
       {R"({"a": 1, "b": 2})", "{}"},
       {R"({"c": 1})"}},
      {R"({"anyOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}], "unevaluatedProperties": false})",
       {R"({"a": 1})", R"({"b": 1})", R"({"a": 1, "b": 2})"},
       {R"({"a": 2, "b": 2})", R"({"a": 1, "c": 2})"}},
  });
}

TEST_CASE("members come in the schema's order, other names behind them", "[schema]") {
  check_cases({
      {R"({"properties": {"b": {}, "a": {}, "c": {}}, "required": ["a", "z"]})",
       {R"({"b": 1, "a": 2, "c": 3, "z": 4, "other": 5})", R"({"a": 2, "z": 4})"},
       {R"({"a": 1, "b": 2, "z": 3})", R"({"b": 1, "c": 2, "a": 3, "z": 4})", R"({"other": 1, "a": 2, "z": 3})",
        R"({"z": 1, "a": 2})", R"({"b": 1, "a": 2, "a": 3, "z": 4})"}},
      {R"({"properties": {"z": {"properties": {"y": {}, "x": {}}}}, "allOf": [{"properties": {"k": {}, "a": {}}}]})",
       {R"({"z": {"y": 1, "x": 2}, "k": 1, "a": 2})"},
       {R"({"z": {"x": 1, "y": 2}})", R"({"a": 1, "k": 2})", R"({"k": 1, "z": 2})"}},
      {R"({"oneOf": [{"properties": {"a": {}, "v": {"const": 1}}, "required": ["v"]}, {"properties": {"a": {}, "b": {}, "v": {"const": 2}}, "required": ["v"]}]})",
       {R"({"a": 1, "v": 1})", R"({"a": 1, "v": 2, "b": 3})"},
       {R"({"a": 1, "b": 3, "v": 2})"}},
      {R"({"allOf": [{"oneOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]}, {"properties": {"c": {}}}]})",
       {R"({"b": 1, "c": 2})", R"({"a": 1, "c": 2})"},
       {R"({"c": 1, "b": 2})"}},
      // Names that no schema declares as its own have no place.
      {R"({"enum": [{"b": 1, "a": 2}]})", {R"({"a": 2, "b": 1})", R"({"b": 1, "a": 2})"}, {R"({"a": 2})"}},
      {R"({"properties": {"a": {}}, "dependentRequired": {"x": ["y"]}})",
       {R"({"y": 1, "a": 2, "x": 3})", R"({"x": 1, "other": 2, "y": 3})"},
       {R"({"x": 1, "a": 2})", R"({"other": 2, "a": 3})"}},
      // Members may be left out only as long as there are enough.
      {R"({"properties": {"a": {}, "b": {}, "c": {}}, "additionalProperties": false, "minProperties": 2})",
       {R"({"a": 1, "c": 2})", R"({"b": 1, "c": 2})"},
       {R"({"c": 1, "a": 2})", R"({"a": 1})"}},
      {R"({"properties": {"a": {}}, "patternProperties": {"^[xy]$": {}}, "additionalProperties": false, "minProperties": 3})",
       {R"({"a": 1, "y": 2, "x": 3})"},
       {R"({"x": 1, "y": 2})", R"({"a": 1, "x": 2, "x": 3})"}},
  });
  // No beginning leads into a dead end.
  const auto least = schema_of(
      R"({"properties": {"a": {}, "b": {}, "c": {}}, "additionalProperties": false, "minProperties": 2, "type": "object"})");
  Constraint constraint(least);
  for (const char c : std::string("{\"")) CHECK(constraint.accept(static_cast<std::uint8_t>(c) + 1));
  CHECK_FALSE(constraint.accept('c' + 1));
  const auto few = schema_of(
      R"({"properties": {"a": {}}, "patternProperties": {"^x$": {}}, "additionalProperties": false, "minProperties": 2, "type": "object"})");
  Constraint second(few);
  for (const char c : std::string("{\"")) CHECK(second.accept(static_cast<std::uint8_t>(c) + 1));
  CHECK_FALSE(second.accept('x' + 1));
  // Optional members have as many states as there are members.
  std::string many = R"({"additionalProperties": false, "type": "object", "properties": {)";
  for (int i = 10; i < 60; ++i) many += fmt::format("{}\"p{}\": {{\"const\": 1}}", i > 10 ? ", " : "", i);
  const auto optional = schema_of(many + "}}");
  for (int i = 0; i < 1000; ++i) {
    std::string text;
    for (int j = 10; j < 60; ++j)
      if ((i * 7919 >> j % 13 & 1) != 0) text += fmt::format("{}\"p{}\":1", text.empty() ? "" : ",", j);
    CHECK(takes(optional, "{" + text + "}"));
  }
  CHECK(optional->memory_bytes() < 4 << 20);
}

TEST_CASE("arrays", "[schema]") {
  check_cases({
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})",
       {"[1, 2]", "[1,2,3]"},
       {"[1]", "[1,2,3,4]", "[1,\"a\"]"}},
      {R"({"type": "array", "prefixItems": [{"type": "string"}, {"type": "null"}], "items": false})",
       {"[]", "[\"a\"]", "[\"a\", null]"},
       {"[null]", "[\"a\", null, 1]"}},
      {R"({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}, "minItems": 2})",
       {"[\"a\", 1, 2]"},
       {"[\"a\"]", "[\"a\",\"b\"]"}},
      {R"({"type": "array", "contains": {"const": 7}, "maxContains": 2})",
       {"[7]", "[1, 7, 7]"},
       {"[]", "[1]", "[7,7,7]"}},
      {R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true})",
       {"[]", "[\"a\", \"b\"]", "[\"\", \"a\"]"},
       {"[\"a\", \"a\"]", "[\"\",\"\"]", "[\"a\",\"b\",\"a\"]"}},
      {R"({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": true})", {"[2, 1]"}, {"[1, 1]", "[1, 2, 1]"}},
      {R"({"prefixItems": [{}], "contains": {"type": "null"}, "unevaluatedItems": false})",
       {"[1, null]", "[null]"},
       {"[1]", "[1, 2]", "[1,null,2]"}},
      {R"({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "null"}], "additionalItems": {"type": "integer"}})",
       {"[null, 1]", "[]"},
       {"[1]", "[null, null]"}},
  });
}

TEST_CASE("combined and recursive schemas", "[schema]") {
  check_cases({
      {R"({"oneOf": [{"type": "integer"}, {"minimum": 2}]})", {"1", "2.5"}, {"3", "1.5"}},
      {R"({"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"})",
       {R"({"a": 1})", R"({"b": 1})"},
       {R"({"a": 1, "b": 1})", "{}"}},
      {R"({"not": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}})",
       {"1", "{}", R"({"a": 1})"},
       {R"({"a": "x"})"}},
      {R"({"type": "object", "not": {"additionalProperties": {"type": "null"}}})",
       {R"({"a": 1})", R"({"a": null, "b": 1})"},
       {"{}", R"({"a": null})"}},
      {R"({"type": "array", "not": {"items": {"type": "integer"}}})", {"[1, null]"}, {"[]", "[1]"}},
      {R"({"not": {"enum": ["a", 1]}, "type": ["string", "integer"]})", {"\"b\"", "\"\"", "2"}, {"\"a\"", "1"}},
      {R"({"if": {"properties": {"k": {"const": 1}}, "required": ["k"]}, "then": {"required": ["a"]}, "else": {"required": ["b"]}, "type": "object"})",
       {R"({"k": 1, "a": 0})", R"({"k": 2, "b": 0})", R"({"b": 0})"},
       {R"({"k": 1, "b": 0})", R"({"k": 2, "a": 0})", "{}"}},
      {R"({"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#"}}, "required": ["v"], "additionalProperties": false})",
       {R"({"v": 1, "next": {"v": 2}})"},
       {R"({"v": 1, "next": {}})"}},
      {R"({"$id": "http://x.example/root.json", "$ref": "b.json#c", "$defs": {"b": {"$id": "b.json", "$defs": {"c": {"$anchor": "c", "type": "null"}}}}})",
       {"null"},
       {"1"}},
      // A property that needs itself for ever is never begun.
      {R"({"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"type": "null"}}, "additionalProperties": false,
           "$defs": {"n": {"type": "object", "required": ["n"], "properties": {"n": {"$ref": "#/$defs/n"}}}}})",
       {"{}", R"({"b": null})"},
       {R"({"a")"}},
  });
}

TEST_CASE("what is not supported or malformed is refused by keyword and path", "[schema]") {
  CHECK(schema_refusal(R"x({"properties": {"x": {"pattern": "(?=a)"}}})x") ==
        "error[usage]: JSON schema, #/properties/x/pattern: regular expression, byte 2: look-ahead is not supported");
  const std::vector<std::pair<std::string, std::string>> cases{
      {"{", "not valid JSON"},
      {"3", "neither an object nor true or false"},
      {R"({"items": {"type": "strin"}})", "#/items/type: it must name types of JSON"},
      {R"({"type": "array", "uniqueItems": true})", "#/uniqueItems: not supported for items that may be objects"},
      {R"({"$ref": "http://elsewhere.example/x.json"})",
       "#/$ref: http://elsewhere.example/x.json is not in this document"},
      {R"({"$ref": "#/$defs/a/b"})", "#/$ref: it points to nothing"},
      {R"({"$ref": "#"})", "endless recursion"},
      {R"({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#"}]}}})", "endless recursion"},
      {R"({"properties": {"a/b": {"minLength": -1}}})", "#/properties/a~1b/minLength: it must be a whole number"},
      {R"({"required": "a"})", "#/required: it must be a list of names"},
      {R"({"format": "regex", "type": "string"})", "#/format: the format regex is not supported"},
      {R"({"multipleOf": 0})", "#/multipleOf: it must be above 0"},
      {R"({"items": [{}]})", "#/items: it must be a schema"},
      {R"({"allOf": []})", "#/allOf: it must be a list of schemas"},
      {R"({"allOf": [{"type": "string"}, {"type": "null"}]})", "#/allOf: no value satisfies it"},
      {R"({"type": "object", "required": ["a"], "properties": {"a": false}})", "no value satisfies"},
      {R"({"type": "object", "properties": {"a": {}}, "patternProperties": {"^[xy]$": {}}, "additionalProperties": false,
           "minProperties": 4})",
       "no value satisfies"},
      {"false", "the boolean schema"},
  };
  for (const auto& [schema, why] : cases) {
    INFO(schema);
    CHECK_THAT(schema_refusal(schema), Catch::Contains(why));
  }
}

TEST_CASE("hostile schemas are bounded", "[schema]") {
  std::string deep = "{}", wide = R"({"type": "object", "properties": {)",
              chain = R"({"$ref": "#/$defs/d0", "$defs": {)";
  for (int i = 0; i < 5000; ++i) deep.insert(0, R"({"items": )").append("}");
  CHECK_THAT(schema_refusal(deep), Catch::Contains("nested deeper than 200 levels"));
  const auto brackets = std::string(400'000, '[') + std::string(400'000, ']');
  for (const auto* keyword : {"const", "enum", "default", "examples", "x"})
    CHECK_THAT(schema_refusal("{\"" + std::string(keyword) + "\": " + brackets + "}"),
               Catch::Contains("nested deeper than 200 levels"));
  CHECK_THAT(schema_refusal(std::string("{\"type\": \"string\"}\0{", 19)), Catch::Contains("not valid JSON"));
  CHECK_THAT(error_of([&] { (void)compile({ConstraintSyntax::kCalls, brackets}, json_trie()); }, ErrorCode::kUsage),
             Catch::Contains("nested deeper than"));
  std::string list = "1";
  for (int i = 0; i < 100'000; ++i) list += ",1";
  CHECK_THAT(schema_refusal("{\"const\": " + std::string(150, '[') + list + std::string(150, ']') + "}"),
             Catch::Contains("#/const: the schema is too complex"));
  for (int i = 0; i < 4000; ++i)
    chain += "\"d" + std::to_string(i) + R"(": {"$ref": "#/$defs/d)" + std::to_string(i + 1) + "\"}, ";
  CHECK_THAT(schema_refusal(chain + R"("d4000": {}}})"), Catch::Contains("too many schemas refer to each other"));
  std::string product = R"({"allOf": [)";
  for (int i = 0; i < 40; ++i) {
    const auto a = "\"a" + std::to_string(i) + "\"", b = "\"b" + std::to_string(i) + "\"";
    product += (i > 0 ? ", " : "") + (R"({"anyOf": [{"required": [)" + a + R"(]}, {"required": [)" + b + "]}]}");
  }
  CHECK_THAT(schema_refusal(product + "]}"), Catch::Contains("#/allOf: more than 300 alternatives"));
  for (int i = 0; i < 1000; ++i) wide += "\"p" + std::to_string(i * 7919 % 1009) + "\": {}, ";
  CHECK(takes(schema_of(wide + R"("q": {}}})"), R"({"p856": 1, "p703": 2, "q": 3})"));
  const auto counted = schema_of(
      R"({"type": "array", "minItems": 20000, "items": {"type": "array", "minItems": 20000, "items": {"maxLength": 20000, "type": "string"}}})");
  CHECK(counted->memory_bytes() < 1 << 20);
  CHECK_FALSE(takes(counted, R"([["a", "b"]])"));
}

TEST_CASE("grammars", "[gbnf]") {
  const auto grammar = [](const std::string& text) { return compile({ConstraintSyntax::kGbnf, text}, json_trie()); };
  const auto nested = grammar("root ::= \"(\" root* \")\" | [a-c]{2,3} # a comment\n");
  for (const char* text : {"()", "(abc(ab)())", "ab"}) CHECK(takes(nested, text));
  for (const char* text : {"(", "(a)", "abcd", "())"}) CHECK_FALSE(takes(nested, text));
  const auto lines = grammar("root ::= (a |\n  \"x\" \"\\\"\\x41\"\n)+\na ::= b? \"é\"\nb ::= [^0-9\\]]\n");
  for (const char* text : {"é", "aéx\"A", "東éé"}) CHECK(takes(lines, text));
  for (const char* text : {"", "1é", "x", "]é"}) CHECK_FALSE(takes(lines, text));
  // Rules that double each other stay small, and what never ends is left out.
  std::string doubling = "root ::= r0 | dead\ndead ::= \"a\" dead\n";
  for (int i = 0; i < 40; ++i)
    doubling += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " r" + std::to_string(i + 1) + "\n";
  const auto doubled = grammar(doubling + "r40 ::= \"b\"\n");
  CHECK(doubled->memory_bytes() < 1 << 20);
  CHECK_FALSE(takes(doubled, "a"));
  const std::vector<std::pair<std::string, std::string>> refused{
      {"a ::= \"a\"", "grammar, line 1: there is no rule named root"},
      {"root ::= a", "the rule a is not defined"},
      {"root ::= \"a\"\nroot ::= \"b\"", "grammar, line 2: the rule root is defined twice"},
      {"root ::= root \"a\" | \"b\"", "rule root: left recursion is not supported"},
      {"root ::= o root | \"b\"\no ::= \"a\"?", "left recursion"},
      {"root ::= \"a", "a literal or class is not closed"},
      {"root ::= (\"a\"", "a group ( is not closed"},
      {"root ::= \"a\"{3,2}", "out of order"},
      {"root ::= * \"a\"", "nothing to repeat"},
      {"root ::= \"\\q\"", "an unknown escape"},
      {"root ::= root2\nroot2 ::= \"a\" root2", "allows no text"},
      {"root = \"a\"", "::= is missing"},
  };
  for (const auto& [text, why] : refused) {
    INFO(text);
    CHECK_THAT(error_of([&] { (void)grammar(text); }, ErrorCode::kUsage), Catch::Contains(why));
  }
}

TEST_CASE("sequences share a compiled constraint, also after its pool was made again", "[schema]") {
  const auto compiled = schema_of(
      R"({"type": "array", "items": {"type": "array", "maxItems": 90, "items": {"type": "string", "maxLength": 5000}}})");
  Constraint waiting(compiled);
  for (const auto id : json_trie()->spelled("[[\"ab")) CHECK(waiting.accept(id));
  Constraint busy(compiled);
  CHECK(busy.accept('[' + 1));
  const auto before = compiled->memory_bytes();
  for (int i = 0; i < 90; ++i)
    for (const auto id : json_trie()->spelled((i > 0 ? ",[\"" : "[\"") + std::string(1000, 'x') + "\"]"))
      busy.accept(id);
  CHECK(before < compiled->memory_bytes());
  CHECK(takes(compiled, R"([["a"]])"));
  for (const auto id : json_trie()->spelled("\"]]")) CHECK(waiting.accept(id));
  CHECK(waiting.can_end());
  waiting.roll_back(2);
  CHECK_FALSE(waiting.can_end());
}

TEST_CASE("walks over allowed tokens never meet a dead end", "[schema][reference]") {
  const auto path = reference_file("agents/schemas.json");
  if (path.empty()) return;
  std::ifstream in(path);
  const auto entries = nlohmann::json::parse(in);
  std::size_t taken = 0, dead_ends = 0;
  for (std::size_t i = 0; i < entries.size(); i += 3) {
    std::shared_ptr<CompiledConstraint> compiled;
    try {
      compiled = schema_of(entries[i]["schema"].dump());
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kUser);
      continue;
    }
    ++taken;
    Constraint constraint(compiled);
    SplitMix random{i};
    for (int step = 0; step < 60; ++step) {
      std::vector<std::int32_t> allowed;
      const auto mask = constraint.mask();
      for (std::size_t id = 0; id < json_trie()->vocab(); ++id)
        if ((mask[id / 32] >> id % 32 & 1U) != 0) allowed.push_back(static_cast<std::int32_t>(id));
      dead_ends += allowed.empty();
      if (allowed.empty() || allowed[0] == 0) break;
      CHECK(constraint.accept(allowed[random.below(allowed.size())]));
    }
  }
  CHECK(dead_ends == 0);
  CHECK(taken > entries.size() / 3 * 85 / 100);
}
