#include "text/answer/tool_types.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "support/error.h"
#include "support/json_text.h"
#include "text/answer/json_scanner.h"
#include "text/answer/literal_reader.h"
#include "text/answer/local_reference.h"
#include "text/answer/white_space.h"

namespace forge::text {
namespace {

using nlohmann::json;

/// Work on the types of one list of tools; what is left is unknown. A schema of 4 MiB without shared parts takes less.
constexpr std::size_t kWorkMax = 200'000;

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

/// The types that a schema says by its other keywords.
ValueTypes types_by_keywords(const json& schema) {
  if (schema.contains("properties") || schema.contains("additionalProperties")) return kObjectType;
  if (schema.contains("items")) return kArrayType;
  return schema.contains("pattern") || schema.contains("maxLength") ? kStringType : 0;
}

/// Finds the types that parts of one document allow. Each part is looked at once for a parameter, because schemas may
/// refer to themselves, and in a loop, because a chain of references can be long.
class TypeFinder {
 public:
  TypeFinder(const json& root, std::size_t& work) : root_(root), work_(work) {}

  ValueTypes types_of(const json& schema) {
    types_ = hints_ = 0;
    seen_.clear();
    add(schema);
    while (!left_.empty() && work_ < kWorkMax) {
      const auto& part = *left_.back();
      left_.pop_back();
      ++work_;
      look_at(part);
    }
    left_.clear();
    return types_ != 0 ? types_ : hints_;
  }

 private:
  void add(const json& schema) {
    if (schema.is_object() && seen_.insert(&schema).second) left_.push_back(&schema);
  }

  void look_at(const json& schema) {
    if (const auto type = schema.find("type"); type != schema.end()) {
      if (!type->is_array()) {
        types_ |= type_named(*type);
        return;
      }
      for (const auto& name : *type) types_ |= type_named(name);
    } else if (const auto ref = schema.find("$ref"); ref != schema.end() && refers(*ref)) {
      return;
    } else if (const auto constant = schema.find("const"); constant != schema.end()) {
      types_ |= type_of_value(*constant);
    } else if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
      work_ += values->size();
      for (const auto& value : *values) types_ |= type_of_value(value);
    } else {
      const auto by_keywords = types_by_keywords(schema);
      (add_parts(schema) ? hints_ : types_) |= by_keywords;
    }
  }

  /// Returns false for a reference to another document.
  bool refers(const json& ref) {
    if (!ref.is_string()) return false;
    const auto& path = ref.get_ref<const std::string&>();
    if (!path.starts_with("#/")) return false;
    work_ += path.size() / 16;
    if (const auto* part = local_reference(root_, ref)) add(*part);
    return true;
  }

  /// Returns true if the schema is made of others.
  bool add_parts(const json& schema) {
    bool any = false;
    for (const char* const key : {"anyOf", "oneOf", "allOf"}) {
      const auto parts = schema.find(key);
      if (parts == schema.end() || !parts->is_array()) continue;
      for (const auto& part : *parts) add(part);
      any = any || !parts->empty();
    }
    return any;
  }

  const json& root_;
  std::size_t& work_;
  std::unordered_set<const json*> seen_;
  std::vector<const json*> left_;
  ValueTypes types_ = 0;
  ValueTypes hints_ = 0;  ///< of schemas that are also made of others; used if these say nothing
};

/// The schema that the root refers to, through any number of references; the last one before a reference that points
/// to no schema.
const json& referred(const json* root) {
  constexpr int kReferencesMax = 16;
  const json* schema = root;
  for (int i = 0; i < kReferencesMax; ++i) {
    const auto ref = schema->find("$ref");
    const auto* next = ref != schema->end() ? local_reference(*root, *ref) : nullptr;
    if (next == nullptr || !next->is_object()) break;
    schema = next;
  }
  return *schema;
}

}  // namespace

ToolTypes ToolTypes::parse(std::string_view text) {
  const json tools = json::parse(text, nullptr, false);
  if (tools.is_discarded() || (!tools.is_array() && !tools.is_null()))
    throw Error(ErrorCode::kUsage, "\"tools\" is not a list");
  ToolTypes out;
  std::size_t work = 0;
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
    const json& object = referred(&*schema);
    TypeFinder finder(*schema, work);
    const auto required = object.find("required"), others = object.find("additionalProperties");
    if (required != object.end() && required->is_array() && others != object.end())
      for (const auto& key : *required)
        if (key.is_string()) types[key.get<std::string>()] = finder.types_of(*others);
    const auto properties = object.find("properties");
    if (properties == object.end() || !properties->is_object()) continue;
    for (const auto& [key, value] : properties->items()) types[key] = finder.types_of(value);
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
