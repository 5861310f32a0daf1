// The keywords that combine schemas.

#include <fmt/core.h>

#include <algorithm>

#include "text/constraint/schema/schema_normal.h"

namespace forge::text::constraint {
namespace {

constexpr std::size_t kTrackedMax = 4;  ///< alternatives whose combinations are told apart for unevaluated members

bool tracks(const NormalSchema& normal) {
  const auto any = [](const auto& cases, auto evaluated) { return std::ranges::any_of(cases, evaluated); };
  return any(normal.objects, [](const ObjectCase& one) { return one.evaluated != RegularPool::kEmpty; }) ||
         any(normal.arrays, [](const ArrayCase& one) { return one.evaluated != 0 || !one.evaluated_by.empty(); });
}

}  // namespace

const NormalSchema& SchemaNormalizer::sub(const SchemaJson& schema, const SchemaJson& part, std::string_view keyword) {
  if (!part.is_object() && !part.is_boolean()) document_.refuse(schema, keyword, "it must be a schema");
  return normal_of(ref(part));
}

void SchemaNormalizer::add_all(const SchemaJson& schema, NormalSchema& normal) {
  if (!schema.contains("allOf")) return;
  for (const auto& part : list_of(schema, "allOf"))
    normal = both(normal, sub(schema, part, "allOf"), {&schema, "allOf"});
}

void SchemaNormalizer::add_any(const SchemaJson& schema, NormalSchema& normal) {
  if (!schema.contains("anyOf")) return;
  const Place place{&schema, "anyOf"};
  std::vector<const NormalSchema*> parts;
  bool told_apart = false;
  for (const auto& part : list_of(schema, "anyOf")) {
    parts.push_back(&sub(schema, part, "anyOf"));
    told_apart |= document_.tracks_evaluated() && tracks(*parts.back());
  }
  NormalSchema sum;
  if (!told_apart) {
    for (const auto* part : parts) sum = either(std::move(sum), *part, place);
  } else {
    // What several alternatives together have evaluated is more than what one of them has.
    if (parts.size() > kTrackedMax)
      document_.refuse(schema, "anyOf",
                       "too many alternatives together with unevaluatedProperties or unevaluatedItems");
    for (unsigned chosen = 1; chosen < 1U << parts.size(); ++chosen) {
      auto all = anything();
      for (std::size_t i = 0; i < parts.size(); ++i)
        if ((chosen >> i & 1U) != 0) all = both(all, *parts[i], place);
      sum = either(std::move(sum), all, place);
    }
  }
  normal = both(normal, sum, place);
}

/// An alternative holds where the others do not. Where two of them exclude each other already, nothing is to be said.
void SchemaNormalizer::add_one(const SchemaJson& schema, NormalSchema& normal) {
  if (!schema.contains("oneOf")) return;
  const Place place{&schema, "oneOf"};
  std::vector<NormalSchema> parts;
  for (const auto& part : list_of(schema, "oneOf")) parts.push_back(both(normal, sub(schema, part, "oneOf"), place));
  std::vector<std::vector<std::size_t>> overlaps(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i)
    for (std::size_t j = i + 1; j < parts.size(); ++j)
      if (!proven_empty(both(parts[i], parts[j], place))) {
        overlaps[i].push_back(j);
        overlaps[j].push_back(i);
      }
  NormalSchema sum;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto one = parts[i];
    for (const auto j : overlaps[i]) {
      const auto& other = list_of(schema, "oneOf")[j];
      one = both(one, without(sub(schema, other, "oneOf"), place), place);
    }
    sum = either(std::move(sum), one, place);
  }
  normal = std::move(sum);
}

