// Arrays: without `contains` and `uniqueItems` their items are one expression, else a call for each state.

#include <fmt/core.h>

#include <algorithm>

#include "text/constraint/schema/schema_machine.h"

namespace forge::text::constraint {
namespace {

constexpr std::uint32_t kCountedMax = 200;  ///< items that are counted one by one
constexpr std::size_t kContainsMax = 3;
constexpr std::size_t kWordsMax = 1000, kWordBytesMax = 100'000;

}  // namespace

const std::vector<std::unique_ptr<SchemaMachine::ArrayForm>>& SchemaMachine::array_forms(SchemaSet set) {
  if (const auto known = array_forms_.find(set); known != array_forms_.end()) return known->second;
  std::vector<std::unique_ptr<ArrayForm>> forms;
  for (const auto& array : normalizer_.normal(set).arrays)
    if (auto form = array_form(array, array.unique_at != nullptr ? array.unique_at : &document_.root()))
      forms.push_back(std::move(form));
  return array_forms_[set] = std::move(forms);
}

std::unique_ptr<SchemaMachine::ArrayForm> SchemaMachine::array_form(const ArrayCase& array, const SchemaJson* place) {
  auto form = std::make_unique<ArrayForm>();
  form->min = array.min;
  form->max = array.max;
  form->contains = array.contains;
  form->unique = array.unique && array.max > 1;
  const auto prefix = SchemaNormalizer::prefix_size(array);
  form->others = normalizer_.item(array, prefix);
  for (std::size_t i = 0; i < prefix && i < form->max; ++i) {
    form->prefix.push_back(normalizer_.item(array, i));
    if (normalizer_.inhabited(form->prefix.back())) continue;
    form->prefix.pop_back();
    form->max = static_cast<std::uint32_t>(i);  // no item may stand here
  }
  const auto size = static_cast<std::uint32_t>(form->prefix.size());
  if (form->max > size && !normalizer_.inhabited(form->others)) form->max = size;
  if (form->max < form->min) return nullptr;
  form->unique &= form->max > 1;
  if (form->unique) {
    auto sets = form->prefix;
    if (form->max > size) sets.push_back(form->others);
    for (const auto set : sets) {
      const auto& item = normalizer_.normal(set);
      if (!item.objects.empty() || !item.arrays.empty())
        document_.refuse(*place, "uniqueItems", "not supported for items that may be objects or arrays");
    }
    if (sets.size() == 1) {
      const auto words = pool_.words(scalars(normalizer_.normal(sets[0]), true), kWordsMax, kWordBytesMax);
      if (words && words->size() < form->min) return nullptr;
      if (words) form->max = std::min<std::uint32_t>(form->max, static_cast<std::uint32_t>(words->size()));
    } else if (form->min > 1) {
      for (const auto set : sets)
        if (pool_.words(scalars(normalizer_.normal(set), true), kWordsMax, kWordBytesMax))
          document_.refuse(*place, "uniqueItems", "not supported together with prefixItems of few values");
    }
  }
  if (form->contains.empty()) return form;
  if (form->contains.size() > kContainsMax || form->unique || form->min > kCountedMax ||
      (form->max != kUnbounded && form->max > kCountedMax))
    document_.refuse(*place, "contains", "not supported together with this many items, or with uniqueItems");
  for (const auto& contained : form->contains)
    if (contained.min > kCountedMax || (contained.max != kUnbounded && contained.max > kCountedMax))
      document_.refuse(*place, "contains", fmt::format("not supported for more than {} items", kCountedMax));
  ArrayState state{.form = form.get()};
  state.contained.resize(form->contains.size());
  if (!viable(state)) return nullptr;
  return form;
}

Expr SchemaMachine::array(const ArrayForm& form) {
  const auto open = pool_.concat(pool_.literal("["), json_.space()), close = pool_.literal("]");
  if (form.contains.empty() && !form.unique) {
    const auto items = plain_items(form);
    const auto some = items == RegularPool::kEmpty ? items : pool_.concat(items, pool_.concat(json_.space(), close));
    return pool_.concat(open, form.min == 0 ? pool_.or_({close, some}) : some);
  }
  ArrayState state{.form = &form};
  state.contained.resize(form.contains.size());
  return pool_.concat(open, items(state));
}

/// One item at least.
Expr SchemaMachine::plain_items(const ArrayForm& form) {
  if (form.max == 0) return RegularPool::kEmpty;
  const auto size = static_cast<std::uint32_t>(form.prefix.size());
  const auto less = [](std::uint32_t a, std::uint32_t b) { return a == kUnbounded ? a : a > b ? a - b : 0U; };
  const auto min = std::max(form.min, 1U);
  const auto others = form.max > size ? value(form.others) : RegularPool::kEmpty;
  const auto next = [&](Expr item) { return pool_.concat(json_.comma(), item); };
  const auto spaced = [&](Expr item) { return pool_.concat(json_.space(), item); };
  (void)spaced;
  if (size == 0) return pool_.concat(others, pool_.repeat(next(others), less(min, 1), less(form.max, 1)));
  auto tail = others == RegularPool::kEmpty ? RegularPool::kEpsilon
                                            : pool_.repeat(next(others), less(form.min, size), less(form.max, size));
  for (auto i = size; i-- > 1;) {
    tail = pool_.concat(next(value(form.prefix[i])), tail);
    if (form.min <= i) tail = pool_.or_({RegularPool::kEpsilon, tail});
  }
  return pool_.concat(value(form.prefix[0]), tail);
}

/// What follows the items so far, up to the closing bracket.
Expr SchemaMachine::items(const ArrayState& state) {
  auto key = fmt::format("a{:x} {}", reinterpret_cast<std::uintptr_t>(state.form), state.count);
  for (const auto count : state.contained) key += fmt::format(" {}", count);
  for (const auto& text : state.used) key += text + ',';
  const auto [at, is_new] = states_.try_emplace(std::move(key), RegularPool::kEmpty);
  if (!is_new) return at->second;
  RegularPool::CallFacts facts;
  if (state.count == 0) {
    facts.first = ByteSet::all();
  } else {
    for (const char c : {' ', '\n', ']', ','}) facts.first.add(static_cast<std::uint8_t>(c));
  }
  return at->second = later(facts, [this, state] { return items_body(state); });
}

Expr SchemaMachine::items_body(const ArrayState& state) {
  const auto& form = *state.form;
  bool may_end = state.count >= form.min;
  for (std::size_t i = 0; i < form.contains.size(); ++i) may_end &= state.contained[i] >= form.contains[i].min;
  const auto end = may_end ? pool_.literal("]") : RegularPool::kEmpty;
  const auto all = state.count < form.max ? item_options(state) : RegularPool::kEmpty;
  if (state.count == 0) return pool_.or_({end, all});
  return pool_.or_({pool_.concat(json_.comma(), all), pool_.concat(json_.space(), end)});
}

/// The next item in every way that it may count, and what follows it.
Expr SchemaMachine::item_options(const ArrayState& state) {
  const auto& form = *state.form;
  const auto set = state.count < form.prefix.size() ? form.prefix[state.count] : form.others;
  auto after = state;
  // Beyond what is told apart, a count stands still.
  const auto still = std::max({static_cast<std::uint32_t>(form.prefix.size()), form.min, 1U});
  if (form.max != kUnbounded || state.count < still) ++after.count;
  if (form.unique)
    return unique_item(state, set, [this, after](const std::string& text) {
      auto next = after;
      next.used.push_back(text);
      std::ranges::sort(next.used);
      return items(next);
    });
  std::vector<Expr> parts;
  for (unsigned chosen = 0; chosen < 1U << form.contains.size(); ++chosen) {
    auto chosen_set = set;
    auto next = after;
    bool fits = true;
    for (std::size_t i = 0; i < form.contains.size(); ++i) {
      const auto& [value, min, max] = form.contains[i];
      const bool counts = (chosen >> i & 1U) != 0;
      if (counts) chosen_set = normalizer_.with(chosen_set, value);
      if (!counts && max != kUnbounded) chosen_set = normalizer_.with(chosen_set, normalizer_.complement(value));
      if (counts && max == kUnbounded && state.contained[i] >= min) fits = false;  // nothing left to count
      if (counts) ++next.contained[i];
      fits &= max == kUnbounded || next.contained[i] <= max;
    }
    if (!fits || !normalizer_.inhabited(chosen_set) || !viable(next)) continue;
    const auto item = value(chosen_set);
    if (item != RegularPool::kEmpty) parts.push_back(pool_.concat(item, items(next)));
  }
  return pool_.or_(parts);
}

Expr SchemaMachine::unique_item(const ArrayState& state, SchemaSet set,
                                const std::function<Expr(const std::string&)>& then) {
  std::vector<Expr> used;
  for (const auto& text : state.used) used.push_back(pool_.literal(text));
  const auto all = scalars(normalizer_.normal(set), true);
  const auto item = used.empty() ? all : pool_.and_({all, pool_.not_(pool_.or_(used))});
  if (pool_.is_empty(item)) return RegularPool::kEmpty;
  finish_.push_back(then);
  return pool_.capture(item, static_cast<std::uint32_t>(finish_.size() - 1));
}

/// Whether some items can follow so that the counts come out.
bool SchemaMachine::viable(const ArrayState& state) {
  const auto& form = *state.form;
  auto key = fmt::format("{:x} {}", reinterpret_cast<std::uintptr_t>(state.form), state.count);
  for (const auto count : state.contained) key += fmt::format(" {}", count);
  if (const auto known = viable_.find(key); known != viable_.end()) return known->second;
  viable_[key] = false;  // while it is open: a way through the same state again is none
  bool ends = state.count >= form.min;
  for (std::size_t i = 0; i < form.contains.size(); ++i) ends &= state.contained[i] >= form.contains[i].min;
  bool result = ends;
  const auto set = state.count < form.prefix.size() ? form.prefix[state.count] : form.others;
  for (unsigned way = 0; way < 1U << form.contains.size() && !result && state.count < form.max; ++way) {
    const auto chosen = (1U << form.contains.size()) - 1 - way;  // what counts most comes first
    auto next = state;
    auto chosen_set = set;
    const auto still = std::max({static_cast<std::uint32_t>(form.prefix.size()), form.min, 1U});
    if (form.max != kUnbounded || state.count < still) ++next.count;
    bool fits = true;
    for (std::size_t i = 0; i < form.contains.size(); ++i) {
      const auto& [value, min, max] = form.contains[i];
      const bool counts = (chosen >> i & 1U) != 0;
      if (counts) chosen_set = normalizer_.with(chosen_set, value);
      if (!counts && max != kUnbounded) chosen_set = normalizer_.with(chosen_set, normalizer_.complement(value));
      if (counts && (max != kUnbounded || state.contained[i] < min)) ++next.contained[i];
      fits &= max == kUnbounded || next.contained[i] <= max;
    }
    result = fits && normalizer_.inhabited(chosen_set) && viable(next);
  }
  return viable_[key] = result;
}

}  // namespace forge::text::constraint
