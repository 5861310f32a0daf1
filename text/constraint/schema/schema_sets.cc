// Sets of schemas, their normal forms, and whether a value satisfies them.

#include <fmt/core.h>

#include <algorithm>

#include "text/constraint/schema/schema_normal.h"

namespace forge::text::constraint {
namespace {

constexpr unsigned kNormalDepthMax = 300;                           ///< schemas that are looked into at once
constexpr std::size_t kFewNamesMax = 64, kFewNamesBytesMax = 4096;  ///< names of patterns that are counted

}  // namespace

SchemaNormalizer::SchemaNormalizer(SchemaDocument& document, JsonLanguage& json) : document_(document), json_(json) {
  sources_.resize(2);
  sources_[kAnyValue].complement = kNoValue;
  sources_[kNoValue].complement = kAnyValue;
  sources_[kAnyValue].normal = std::make_unique<NormalSchema>(anything());
  sources_[kNoValue].normal = std::make_unique<NormalSchema>();
}

SchemaRef SchemaNormalizer::ref(const SchemaJson& schema) {
  if (schema.is_boolean()) return schema.get<bool>() ? kAnyValue : kNoValue;
  if (schema.is_object() && schema.empty()) return kAnyValue;
  const auto [at, is_new] = refs_.try_emplace(&schema, static_cast<SchemaRef>(sources_.size()));
  if (is_new) sources_.push_back({.schema = &schema});
  return at->second;
}

SchemaRef SchemaNormalizer::complement(SchemaRef ref) {
  if (sources_[ref].complement == UINT32_MAX) {
    const auto number = static_cast<SchemaRef>(sources_.size());
    sources_[ref].complement = number;
    sources_.push_back({.complement_of = ref, .complement = ref});
  }
  return sources_[ref].complement;
}

SchemaSet SchemaNormalizer::set(std::vector<SchemaRef> refs) {
  std::erase(refs, kAnyValue);
  std::ranges::sort(refs);
  const auto repeated = std::ranges::unique(refs);
  refs.erase(repeated.begin(), repeated.end());
  const bool none = std::ranges::any_of(refs, [&](SchemaRef one) {
    const auto other = sources_[one].complement;
    return one == kNoValue || (other != UINT32_MAX && std::ranges::binary_search(refs, other));
  });
  if (none) refs = {kNoValue};
  const auto [at, is_new] = set_numbers_.try_emplace(std::move(refs), static_cast<SchemaSet>(sets_.size()));
  if (is_new) sets_.push_back(&at->first);
  return at->second;
}

SchemaRef SchemaNormalizer::intersection(std::vector<SchemaRef> refs) {
  const auto number = set(std::move(refs));
  if (sets_[number]->empty()) return kAnyValue;
  if (sets_[number]->size() == 1) return sets_[number]->front();
  sources_.push_back({.all_of = number});
  return static_cast<SchemaRef>(sources_.size() - 1);
}

SchemaSet SchemaNormalizer::with(SchemaSet set, SchemaRef more) {
  auto refs = *sets_[set];
  refs.push_back(more);
  return this->set(std::move(refs));
}

const NormalSchema& SchemaNormalizer::normal_of(SchemaRef ref) {
  if (sources_[ref].normal) return *sources_[ref].normal;
  const auto* schema = sources_[ref].schema;
  const auto& place = schema != nullptr ? *schema : document_.root();
  if (sources_[ref].open) {
    if (probing_ > 0) throw Unknown{};
    document_.refuse(place, "$ref", "endless recursion: the schema refers to itself for the same value");
  }
  if (depth_ > kNormalDepthMax) document_.refuse(place, "$ref", "too many schemas refer to each other");
  struct Open {
    SchemaNormalizer& all;
    SchemaRef ref;
    ~Open() {
      all.sources_[ref].open = false;
      --all.depth_;
    }
  } open{*this, ref};
  sources_[ref].open = true;
  ++depth_;
  auto normal = std::make_unique<NormalSchema>();
  if (schema != nullptr) {
    *normal = made(*schema);
  } else if (sources_[ref].all_of != UINT32_MAX) {
    *normal = this->normal(sources_[ref].all_of);
  } else {
    const auto of = sources_[ref].complement_of;
    const auto* inner = sources_[of].schema;
    *normal = without(normal_of(of), {inner != nullptr ? inner : &document_.root(), "not"});
  }
  sources_[ref].normal = std::move(normal);
  return *sources_[ref].normal;
}

const NormalSchema& SchemaNormalizer::normal(SchemaSet set) {
  if (sets_[set]->size() == 1) return normal_of(sets_[set]->front());
  if (sets_[set]->empty()) return normal_of(kAnyValue);
  if (const auto known = normals_.find(set); known != normals_.end()) return *known->second;
  const auto refs = *sets_[set];
  auto result = std::make_unique<NormalSchema>(normal_of(refs[0]));
  for (std::size_t i = 1; i < refs.size(); ++i) {
    const auto* schema = sources_[refs[i]].schema;
    *result = both(*result, normal_of(refs[i]), {schema != nullptr ? schema : &document_.root(), "allOf"});
  }
  return *(normals_[set] = std::move(result));
}

/// The least fixed point: a set that needs itself is not satisfied by way of itself. A "no" that relied on a set that
/// is still open is not remembered.
bool SchemaNormalizer::inhabited(SchemaSet set) {
  if (const auto known = inhabited_.find(set); known != inhabited_.end()) return known->second;
  if (open_sets_.contains(set)) {
    met_open_set_ = true;
    return false;
  }
  if (open_sets_.size() > kNormalDepthMax)
    document_.refuse(document_.root(), "required", "too many schemas require each other");
  const auto& all = normal(set);
  bool found = all.null || all.yes || all.no || all.numbers != RegularPool::kEmpty || all.texts != RegularPool::kEmpty;
  const bool met_before = met_open_set_;
  met_open_set_ = false;
  if (!found) {
    struct Open {
      std::unordered_set<SchemaSet>& sets;
      SchemaSet set;
      ~Open() { sets.erase(set); }
    } open{open_sets_, set};
    open_sets_.insert(set);
    for (std::size_t i = 0; i < all.objects.size() && !found; ++i) found = inhabited(all.objects[i]);
    for (std::size_t i = 0; i < all.arrays.size() && !found; ++i) found = inhabited(all.arrays[i]);
  }
  if (found || !met_open_set_ || open_sets_.empty()) inhabited_[set] = found;
  met_open_set_ = !found && (met_open_set_ || met_before);
  return found;
}

bool SchemaNormalizer::inhabited(const ObjectCase& object) {
  for (const auto& name : object.required)
    if (!inhabited(property(object, name))) return false;
  if (object.min <= object.required.size() && object.wanted.empty()) return true;
  std::size_t possible = 0;
  std::vector<bool> found(object.wanted.size());
  for (const auto& name : names(object)) {
    const auto value = property(object, name);
    if (!inhabited(value)) continue;
    ++possible;
    for (std::size_t i = 0; i < found.size(); ++i)
      if (!found[i] && matches(object.wanted[i].names, name)) found[i] = inhabited(with(value, object.wanted[i].value));
  }
  bool more = false;
  std::size_t few = 0;  // other names, if they can be counted
  for (const auto& [others, value] : other_names(object)) {
    if (!inhabited(value)) continue;
    const bool counts = !more && object.min > object.required.size();
    const auto words = counts ? pool().words(others, kFewNamesMax, kFewNamesBytesMax) : std::nullopt;
    more |= !words;
    if (words) few += words->size();
    for (std::size_t i = 0; i < found.size(); ++i)
      if (!found[i] && !pool().is_empty(pool().and_({others, object.wanted[i].names})))
        found[i] = inhabited(with(value, object.wanted[i].value));
  }
  if (std::ranges::find(found, false) != found.end()) return false;
  return more || possible + few >= object.min;
}

bool SchemaNormalizer::inhabited(const ArrayCase& array) {
  const auto prefix = prefix_size(array);
  for (std::size_t i = 0; i < std::min<std::size_t>(array.min, prefix + 1); ++i)
    if (!inhabited(item(array, i))) return false;
  for (const auto& [value, min, max] : array.contains) {
    if (min == 0) continue;
    bool found = false;
    for (std::size_t i = 0; i <= prefix && i < array.max && !found; ++i) {
      const auto at = item(array, i);
      if (!inhabited(at)) break;
      found = inhabited(with(at, value));
    }
    if (!found) return false;
  }
  return true;
}

void SchemaNormalizer::refuse_empty() {
  const auto& root = document_.root();
  if (root.is_boolean()) document_.refuse(root, "", "the boolean schema false: no value satisfies it");
  std::string names, last;
  for (const auto& [keyword, value] : root.items()) {
    if (keyword.starts_with('$') && keyword != "$ref") continue;
    if (keyword == "title" || keyword == "description" || keyword == "definitions") continue;
    names += (names.empty() ? "" : ", ") + keyword;
    last = keyword;
  }
  if (names == last) document_.refuse(root, last, "no value satisfies it");
  document_.refuse(root, "", fmt::format("no value satisfies all of {}", names));
}

/// False if it cannot be told.
bool SchemaNormalizer::proven_empty(const NormalSchema& all) {
  if (all.null || all.yes || all.no || all.numbers != RegularPool::kEmpty || all.texts != RegularPool::kEmpty)
    return false;
  bool empty = false;
  const bool told = can_tell([&] {
    empty = std::ranges::none_of(all.objects, [&](const auto& one) { return inhabited(one); }) &&
            std::ranges::none_of(all.arrays, [&](const auto& one) { return inhabited(one); });
  });
  return told && empty;
}

}  // namespace forge::text::constraint
