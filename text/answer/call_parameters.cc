#include "text/answer/call_parameters.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "support/error.h"
#include "text/answer/local_reference.h"

namespace forge::text {
namespace {

using Json = ToolJson;

/// Whether a schema refers to what is neither in "$defs" nor in "definitions".
bool refers_elsewhere(const Json& schema) {
  if (schema.is_array()) return std::ranges::any_of(schema, refers_elsewhere);
  if (!schema.is_object()) return false;
  for (const auto& [key, value] : schema.items()) {
    const bool is_reference = key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef" || key == "$id";
    if (is_reference && value.is_string()) {
      const auto& to = value.get_ref<const std::string&>();
      if (key != "$ref" || (!to.starts_with("#/$defs/") && !to.starts_with("#/definitions/"))) return true;
    }
    if (refers_elsewhere(value)) return true;
  }
  return false;
}

/// What says nothing about values.
bool is_annotation(std::string_view keyword) {
  constexpr std::string_view kWords[] = {"description", "title",      "default",     "examples",  "example",
                                         "$comment",    "deprecated", "readOnly",    "writeOnly", "nullable",
                                         "$schema",     "$defs",      "definitions", "strict"};
  return std::ranges::find(kWords, keyword) != std::end(kWords);
}

/// Whether the value of the keyword "type" names this one.
bool names(const Json& types, std::string_view type) {
  return types == type || (types.is_array() && std::ranges::find(types, Json(type)) != types.end());
}

}  // namespace

CallParameters::CallParameters(const Json& root) : root_(root), object_(&root) {
  find_object();
  const Json none = Json::object(), nothing = Json::array();
  const Json& properties = member("properties", none);
  const Json& required = member("required", nothing);
  if (!properties.is_object()) refuse("properties");
  if (!required.is_array()) refuse("required");
  for (const auto& [key, value] : properties.items()) {
    const bool is_needed = std::ranges::find(required, Json(key)) != required.end();
    (is_needed ? needed : others).push_back({key, &value, (at_ / "properties" / key).to_string()});
  }
  for (const auto& name : required)
    if (name.is_string() && !properties.contains(name.get_ref<const std::string&>())) add_undeclared(name);
  if (number("minProperties", 0) > needed.size()) refuse("minProperties");
  if (number("maxProperties", SIZE_MAX) < needed.size() + others.size()) refuse("maxProperties");
}

void CallParameters::refuse(std::string_view keyword) {
  throw Error(ErrorCode::kUsage,
              std::string(keyword) + " of a tool's parameters is not supported with this model's calls");
}
const Json& CallParameters::member(const char* key, const Json& otherwise) const {
  const auto found = object_->find(key);
  return found != object_->end() ? *found : otherwise;
}
std::size_t CallParameters::number(const char* key, std::size_t otherwise) const {
  const auto found = object_->find(key);
  if (found == object_->end()) return otherwise;
  if (!found->is_number_unsigned()) refuse(key);
  return found->get<std::size_t>();
}

/// Follows references at the root. What else says something about an object is refused.
void CallParameters::find_object() {
  constexpr int kReferencesMax = 16;
  for (int i = 0;; ++i) {
    const auto reference = object_->find("$ref");
    const bool refers = reference != object_->end();
    for (const std::string_view key :
         {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas",
          "dependencies", "propertyNames", "patternProperties", "enum", "const", "$dynamicRef", "$recursiveRef"})
      if (object_->contains(key)) refuse(key);
    for (const std::string_view key :
         {"properties", "required", "additionalProperties", "minProperties", "maxProperties"})
      if (refers && object_->contains(key)) refuse("$ref beside other keywords");
    if (!refers) return;
    const auto* next = local_reference(root_, *reference);
    if (i == kReferencesMax || next == nullptr || !next->is_object()) refuse("$ref");
    const auto& to = reference->get_ref<const std::string&>();
    if (to.contains('%')) refuse("$ref");
    object_ = next;
    at_ = Json::json_pointer(to.substr(1));
  }
}

/// A required name that is no property.
void CallParameters::add_undeclared(const Json& name) {
  static const Json kAny = true;
  const auto found = object_->find("additionalProperties");
  if (found != object_->end() && found->is_boolean() && !found->get<bool>()) refuse("required");
  const bool has = found != object_->end();
  needed.push_back(
      {name.get<std::string>(), has ? &*found : &kAny, (has ? at_ / "additionalProperties" : at_).to_string()});
}

PlacedSchema placed_schema(const Json& root, const CallParameters::One& one) {
  const Json& part = *one.schema;
  if (part.is_boolean() && part.get<bool>()) return {"{}", {}};
  bool elsewhere = refers_elsewhere(part);
  Json out = part.is_object() ? part : Json::object();
  if (part.is_boolean() && !part.get<bool>()) out["not"] = Json::object();
  for (const char* const key : {"$schema", "$defs", "definitions"})
    if (const auto found = root.find(key); found != root.end() && !out.contains(key)) {
      elsewhere = elsewhere || refers_elsewhere(*found);
      out[key] = *found;
    }
  if (elsewhere) return {root.dump(), one.at};
  return {out.dump(), {}};
}

bool takes_any_text(const Json& schema) {
  if (!schema.is_object()) return schema.is_boolean() && schema.get<bool>();
  return std::ranges::all_of(schema.items(), [](const auto& item) {
    const auto& [key, value] = item;
    // A whole number is read as any number is.
    return key == "type" ? names(value, "string") && !names(value, "integer") : is_annotation(key);
  });
}

}  // namespace forge::text
