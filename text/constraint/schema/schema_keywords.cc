// The keywords that say what a value of one type is like.

#include <fmt/core.h>

#include <algorithm>

#include "support/error.h"
#include "text/constraint/regex_syntax.h"
#include "text/constraint/schema/schema_formats.h"
#include "text/constraint/schema/schema_normal.h"
#include "text/constraint/schema/schema_numbers.h"

namespace forge::text::constraint {
namespace {

constexpr std::size_t kEnumMax = 20'000;
constexpr std::uint32_t kCountMax = 1'000'000'000;

const SchemaJson* keyword_at(const SchemaJson& schema, std::string_view key) {
  const auto at = schema.find(key);
  return at == schema.end() ? nullptr : &*at;
}

/// The values that copying one copies.
std::size_t values_in(const SchemaJson& value) {
  std::size_t sum = 1;
  if (value.is_structured())
    for (const auto& inner : value) sum += values_in(inner);
  return sum;
}

}  // namespace

/// A count of a keyword. Whole numbers that are written as 2.0 count too.
std::optional<std::uint32_t> SchemaNormalizer::count(const SchemaJson& schema, const char* keyword) {
  const auto* value = keyword_at(schema, keyword);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : -1;
  if (number < 0 || number != static_cast<double>(static_cast<std::uint64_t>(std::min(number, 1e15))))
    document_.refuse(schema, keyword, "it must be a whole number, 0 or more");
  return static_cast<std::uint32_t>(std::min<double>(number, kCountMax));
}

const SchemaJson& SchemaNormalizer::list_of(const SchemaJson& schema, const char* keyword) {
  const auto& list = schema.at(keyword);
  if (!list.is_array() || list.empty()) document_.refuse(schema, keyword, "it must be a list of schemas");
  return list;
}

NormalSchema SchemaNormalizer::made(const SchemaJson& schema) {
  if (schema.is_boolean()) return schema.get<bool>() ? anything() : NormalSchema{};
  if (!schema.is_object()) document_.refuse(schema, "", "a schema must be an object, true or false");
  spend(1, {&schema, ""});
  if (schema.contains("$ref") && document_.draft(schema) <= SchemaDraft::k7) {
    auto normal = anything();
    add_references(schema, normal);  // what stands beside it is ignored (draft 7, 8.3)
    return normal;
  }
  auto normal = typed(schema);
  if (schema.contains("const") && document_.draft(schema) >= SchemaDraft::k6)
    normal = both(normal, constant(schema["const"], schema), {&schema, "const"});
  if (schema.contains("enum")) normal = both(normal, enumerated(schema["enum"], schema), {&schema, "enum"});
  add_numbers(schema, normal);
  add_texts(schema, normal);
  add_object(schema, normal);
  add_array(schema, normal);
  add_references(schema, normal);
  add_all(schema, normal);
  add_any(schema, normal);
  add_one(schema, normal);
  add_not_and_if(schema, normal);
  add_dependencies(schema, normal);
  add_unevaluated(schema, normal);
  return normal;
}

NormalSchema SchemaNormalizer::typed(const SchemaJson& schema) {
  auto all = anything();
  const auto* types = keyword_at(schema, "type");
  if (types == nullptr) return all;
  NormalSchema normal;
  const auto add = [&](const SchemaJson& type) {
    if (type == "null") {
      normal.null = true;
    } else if (type == "boolean") {
      normal.yes = normal.no = true;
    } else if (type == "number") {
      normal.numbers = all.numbers;
    } else if (type == "integer") {
      if (normal.numbers != all.numbers) normal.numbers = json_.integer();
    } else if (type == "string") {
      normal.texts = all.texts;
    } else if (type == "object") {
      normal.objects = all.objects;
    } else if (type == "array") {
      normal.arrays = all.arrays;
    } else {
      document_.refuse(schema, "type", "it must name types of JSON");
    }
  };
  if (types->is_array()) {
    for (const auto& type : *types) add(type);
  } else {
    add(*types);
  }
  return normal;
}

NormalSchema SchemaNormalizer::constant(const SchemaJson& value, const SchemaJson& place) {
  NormalSchema normal;
  const auto part = [&](const SchemaJson& inner) {
    spend(values_in(inner), {&place, "const"});  // each level copies what is below it
    return ref(document_.keep(SchemaJson::object({{"const", inner}}), place));
  };
  if (value.is_null()) {
    normal.null = true;
  } else if (value.is_boolean()) {
    (value.get<bool>() ? normal.yes : normal.no) = true;
  } else if (value.is_number()) {
    const auto number = decimal_of(value);
    if (!number) document_.refuse(place, "const", "a number out of range");
    normal.numbers = pool().literal(number->text());
  } else if (value.is_string()) {
    normal.texts = pool().literal(value.get_ref<const std::string&>());
  } else if (value.is_object()) {
    ObjectCase object;
    PropertyRule rule{.others = kNoValue};
    for (const auto& [name, inner] : value.items()) {
      rule.names[name] = part(inner);
      object.required.insert(name);
    }
    object.rules.push_back(std::make_shared<const PropertyRule>(std::move(rule)));
    normal.objects.push_back(std::move(object));
  } else {
    ItemRule rule{.others = kNoValue};
    for (const auto& inner : value) rule.prefix.push_back(part(inner));
    const auto size = static_cast<std::uint32_t>(value.size());
    normal.arrays.push_back({.rules = {std::make_shared<const ItemRule>(std::move(rule))}, .min = size, .max = size});
  }
  return normal;
}

NormalSchema SchemaNormalizer::enumerated(const SchemaJson& values, const SchemaJson& place) {
  if (!values.is_array()) document_.refuse(place, "enum", "it must be a list");
  if (values.size() > kEnumMax) document_.refuse(place, "enum", fmt::format("more than {} values", kEnumMax));
  NormalSchema sum;
  std::vector<Expr> numbers, texts;
  for (const auto& value : values) {
    auto one = constant(value, place);
    numbers.push_back(one.numbers);
    texts.push_back(one.texts);
    one.numbers = one.texts = RegularPool::kEmpty;
    add_scalars(sum, one, pool());
    sum.objects.insert(sum.objects.end(), one.objects.begin(), one.objects.end());
    sum.arrays.insert(sum.arrays.end(), one.arrays.begin(), one.arrays.end());
  }
  sum.numbers = pool().or_(numbers);
  sum.texts = pool().or_(texts);
  return sum;
}

void SchemaNormalizer::add_numbers(const SchemaJson& schema, NormalSchema& normal) {
  std::vector<Expr> all;
  const bool whole = normal.numbers == json_.integer();
  const auto bound = [&](const char* keyword) -> std::optional<Decimal> {
    const auto* value = keyword_at(schema, keyword);
    if (value == nullptr || (value->is_boolean() && document_.draft(schema) == SchemaDraft::k4)) return std::nullopt;
    auto number = value->is_number() ? decimal_of(*value) : std::nullopt;
    if (!number) document_.refuse(schema, keyword, "it must be a number of moderate size");
    return number;
  };
  const auto is_strict = [&](const char* keyword) {
    const auto* value = keyword_at(schema, keyword);
    return value != nullptr && document_.draft(schema) == SchemaDraft::k4 && *value == true;
  };
  if (const auto from = bound("minimum"))
    all.push_back(numbers_from(json_, *from, is_strict("exclusiveMinimum"), whole));
  if (const auto from = bound("exclusiveMinimum")) all.push_back(numbers_from(json_, *from, true, whole));
  if (const auto to = bound("maximum")) all.push_back(numbers_to(json_, *to, is_strict("exclusiveMaximum"), whole));
  if (const auto to = bound("exclusiveMaximum")) all.push_back(numbers_to(json_, *to, true, whole));
  if (const auto step = bound("multipleOf")) {
    if (step->negative || step->is_zero()) document_.refuse(schema, "multipleOf", "it must be above 0");
    const auto multiples = multiples_of(json_, *step);
    if (!multiples) document_.refuse(schema, "multipleOf", "not supported: it has too many digits");
    all.push_back(*multiples);
  }
  if (all.empty() || normal.numbers == RegularPool::kEmpty) return;
  // The languages of bounds hold whole numbers only where the type says so.
  if (!whole || schema.contains("multipleOf")) {
    if (normal.numbers != json_.number()) all.push_back(normal.numbers);
  }
  const auto language = pool().and_(all);
  normal.numbers = pool().is_empty(language) ? RegularPool::kEmpty : pool().flattened(language, 1000);
}

Expr SchemaNormalizer::pattern(const SchemaJson& schema, const std::string& keyword, const std::string& expression,
                               RegexDialects dialects) {
  const std::pair key(expression, dialects);
  if (const auto known = patterns_.find(key); known != patterns_.end()) return known->second;
  try {
    const auto language = parse_regex(pool(), expression, RegexMatch::kSearch, dialects);
    patterns_.emplace(key, language);
    return language;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUsage) throw;
    std::string_view why = error.line();
    if (why.starts_with("error[usage]: ")) why.remove_prefix(14);
    document_.refuse(schema, keyword, std::string(why));
  }
}

