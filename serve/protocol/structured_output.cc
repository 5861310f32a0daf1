#include "serve/protocol/structured_output.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "serve/protocol/json_fields.h"

namespace forge::serve {
namespace {

using text::constraint::ConstraintSource;
using text::constraint::ConstraintSyntax;

constexpr std::size_t kChoicesMax = 1024;
constexpr std::string_view kAnyObject = R"({"type":"object"})";

ConstraintSource schema_of(std::string_view member, const Json& value) {
  if (value.is_object() || value.is_boolean()) return {ConstraintSyntax::kJsonSchema, value.dump()};
  if (value.is_string()) return {ConstraintSyntax::kJsonSchema, value.get<std::string>()};
  refuse_value(member, fmt::format("{} is not a JSON schema", member));
}

ConstraintSource text_of(std::string_view member, const Json& value, ConstraintSyntax syntax) {
  if (!value.is_string() || value.get_ref<const std::string&>().empty())
    refuse_value(member, fmt::format("{} is not a string with text", member));
  return {syntax, value.get<std::string>()};
}
ConstraintSource regex_of(std::string_view member, const Json& value) {
  return text_of(member, value, ConstraintSyntax::kRegex);
}
ConstraintSource grammar_of(std::string_view member, const Json& value) {
  return text_of(member, value, ConstraintSyntax::kGbnf);
}

/// One of the strings, as a grammar of literals.
ConstraintSource choice_of(std::string_view member, const Json& value) {
  if (!value.is_array() || value.empty() || value.size() > kChoicesMax)
    refuse_value(member, fmt::format("{} is not a list of 1 to {} strings", member, kChoicesMax));
  std::string grammar = "root ::= ";
  for (const auto& choice : value) {
    if (!choice.is_string()) refuse_value(member, fmt::format("{} has a choice that is not a string", member));
    grammar += &choice == &value.front() ? "\"" : " | \"";
    for (const char byte : choice.get_ref<const std::string&>()) {
      const auto code = static_cast<unsigned char>(byte);
      const bool plain = code >= 0x20 && code != 0x7F && byte != '"' && byte != '\\';
      grammar += plain ? std::string(1, byte) : fmt::format("\\x{:02X}", code);
    }
    grammar += '"';
  }
  return {ConstraintSyntax::kGbnf, std::move(grammar)};
}

/// {"type": "text" | "json_object" | "json_schema", ...}; the schema in json_schema.schema, or as llama.cpp has it in
/// schema.
std::optional<ConstraintSource> format_of(const Json& value) {
  constexpr std::string_view kMember = "response_format";
  if (!value.is_object()) refuse_value(kMember, "response_format is not an object");
  Fields fields(value, "response_format.");
  const auto type = fields.text("type").value_or("");
  if (type == "text") {
    fields.done();
    return std::nullopt;
  }
  if (type != "json_object" && type != "json_schema")
    refuse_value(kMember, "response_format.type is not text, json_object or json_schema");
  const auto* schema = fields.take("schema");
  const auto* named = type == "json_schema" ? fields.take("json_schema") : nullptr;
  fields.done();
  if (named != nullptr) {
    if (!named->is_object()) refuse_value(kMember, "response_format.json_schema is not an object");
    if (schema != nullptr) refuse_value(kMember, "response_format has two schemas: in json_schema, and in schema");
    Fields inner(*named, "response_format.json_schema.");
    schema = inner.take("schema");
    (void)inner.text("name");
    (void)inner.text("description");
    (void)inner.boolean("strict", true);  // what constrains the text is always obeyed as a whole
    inner.done();
  } else if (type == "json_schema" && schema == nullptr) {
    refuse_value(kMember, "response_format.json_schema is missing");
  }
  if (schema == nullptr) return ConstraintSource{ConstraintSyntax::kJsonSchema, std::string(kAnyObject)};
  return schema_of(kMember, *schema);
}

struct Member {
  std::string_view name;
  ConstraintSource (*read)(std::string_view member, const Json& value);
};
constexpr std::array kMembers{Member{"guided_json", schema_of},   Member{"guided_regex", regex_of},
                              Member{"guided_choice", choice_of}, Member{"guided_grammar", grammar_of},
                              Member{"json_schema", schema_of},   Member{"grammar", grammar_of}};
constexpr std::array kInnerMembers{Member{"json", schema_of}, Member{"regex", regex_of}, Member{"choice", choice_of},
                                   Member{"grammar", grammar_of}};

}  // namespace

std::optional<StructuredOutput> read_structured_output(Fields& fields) {
  std::optional<StructuredOutput> found;
  const auto add = [&](std::string_view member, ConstraintSource source) {
    if (found) refuse_value(member, fmt::format("{} and {} cannot be used together", found->member, member));
    found = StructuredOutput{.source = std::move(source), .member = std::string(member)};
  };
  if (const auto* format = fields.take("response_format"))
    if (auto source = format_of(*format)) add("response_format", *std::move(source));
  for (const auto& [name, read] : kMembers)
    if (const auto* value = fields.take(name)) add(name, read(name, *value));
  const auto* outputs = fields.take("structured_outputs");
  if (outputs == nullptr) return found;
  if (!outputs->is_object()) refuse_value("structured_outputs", "structured_outputs is not an object");
  Fields inner(*outputs, "structured_outputs.");
  for (const auto& [name, read] : kInnerMembers)
    if (const auto* value = inner.take(name)) add("structured_outputs", read("structured_outputs", *value));
  if (inner.boolean("json_object", false))
    add("structured_outputs", {ConstraintSyntax::kJsonSchema, std::string(kAnyObject)});
  inner.ignore({"disable_fallback", "_backend", "_backend_was_auto"});  // whose texts are the same
  inner.only("disable_any_whitespace", false, "white space in JSON is the schema's to allow");
  inner.only("disable_additional_properties", false, "give additionalProperties in the schema");
  for (const auto* name : {"whitespace_pattern", "structural_tag"})
    if (inner.take(name) != nullptr) inner.refuse(name, "it is not supported");
  inner.done();
  return found;
}

}  // namespace forge::serve