void SchemaNormalizer::add_not_and_if(const SchemaJson& schema, NormalSchema& normal) {
  if (schema.contains("not")) {
    const Place place{&schema, "not"};
    normal = both(normal, without(sub(schema, schema["not"], "not"), place), place);
  }
  if (!schema.contains("if") || document_.draft(schema) < SchemaDraft::k7) return;
  const Place place{&schema, "if"};
  const auto& condition = sub(schema, schema["if"], "if");
  const bool has_then = schema.contains("then"), has_else = schema.contains("else");
  if (!has_then && !has_else && !(document_.tracks_evaluated() && tracks(condition))) return;
  auto yes = both(normal, condition, place);
  if (has_then) yes = both(yes, sub(schema, schema["then"], "then"), {&schema, "then"});
  auto no = both(normal, without(condition, place), place);
  if (has_else) no = both(no, sub(schema, schema["else"], "else"), {&schema, "else"});
  normal = either(std::move(yes), no, place);
}

/// Every value but objects with the property.
NormalSchema SchemaNormalizer::absent(const std::string& name) {
  auto all = anything();
  PropertyRule rule;
  rule.names[name] = kNoValue;
  all.objects[0].rules.push_back(std::make_shared<const PropertyRule>(std::move(rule)));
  return all;
}

/// Objects with the properties.
NormalSchema SchemaNormalizer::present(const std::set<std::string>& names) {
  return {.objects = {ObjectCase{.required = names}}};
}

void SchemaNormalizer::add_dependencies(const SchemaJson& schema, NormalSchema& normal) {
  const bool old = document_.draft(schema) <= SchemaDraft::k7;
  for (const char* keyword : {"dependencies", "dependentRequired", "dependentSchemas"}) {
    if (!schema.contains(keyword) || (old != (std::string_view(keyword) == "dependencies"))) continue;
    const Place place{&schema, keyword};
    const auto& all = schema[keyword];
    if (!all.is_object()) document_.refuse(schema, keyword, "it must be an object");
    for (const auto& [name, needed] : all.items()) {
      std::set<std::string> names{name};
      NormalSchema then;
      if (needed.is_array()) {
        for (const auto& one : needed) {
          if (!one.is_string()) document_.refuse(schema, keyword, "it must list names");
          names.insert(one.get<std::string>());
        }
        then = present(names);
      } else {
        then = both(present(names), sub(schema, needed, keyword), place);
      }
      normal = both(normal, either(std::move(then), absent(name), place), place);
    }
  }
}

void SchemaNormalizer::add_references(const SchemaJson& schema, NormalSchema& normal) {
  for (const std::string keyword : {"$ref", "$dynamicRef", "$recursiveRef"}) {
    const auto at = schema.find(keyword);
    if (at == schema.end()) continue;
    if (!at->is_string()) document_.refuse(schema, keyword, "it must be a string");
    if (keyword != "$ref" && document_.has_dynamic_scope())
      document_.refuse(schema, keyword, "references by dynamic scope are not supported");
    const auto& target = document_.resolve(schema, keyword, at->get<std::string>());
    normal = both(normal, normal_of(ref(target)), {&schema, keyword});
  }
}

void SchemaNormalizer::add_unevaluated(const SchemaJson& schema, NormalSchema& normal) {
  if (document_.draft(schema) < SchemaDraft::k2019) return;
  if (const auto at = schema.find("unevaluatedProperties"); at != schema.end())
    for (auto& object : normal.objects) {
      PropertyRule rule{.others = ref(*at)};
      if (object.evaluated != RegularPool::kEmpty) rule.patterns.emplace_back(object.evaluated, kAnyValue);
      object.rules.push_back(std::make_shared<const PropertyRule>(std::move(rule)));
      object.evaluated = json_.text();
    }
  if (const auto at = schema.find("unevaluatedItems"); at != schema.end())
    for (auto& array : normal.arrays) {
      if (array.evaluated == kUnbounded) continue;
      ItemRule rule{.prefix = std::vector<SchemaRef>(array.evaluated, kAnyValue), .others = ref(*at)};
      if (!array.evaluated_by.empty()) {
        // An item that satisfies `contains` or the keyword's schema.
        std::vector<SchemaRef> none{complement(rule.others)};
        for (const auto one : array.evaluated_by) none.push_back(complement(one));
        rule.others = complement(intersection(std::move(none)));
      }
      array.rules.push_back(std::make_shared<const ItemRule>(std::move(rule)));
      array.evaluated = kUnbounded;
    }
}

}  // namespace forge::text::constraint