void SchemaNormalizer::add_texts(const SchemaJson& schema, NormalSchema& normal) {
  std::vector<Expr> all;
  const auto min = count(schema, "minLength"), max = count(schema, "maxLength");
  if (min && max && *min > *max) {
    normal.texts = RegularPool::kEmpty;
  } else if (min || max) {
    all.push_back(json_.text(min.value_or(0), max.value_or(kUnbounded)));
  }
  if (const auto* expression = keyword_at(schema, "pattern")) {
    if (!expression->is_string()) document_.refuse(schema, "pattern", "it must be a string");
    all.push_back(pattern(schema, "pattern", expression->get<std::string>()));
  }
  if (const auto* format = keyword_at(schema, "format")) {
    if (!format->is_string()) document_.refuse(schema, "format", "it must be a string");
    Expr texts = RegularPool::kEmpty;
    const auto known = format_texts(pool(), format->get<std::string>(), texts);
    if (known == SchemaFormat::kUnsupported && normal.texts != RegularPool::kEmpty)
      document_.refuse(schema, "format", fmt::format("the format {} is not supported", format->get<std::string>()));
    if (known == SchemaFormat::kKnown) all.push_back(texts);
  }
  if (all.empty() || normal.texts == RegularPool::kEmpty) return;
  if (normal.texts != json_.text()) all.push_back(normal.texts);
  // A length that an expression has anyway would only cost states.
  if (all.size() == 2 && (min || max) && pool().is_plain(all[1]) && pool().surely_includes(all[0], all[1]))
    all.erase(all.begin());
  const auto language = pool().and_(all);
  try {
    normal.texts = pool().is_empty(language) ? RegularPool::kEmpty : language;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kMemory) throw;
    const auto* keyword = schema.contains("pattern") ? "pattern" : schema.contains("format") ? "format" : "maxLength";
    document_.refuse(schema, keyword, "too complex together with what else the string must satisfy");
  }
}

