#include "text/answer/tool_types.h"

#include <nlohmann/json.hpp>

#include "support/error.h"
#include "support/json_text.h"
#include "text/answer/json_scanner.h"
#include "text/answer/literal_reader.h"
#include "text/answer/white_space.h"

namespace forge::text {
namespace {

using nlohmann::json;

constexpr int kSchemaDepthMax = 16;

ValueTypes type_named(const json& name) {
  if (name == "string") return kStringType;
  if (name == "number" || name == "integer") return kNumberType;
  if (name == "boolean") return kBooleanType;
  if (name == "null") return kNullType;
  if (name == "object") return kObjectType;
  return name == "array" ? kArrayType : 0;
}

ValueTypes type_of_value(const json& value) {
  if (value.is_string()) return kStringType;
  if (value.is_number()) return kNumberType;
  if (value.is_boolean()) return kBooleanType;
  if (value.is_null()) return kNullType;
  return value.is_object() ? kObjectType : kArrayType;
}

/// The types that `schema`, a part of `root`, allows.
ValueTypes types_of(const json& schema, const json& root, int depth) {
  if (!schema.is_object() || depth == kSchemaDepthMax) return 0;
  ValueTypes types = 0;
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (type->is_array())
      for (const auto& name : *type) types |= type_named(name);
    else
      types = type_named(*type);
    return types;
  }
  if (const auto ref = schema.find("$ref"); ref != schema.end() && ref->is_string()) {
    const auto& path = ref->get_ref<const std::string&>();
    if (path.starts_with("#/")) {
      try {
        return types_of(root.at(json::json_pointer(path.substr(1))), root, depth + 1);
      } catch (const json::exception&) {
        return 0;  // it points nowhere
      }
    }
  }
  if (const auto constant = schema.find("const"); constant != schema.end()) return type_of_value(*constant);
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
    for (const auto& value : *values) types |= type_of_value(value);
    return types;
  }
  for (const char* const key : {"anyOf", "oneOf", "allOf"}) {
    const auto parts = schema.find(key);
    if (parts == schema.end() || !parts->is_array()) continue;
    for (const auto& part : *parts) types |= types_of(part, root, depth + 1);
  }
  if (types == 0 && (schema.contains("properties") || schema.contains("additionalProperties"))) types = kObjectType;
  if (types == 0 && schema.contains("items")) types = kArrayType;
  if (types == 0 && (schema.contains("pattern") || schema.contains("maxLength"))) types = kStringType;
  return types;
}

}  // namespace

ToolTypes ToolTypes::parse(std::string_view text) {
  const json tools = json::parse(text, nullptr, false);
  if (tools.is_discarded() || (!tools.is_array() && !tools.is_null()))
    throw Error(ErrorCode::kUsage, "\"tools\" is not a list");
  ToolTypes out;
  for (const auto& tool : tools) {
    if (!tool.is_object()) continue;
    const auto inner = tool.find("function");
    const json& function = inner != tool.end() && inner->is_object() ? *inner : tool;
    const auto name = function.find("name");
    if (name == function.end() || !name->is_string()) continue;
    auto& types = out.tools_[name->get<std::string>()];
    auto schema = function.find("parameters");
    if (schema == function.end()) schema = function.find("input_schema");
    if (schema == function.end() || !schema->is_object()) continue;
    const auto properties = schema->find("properties");
    if (properties == schema->end() || !properties->is_object()) continue;
    for (const auto& [key, value] : properties->items()) types[key] = types_of(value, *schema, 0);
  }
  return out;
}

bool ToolTypes::begins(std::string_view text) const {
  const auto found = tools_.lower_bound(text);
  return found != tools_.end() && found->first.starts_with(text);
}

ValueTypes ToolTypes::types(std::string_view tool, std::string_view parameter) const {
  const auto found = tools_.find(tool);
  if (found == tools_.end()) return 0;
  const auto type = found->second.find(parameter);
  return type == found->second.end() ? 0 : type->second;
}

std::string json_of_value(std::string_view text, ValueTypes types) {
  const std::string_view value = trimmed(text);
  const char first = value.empty() ? '\0' : value.front();
  if (types == kStringType) return json_string(text);
  if ((types & kBooleanType) != 0) {
    if (value == "true" || value == "True") return "true";
    if (value == "false" || value == "False") return "false";
  }
  if ((types & kNullType) != 0 && (value == "null" || value == "None")) return "null";
  const bool number = first == '-' || (first >= '0' && first <= '9');
  if ((((types & kNumberType) != 0 && number) || ((types & kObjectType) != 0 && first == '{') ||
       ((types & kArrayType) != 0 && first == '[')) &&
      is_json(value))
    return std::string(value);
  if (((types & kObjectType) != 0 && first == '{') || ((types & kArrayType) != 0 && (first == '[' || first == '('))) {
    if (std::string literal = json_of_literal(value); !literal.empty()) return literal;
  }
  if ((types & kStringType) == 0 && is_json(value)) return std::string(value);
  return json_string(text);
}

}  // namespace forge::text
