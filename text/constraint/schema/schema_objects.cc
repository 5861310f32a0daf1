// Objects: members come in the order of the schema's properties, each name once, and then those with other names.
// Without an order an object of n optional members had 2^n states; with it there are n. Names that only complements,
// constants and dependencies speak of have no place and may come anywhere.

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "text/constraint/schema/schema_machine.h"

namespace forge::text::constraint {
namespace {

constexpr std::size_t kWantedMax = 6;
constexpr std::uint32_t kFewNames = 1000;  ///< above it, other names are taken for enough

}  // namespace

const std::vector<std::unique_ptr<SchemaMachine::ObjectForm>>& SchemaMachine::object_forms(SchemaSet set) {
  if (const auto known = object_forms_.find(set); known != object_forms_.end()) return known->second;
  std::vector<std::unique_ptr<ObjectForm>> forms;
  const auto& normal = normalizer_.normal(set);
  const auto places = normalizer_.places(normal);
  for (const auto& object : normal.objects)
    if (auto form = object_form(object, places)) forms.push_back(std::move(form));
  return object_forms_[set] = std::move(forms);
}

/// Nothing if no object satisfies the case.
std::unique_ptr<SchemaMachine::ObjectForm> SchemaMachine::object_form(const ObjectCase& object,
                                                                      const SchemaNormalizer::Places& places) {
  if (object.wanted.size() > kWantedMax || (!object.wanted.empty() && object.max != kUnbounded))
    document_.refuse(document_.root(), "",
                     "not supported: not, oneOf or if need too many members of one object, or some together with "
                     "maxProperties");
  auto form = std::make_unique<ObjectForm>();
  form->min = object.min;
  form->max = object.max;
  for (const auto& [names, value] : object.wanted) form->wanted.push_back(value);
  for (const auto& name : normalizer_.names(object)) {
    Member member{
        .value = normalizer_.property(object, name), .name = name, .required = object.required.contains(name)};
    if (!normalizer_.inhabited(member.value)) {
      if (member.required) return nullptr;
      continue;
    }
    for (std::size_t i = 0; i < object.wanted.size(); ++i)
      if (normalizer_.matches(object.wanted[i].names, name)) member.wanted |= 1U << i;
    if (const auto place = places.find(name); place != places.end()) member.place = place->second;
    member.key = pool_.concat(json_.quoted(std::string_view(name)), json_.colon());
    form->required += member.required ? 1 : 0;
    form->members.push_back(std::move(member));
  }
  if (form->wanted.empty()) {
    std::vector<std::pair<std::string, Member>> sorted;
    for (auto& member : form->members) {
      const auto quoted = json_.quoted(std::string_view(member.name));
      sorted.emplace_back(pool_.words(quoted, 1, SIZE_MAX).value().at(0), std::move(member));
    }
    std::ranges::sort(sorted, {}, [](const auto& one) -> const std::string& { return one.first; });
    std::vector<std::string> keys;
    form->members.clear();
    for (auto& [key, member] : sorted) {
      keys.push_back(key);
      form->members.push_back(std::move(member));
    }
    form->keys = std::make_shared<const std::vector<std::string>>(std::move(keys));
  }
  for (const auto& [names, value] : normalizer_.other_names(object)) {
    if (!normalizer_.inhabited(value)) continue;
    Others others{.names = json_.quoted_once(names), .value = value};
    for (std::size_t i = 0; i < object.wanted.size(); ++i)
      if (!pool_.is_empty(pool_.and_({names, object.wanted[i].names}))) others.wanted |= 1U << i;
    form->others.push_back(others);
  }
  form->counts = form->max != kUnbounded || form->min > form->required;
  form->distinct = form->min > form->required && form->min > 1 && !form->others.empty();
  if (!form->others.empty()) form->others_max = kUnbounded;
  if (form->distinct && form->min <= kFewNames) {
    form->others_max = 0;
    for (const auto& [names, value] : normalizer_.other_names(object)) {
      if (!normalizer_.inhabited(value)) continue;
      const auto few = pool_.words(names, form->min, kFewNames * 100);
      form->others_max += few ? static_cast<std::uint32_t>(few->size()) : form->min;
    }
  }
  ObjectState state{.form = form.get(), .left = std::vector<bool>(form->members.size(), true)};
  state.required = form->required;
  state.wanted = (1U << form->wanted.size()) - 1;
  if (form->required > form->max || !viable(state) || !reaches_min(state)) return nullptr;
  return form;
}

/// Whether every wanted property can still come.
bool SchemaMachine::viable(const ObjectState& state) {
  for (std::size_t i = 0; i < state.form->wanted.size(); ++i) {
    if ((state.wanted >> i & 1U) == 0) continue;
    const auto fits = [&](const auto& one) {
      return (one.wanted >> i & 1U) != 0 && normalizer_.inhabited(normalizer_.with(one.value, state.form->wanted[i]));
    };
    bool found = std::ranges::any_of(state.form->others, fits);
    for (std::size_t m = 0; m < state.left.size() && !found; ++m) found = state.left[m] && fits(state.form->members[m]);
    if (!found) return false;
  }
  return true;
}

Expr SchemaMachine::object(const ObjectForm& form) {
  ObjectState state{.form = &form, .left = std::vector<bool>(form.members.size(), true)};
  state.required = form.required;
  state.wanted = (1U << form.wanted.size()) - 1;
  return pool_.concat(pool_.literal("{"), members(state));
}

/// What follows the members so far, up to the closing brace.
Expr SchemaMachine::members(const ObjectState& state) {
  auto key = fmt::format("o{:x} {} {} {} {}", reinterpret_cast<std::uintptr_t>(state.form), state.count, state.wanted,
                         static_cast<int>(state.first), state.used.size());
  key.insert(key.end(), state.left.begin(), state.left.end());
  for (const auto& name : state.used) key += name;
  const auto [at, is_new] = states_.try_emplace(std::move(key), RegularPool::kEmpty);
  if (!is_new) return at->second;
  RegularPool::CallFacts facts;
  for (const char c : {' ', '\n', '}', state.first ? '"' : ','}) facts.first.add(static_cast<std::uint8_t>(c));
  for (std::size_t i = 0; i < state.left.size(); ++i)
    if (state.left[i] && state.form->members[i].required)
      facts.min = std::min(facts.min + pool_.min_bytes(state.form->members[i].key) + 2, RegularPool::kMinMax);
  return at->second = later(facts, [this, state] { return members_body(state); });
}

/// Whether one more member may come, apart from those that must.
bool SchemaMachine::has_room(const ObjectState& state, bool required) {
  const auto max = state.form->max;
  return max == kUnbounded || state.count + state.required + (required ? 0U : 1U) <= max;
}

/// The place of the first member left that must come; none may be left out before it.
std::uint32_t SchemaMachine::next_required(const ObjectState& state) {
  auto first = kUnplaced;
  for (std::size_t i = 0; i < state.left.size(); ++i)
    if (const auto& member = state.form->members[i]; state.left[i] && member.required)
      first = std::min(first, member.place);
  return first;
}

/// Whether there are members enough for minProperties.
bool SchemaMachine::reaches_min(const ObjectState& state) {
  const auto& form = *state.form;
  if (form.min <= form.required || form.others_max == kUnbounded) return true;
  std::size_t most = state.count + form.others_max - state.used.size();
  most += static_cast<std::size_t>(std::ranges::count(state.left, true));
  return most >= form.min;
}

/// Without the members whose place is before `place`.
void SchemaMachine::pass(ObjectState& state, std::uint32_t place) {
  for (std::size_t i = 0; i < state.left.size(); ++i)
    if (state.form->members[i].place < place) state.left[i] = false;
}

/// The members that have a name of their own, and what follows each.
Expr SchemaMachine::named_members(const ObjectState& state) {
  const auto& form = *state.form;
  auto left = state.left;
  const auto after = [state](std::uint32_t i) {
    const auto& member = state.form->members[i];
    auto next = state;
    next.first = false;
    next.count = state.form->counts ? state.count + 1 : 0;
    next.left[i] = false;
    if (member.place != kUnplaced) pass(next, member.place);
    next.required -= member.required ? 1 : 0;
    return next;
  };
  const auto until = next_required(state);
  const bool may_lack = form.min > form.required && form.others_max != kUnbounded;
  pool_.spend(left.size());
  for (std::uint32_t i = 0; i < left.size(); ++i) {
    const auto& member = form.members[i];
    const bool in_order = member.place == kUnplaced || member.place <= until;
    left[i] = left[i] && in_order && has_room(state, member.required);
    if (left[i] && may_lack) left[i] = reaches_min(after(i));
  }
  const auto then = [this, state, after](std::uint32_t i) {
    const auto& member = state.form->members[i];
    return after_key(after(i), member.value, member.wanted & state.wanted);
  };
  if (form.keys != nullptr)
    return pool_.choice(form.keys, std::move(left),
                        [this, then](std::uint32_t i) { return pool_.concat(json_.colon(), then(i)); });
  std::vector<Expr> all;
  for (std::uint32_t i = 0; i < left.size(); ++i)
    if (left[i]) all.push_back(pool_.concat(form.members[i].key, then(i)));
  return pool_.or_(all);
}

Expr SchemaMachine::members_body(const ObjectState& state) {
  const auto& form = *state.form;
  std::vector<Expr> next;
  auto after = state;
  after.first = false;
  after.count = form.counts ? state.count + 1 : 0;
  next.push_back(named_members(state));
  pass(after, kUnplaced);
  auto other = after;  // after one more name, which reaches_min() would find among those used
  other.used.emplace_back();
  const bool may_come =
      next_required(state) == kUnplaced && has_room(state, false) && (!form.distinct || reaches_min(other));
  for (const auto& others : form.others) {
    if (!may_come) break;
    if (!form.distinct) {
      const auto then = after_key(after, others.value, others.wanted & state.wanted);
      if (then != RegularPool::kEmpty) next.push_back(pool_.concat(others.names, pool_.concat(json_.colon(), then)));
      continue;
    }
    std::vector<Expr> used;
    for (const auto& name : state.used) used.push_back(pool_.literal(name));
    const auto names = pool_.and_({others.names, pool_.not_(pool_.or_(used))});
    if (pool_.is_empty(names)) continue;
    finish_.emplace_back([this, after, value = others.value, wanted = others.wanted & state.wanted](const auto& name) {
      auto named = after;
      if (!name.empty()) named.used.push_back(name);
      std::ranges::sort(named.used);
      return pool_.concat(json_.colon(), after_key(named, value, wanted));
    });
    next.push_back(pool_.capture(names, static_cast<std::uint32_t>(finish_.size() - 1)));
  }
  const bool may_end = state.required == 0 && state.wanted == 0 && state.count >= (form.counts ? form.min : 0);
  const auto end = may_end ? pool_.literal("}") : RegularPool::kEmpty;
  const auto all = pool_.or_(next);
  if (state.first) return pool_.concat(json_.space(), pool_.or_({all, end}));
  return pool_.or_({pool_.concat(json_.comma(), all), pool_.concat(json_.space(), end)});
}

/// The value after a key, and what follows it. A value that is also a wanted one may count as that.
Expr SchemaMachine::after_key(const ObjectState& state, SchemaSet value, std::uint32_t wanted) {
  std::vector<Expr> parts;
  for (auto chosen = wanted;; chosen = (chosen - 1) & wanted) {
    auto set = value;
    for (std::size_t i = 0; i < state.form->wanted.size(); ++i)
      if ((chosen >> i & 1U) != 0) set = normalizer_.with(set, state.form->wanted[i]);
    auto next = state;
    next.wanted &= ~chosen;
    if (normalizer_.inhabited(set) && viable(next)) {
      const auto expr = this->value(set);
      if (expr != RegularPool::kEmpty) parts.push_back(pool_.concat(expr, members(next)));
    }
    if (chosen == 0) break;
  }
  return pool_.or_(parts);
}

}  // namespace forge::text::constraint