/// Names that match a pattern by one dialect of expressions alone (RegexDialects). None for a pattern that is too
/// complex to tell.
Expr SchemaNormalizer::disputed_names(const SchemaJson& schema, const std::string& expression) {
  const auto both = pattern(schema, "patternProperties", expression);
  const auto either = pattern(schema, "patternProperties", expression, RegexDialects::kEither);
  if (both == either) return RegularPool::kEmpty;
  try {
    const auto names = pool().and_({either, pool().not_(both), json_.text()});
    return pool().is_empty(names) ? RegularPool::kEmpty : names;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kMemory) throw;
    return RegularPool::kEmpty;
  }
}

void SchemaNormalizer::add_object(const SchemaJson& schema, NormalSchema& normal) {
  ObjectCase object;
  PropertyRule rule;
  std::vector<std::uint32_t> declared, listed;
  const bool tracks = document_.tracks_evaluated();
  std::vector<Expr> evaluated, disputed;
  if (const auto* properties = keyword_at(schema, "properties")) {
    if (!properties->is_object()) document_.refuse(schema, "properties", "it must be an object");
    for (const auto& [name, part] : properties->items()) {
      rule.names[name] = ref(part);
      declared.push_back(name_number(name));
      if (tracks) evaluated.push_back(pool().literal(name));
    }
  }
  // A name in dispute is the pattern's to one client and, undeclared, one of the others to the next: it must satisfy
  // both.
  if (const auto* patterns = keyword_at(schema, "patternProperties")) {
    if (!patterns->is_object()) document_.refuse(schema, "patternProperties", "it must be an object");
    for (const auto& [expression, part] : patterns->items()) {
      rule.patterns.emplace_back(pattern(schema, "patternProperties", expression), ref(part));
      if (tracks) evaluated.push_back(rule.patterns.back().first);
      const auto names = disputed_names(schema, expression);
      if (names == RegularPool::kEmpty) continue;
      rule.patterns.emplace_back(names, ref(part));
      disputed.push_back(names);
    }
  }
  if (const auto* others = keyword_at(schema, "additionalProperties")) {
    rule.others = ref(*others);
    if (!disputed.empty() && rule.others != kAnyValue) {
      std::vector<Expr> names;
      for (const auto& [name, value] : rule.names) names.push_back(pool().literal(name));
      rule.patterns.emplace_back(pool().and_({pool().or_(disputed), pool().not_(pool().or_(names))}), rule.others);
    }
    evaluated = {json_.text()};
  }
  if (!rule.names.empty() || !rule.patterns.empty() || rule.others != kAnyValue)
    object.rules.push_back(std::make_shared<const PropertyRule>(std::move(rule)));
  if (tracks) object.evaluated = pool().or_(evaluated);
  if (const auto* names = keyword_at(schema, "propertyNames")) {
    const auto& allowed = sub(schema, *names, "propertyNames");
    PropertyRule refused;
    const auto others = pool().and_({json_.text(), pool().not_(allowed.texts)});
    refused.patterns.emplace_back(others, kNoValue);
    if (!pool().is_empty(others)) object.rules.push_back(std::make_shared<const PropertyRule>(std::move(refused)));
  }
  if (const auto* required = keyword_at(schema, "required")) {
    if (!required->is_array()) document_.refuse(schema, "required", "it must be a list of names");
    for (const auto& name : *required) {
      if (!name.is_string()) document_.refuse(schema, "required", "it must be a list of names");
      object.required.insert(name.get<std::string>());
      listed.push_back(name_number(name.get<std::string>()));
    }
  }
  object.min = count(schema, "minProperties").value_or(0);
  object.max = count(schema, "maxProperties").value_or(kUnbounded);
  const bool free = object.rules.empty() && object.required.empty() && object.min == 0 && object.max == kUnbounded;
  if (free && object.evaluated == RegularPool::kEmpty) return;
  auto rules = anything();
  rules.objects.clear();
  rules.declared = std::move(declared);
  rules.listed = std::move(listed);
  if (object.min <= object.max) rules.objects.push_back(std::move(object));
  normal = both(normal, rules, {&schema, "properties"});
}

