// Intersections, unions and complements of normal forms.

#include "text/constraint/schema/schema_normal.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

namespace forge::text::constraint {
namespace {

constexpr std::size_t kCasesMax = 300;       ///< alternatives of objects or of arrays in one normal form
constexpr std::size_t kWorkMax = 400'000;    ///< steps of a schema's normalization in all
constexpr std::size_t kOtherNamesMax = 100;  ///< classes of property names

template <class T>
void append_new(std::vector<T>& to, const std::vector<T>& from) {
  for (const auto& one : from)
    if (std::ranges::find(to, one) == to.end()) to.push_back(one);
}

}  // namespace

void SchemaNormalizer::spend(std::size_t work, Place place) {
  work_ += work;
  if (work_ > kWorkMax) document_.refuse(*place.schema, place.keyword, "the schema is too complex");
}

NormalSchema SchemaNormalizer::anything() {
  return {.null = true,
          .yes = true,
          .no = true,
          .numbers = json_.number(),
          .texts = json_.text(),
          .objects = {ObjectCase{}},
          .arrays = {ArrayCase{}}};
}

bool SchemaNormalizer::matches(Expr language, std::string_view text) {
  for (const char c : text) language = pool().derivative(language, static_cast<std::uint8_t>(c));
  return pool().nullable(language);
}

SchemaSet SchemaNormalizer::property(const ObjectCase& object, std::string_view name) {
  std::vector<SchemaRef> refs;
  for (const auto& rule : object.rules) {
    bool known = false;
    if (const auto at = rule->names.find(name); at != rule->names.end()) {
      refs.push_back(at->second);
      known = true;
    }
    for (const auto& [names, value] : rule->patterns)
      if (matches(names, name)) {
        refs.push_back(value);
        known = true;
      }
    if (!known) refs.push_back(rule->others);
  }
  return set(std::move(refs));
}

std::set<std::string> SchemaNormalizer::names(const ObjectCase& object) const {
  auto all = object.required;
  for (const auto& rule : object.rules)
    for (const auto& [name, value] : rule->names) all.insert(name);
  return all;
}

SchemaNormalizer::Places SchemaNormalizer::places(const NormalSchema& normal) const {
  Places places;
  for (const auto* list : {&normal.declared, &normal.listed})
    for (const auto name : *list) places.try_emplace(names_[name], static_cast<std::uint32_t>(places.size()));
  return places;
}

std::uint32_t SchemaNormalizer::name_number(const std::string& name) {
  const auto [at, is_new] = name_numbers_.try_emplace(name, static_cast<std::uint32_t>(names_.size()));
  if (is_new) names_.push_back(at->first);
  return at->second;
}

void SchemaNormalizer::add_order(NormalSchema& sum, const NormalSchema& more) {
  for (const auto list : {&NormalSchema::declared, &NormalSchema::listed}) {
    auto& to = sum.*list;
    const auto& from = more.*list;
    if (from.size() <= to.size() && std::equal(from.begin(), from.end(), to.begin())) continue;
    std::unordered_set<std::uint32_t> known(to.begin(), to.end());
    std::ranges::copy_if(from, std::back_inserter(to), [&](std::uint32_t name) { return known.insert(name).second; });
  }
}

std::vector<std::pair<Expr, SchemaSet>> SchemaNormalizer::other_names(const ObjectCase& object) {
  struct Class {
    Expr names;
    std::vector<SchemaRef> refs;
    bool known = false;  // by the rule at hand
  };
  std::vector<Expr> named;
  for (const auto& name : names(object)) named.push_back(pool().literal(name));
  std::vector<Class> classes{{pool().and_({json_.text(), pool().not_(pool().or_(named))}), {}}};
  const auto divide = [&](Expr by, auto&& inside) {
    std::vector<Class> parts;
    for (auto& one : classes) {
      const auto in = pool().and_({one.names, by});
      if (pool().is_empty(in)) {
        parts.push_back(std::move(one));
        continue;
      }
      const auto out = pool().and_({one.names, pool().not_(by)});
      if (!pool().is_empty(out)) parts.push_back({out, one.refs, one.known});
      parts.push_back({in, std::move(one.refs), one.known});
      inside(parts.back());
    }
    classes = std::move(parts);
    if (classes.size() > kOtherNamesMax)
      document_.refuse(document_.root(), "patternProperties", "the expressions overlap in too many ways");
  };
  for (const auto& rule : object.rules) {
    for (const auto& [expression, value] : rule->patterns)
      divide(expression, [&, ref = value](Class& one) {
        one.refs.push_back(ref);
        one.known = true;
      });
    for (auto& one : classes) {
      if (!one.known) one.refs.push_back(rule->others);
      one.known = false;
    }
  }
  for (const auto& wanted : object.wanted) divide(wanted.names, [](Class&) {});
  std::vector<std::pair<Expr, SchemaSet>> result;
  for (auto& one : classes) result.emplace_back(one.names, set(std::move(one.refs)));
  return result;
}

std::size_t SchemaNormalizer::prefix_size(const ArrayCase& array) {
  std::size_t size = 0;
  for (const auto& rule : array.rules) size = std::max(size, rule->prefix.size());
  return size;
}

SchemaSet SchemaNormalizer::item(const ArrayCase& array, std::size_t index) {
  std::vector<SchemaRef> refs;
  for (const auto& rule : array.rules) refs.push_back(index < rule->prefix.size() ? rule->prefix[index] : rule->others);
  return set(std::move(refs));
}

std::optional<ObjectCase> SchemaNormalizer::both(const ObjectCase& a, const ObjectCase& b) {
  auto result = a;
  append_new(result.rules, b.rules);
  append_new(result.wanted, b.wanted);
  result.required.insert(b.required.begin(), b.required.end());
  result.min = std::max(a.min, b.min);
  result.max = std::min(a.max, b.max);
  result.evaluated = pool().or_({a.evaluated, b.evaluated});
  const auto nothing = set({kNoValue});
  if (result.min > result.max || result.required.size() > result.max) return std::nullopt;
  for (const auto& name : result.required)
    if (property(result, name) == nothing) return std::nullopt;
  return result;
}

std::optional<ArrayCase> SchemaNormalizer::both(const ArrayCase& a, const ArrayCase& b) {
  auto result = a;
  append_new(result.rules, b.rules);
  append_new(result.contains, b.contains);
  append_new(result.evaluated_by, b.evaluated_by);
  result.min = std::max(a.min, b.min);
  result.max = std::min(a.max, b.max);
  result.unique |= b.unique;
  if (b.unique) result.unique_at = b.unique_at;
  result.evaluated = std::max(a.evaluated, b.evaluated);
  if (result.min > result.max) return std::nullopt;
  return result;
}

NormalSchema SchemaNormalizer::both(const NormalSchema& a, const NormalSchema& b, Place place) {
  NormalSchema result{.null = a.null && b.null, .yes = a.yes && b.yes, .no = a.no && b.no};
  const auto common = [&](Expr x, Expr y, Expr all) {
    if (x == all || x == y) return y;
    if (y == all) return x;
    const auto expr = pool().and_({x, y});
    return pool().is_empty(expr) ? RegularPool::kEmpty : expr;
  };
  result.numbers = common(a.numbers, b.numbers, json_.number());
  result.texts = common(a.texts, b.texts, json_.text());
  spend(1 + a.objects.size() * b.objects.size() + a.arrays.size() * b.arrays.size(), place);
  for (const auto& x : a.objects)
    for (const auto& y : b.objects)
      if (auto one = both(x, y)) result.objects.push_back(std::move(*one));
  for (const auto& x : a.arrays)
    for (const auto& y : b.arrays)
      if (auto one = both(x, y)) result.arrays.push_back(std::move(*one));
  add_order(result, a);
  add_order(result, b);
  prune(result, place);
  return result;
}

/// Runs `work`, which asks what is inhabited. False if that could not be told.
bool SchemaNormalizer::can_tell(const std::function<void()>& work) {
  bool told = true;
  ++probing_;
  try {
    work();
  } catch (const Unknown&) {
    told = false;
  }
  --probing_;
  return told;
}

/// Many cases are looked at closely: those that no value satisfies would multiply.
void SchemaNormalizer::prune(NormalSchema& normal, Place place) {
  if (normal.objects.size() > 4) {
    decltype(normal.objects) inhabited_ones;
    const bool told = can_tell([&] {
      std::ranges::copy_if(normal.objects, std::back_inserter(inhabited_ones),
                           [&](const auto& one) { return inhabited(one); });
    });
    if (told) normal.objects = std::move(inhabited_ones);
  }
  if (normal.objects.size() > kCasesMax || normal.arrays.size() > kCasesMax)
    document_.refuse(*place.schema, place.keyword, fmt::format("more than {} alternatives", kCasesMax));
}

void SchemaNormalizer::add_scalars(NormalSchema& sum, const NormalSchema& more, RegularPool& pool) {
  sum.null |= more.null;
  sum.yes |= more.yes;
  sum.no |= more.no;
  sum.numbers = pool.or_({sum.numbers, more.numbers});
  sum.texts = pool.or_({sum.texts, more.texts});
}

NormalSchema SchemaNormalizer::either(NormalSchema a, const NormalSchema& b, Place place) {
  if (b.numbers == json_.number()) a.numbers = RegularPool::kEmpty;
  if (b.texts == json_.text()) a.texts = RegularPool::kEmpty;
  const bool all_numbers = a.numbers == json_.number(), all_texts = a.texts == json_.text();
  add_scalars(a, b, pool());
  add_order(a, b);
  if (all_numbers) a.numbers = json_.number();
  if (all_texts) a.texts = json_.text();
  a.objects.insert(a.objects.end(), b.objects.begin(), b.objects.end());
  a.arrays.insert(a.arrays.end(), b.arrays.begin(), b.arrays.end());
  prune(a, place);
  return a;
}

NormalSchema SchemaNormalizer::without(const NormalSchema& a, Place place) {
  NormalSchema result = anything();
  result.null = !a.null;
  result.yes = !a.yes;
  result.no = !a.no;
  const auto rest = [&](Expr part, Expr all) {
    if (part == RegularPool::kEmpty) return all;
    if (part == all) return RegularPool::kEmpty;
    const auto expr = pool().and_({all, pool().not_(part)});
    return pool().is_empty(expr) ? RegularPool::kEmpty : expr;
  };
  result.numbers = rest(a.numbers, json_.number());
  result.texts = rest(a.texts, json_.text());
  for (const auto& object : a.objects) {
    NormalSchema part{.objects = without(object, place)};
    part.arrays.emplace_back();
    result = both(
        result,
        [&] {
          auto all = anything();
          all.objects = std::move(part.objects);
          return all;
        }(),
        place);
  }
  for (const auto& array : a.arrays) {
    auto all = anything();
    all.arrays = without(array, place);
    result = both(result, all, place);
  }
  return result;
}

std::vector<ObjectCase> SchemaNormalizer::without(const ObjectCase& object, Place place) {
  std::vector<ObjectCase> cases;
  for (const auto& name : object.required) {
    PropertyRule rule;
    rule.names[name] = kNoValue;
    cases.push_back({.rules = {std::make_shared<const PropertyRule>(std::move(rule))}});
  }
  for (const auto& rule : object.rules) {
    std::vector<Expr> known;
    for (const auto& [name, value] : rule->names) {
      known.push_back(pool().literal(name));
      if (value == kAnyValue) continue;
      PropertyRule other;
      other.names[name] = complement(value);
      cases.push_back({.rules = {std::make_shared<const PropertyRule>(std::move(other))}, .required = {name}});
    }
    for (const auto& [names, value] : rule->patterns) {
      known.push_back(names);
      if (value != kAnyValue) cases.push_back({.min = 1, .wanted = {{names, complement(value)}}});
    }
    if (rule->others == kAnyValue) continue;
    const auto names = pool().and_({json_.text(), pool().not_(pool().or_(known))});
    if (!pool().is_empty(names)) cases.push_back({.min = 1, .wanted = {{names, complement(rule->others)}}});
  }
  for (const auto& [names, value] : object.wanted) {
    PropertyRule rule;
    rule.patterns.emplace_back(names, complement(value));
    cases.push_back({.rules = {std::make_shared<const PropertyRule>(std::move(rule))}});
  }
  if (object.min > 0) cases.push_back({.max = object.min - 1});
  if (object.max != kUnbounded) cases.push_back({.min = object.max + 1});
  spend(cases.size(), place);
  return cases;
}

std::vector<ArrayCase> SchemaNormalizer::without(const ArrayCase& array, Place place) {
  std::vector<ArrayCase> cases;
  if (array.unique && array.max > 1)
    document_.refuse(*place.schema, place.keyword, "the complement of uniqueItems is not supported");
  for (const auto& rule : array.rules) {
    for (std::size_t i = 0; i < rule->prefix.size(); ++i) {
      if (rule->prefix[i] == kAnyValue) continue;
      ItemRule other{.prefix = std::vector<SchemaRef>(i, kAnyValue)};
      other.prefix.push_back(complement(rule->prefix[i]));
      cases.push_back(
          {.rules = {std::make_shared<const ItemRule>(std::move(other))}, .min = static_cast<std::uint32_t>(i + 1)});
    }
    if (rule->others == kAnyValue) continue;
    const auto prefix = static_cast<std::uint32_t>(rule->prefix.size());
    if (rule->others == kNoValue) {
      cases.push_back({.min = prefix + 1});
    } else if (prefix == 0) {
      cases.push_back({.min = 1, .contains = {{.value = complement(rule->others)}}});
    } else {
      document_.refuse(*place.schema, place.keyword, "the complement of items behind prefixItems is not supported");
    }
  }
  for (const auto& [value, min, max] : array.contains) {
    if (min > 0) cases.push_back({.contains = {{.value = value, .min = 0, .max = min - 1}}});
    if (max != kUnbounded) cases.push_back({.min = max + 1, .contains = {{.value = value, .min = max + 1}}});
  }
  if (array.min > 0) cases.push_back({.max = array.min - 1});
  if (array.max != kUnbounded) cases.push_back({.min = array.max + 1});
  spend(cases.size(), place);
  return cases;
}

}  // namespace forge::text::constraint