void SchemaNormalizer::add_array(const SchemaJson& schema, NormalSchema& normal) {
  ArrayCase array;
  ItemRule rule;
  const bool lists = document_.draft(schema) < SchemaDraft::k2020;  // items may be a list
  const auto* items = keyword_at(schema, "items");
  const auto* prefix =
      lists ? (items != nullptr && items->is_array() ? items : nullptr) : keyword_at(schema, "prefixItems");
  const auto* others = lists && prefix != nullptr ? keyword_at(schema, "additionalItems") : items;
  if (prefix != nullptr && !prefix->is_array()) document_.refuse(schema, "prefixItems", "it must be a list of schemas");
  if (others != nullptr && !others->is_object() && !others->is_boolean())
    document_.refuse(schema, "items", "it must be a schema (a list of schemas is prefixItems since 2020-12)");
  if (prefix != nullptr) {
    for (const auto& part : *prefix) rule.prefix.push_back(ref(part));
    array.evaluated = static_cast<std::uint32_t>(prefix->size());
  }
  if (others != nullptr) {
    rule.others = ref(*others);
    array.evaluated = kUnbounded;
  }
  if (!rule.prefix.empty() || rule.others != kAnyValue)
    array.rules.push_back(std::make_shared<const ItemRule>(std::move(rule)));
  if (const auto* contained = keyword_at(schema, "contains");
      contained != nullptr && document_.draft(schema) >= SchemaDraft::k6) {
    ContainedItems one{.value = ref(*contained)};
    if (document_.draft(schema) >= SchemaDraft::k2019) {
      one.min = count(schema, "minContains").value_or(1);
      one.max = count(schema, "maxContains").value_or(kUnbounded);
    }
    if (one.min > one.max) return void(normal.arrays.clear());
    if (one.min > 0 || one.max != kUnbounded) array.contains.push_back(one);
    array.min = one.min;
    if (document_.draft(schema) == SchemaDraft::k2020) array.evaluated_by.push_back(one.value);
  }
  if (const auto* unique = keyword_at(schema, "uniqueItems"); unique != nullptr && *unique == true) {
    array.unique = true;
    array.unique_at = &schema;
  }
  array.min = std::max(array.min, count(schema, "minItems").value_or(0));
  array.max = count(schema, "maxItems").value_or(kUnbounded);
  const bool free = array.rules.empty() && array.contains.empty() && !array.unique && array.min == 0;
  if (free && array.max == kUnbounded && array.evaluated == 0 && array.evaluated_by.empty()) return;
  auto rules = anything();
  rules.arrays.clear();
  if (array.min <= array.max) rules.arrays.push_back(std::move(array));
  normal = both(normal, rules, {&schema, "items"});
}

}  // namespace forge::text::constraint
