#include "text/constraint/schema/schema_machine.h"

#include <algorithm>

#include "support/error.h"
#include "text/constraint/schema/schema.h"

namespace forge::text::constraint {
namespace {

constexpr std::size_t kSetsMax = 20'000;  ///< different sets of schemas that values must satisfy

}  // namespace

SchemaMachine::SchemaMachine(RegularPool& pool, std::string_view schema)
    : document_(schema), json_(pool), normalizer_(document_, json_), pool_(pool) {
  pool_.define_by([this](Expr call) {
    const auto body = std::move(later_.at(call));
    later_.erase(call);
    return body();
  });
  pool_.finish_by([this](std::uint32_t number, const std::string& word) { return finish_.at(number)(word); });
}

Expr SchemaMachine::later(const RegularPool::CallFacts& facts, std::function<Expr()> body) {
  const auto call = pool_.call(facts);
  later_.emplace(call, std::move(body));
  return call;
}

Expr SchemaMachine::start() {
  const auto root = normalizer_.set({normalizer_.ref(document_.root())});
  explore(root);
  for (; !to_explore_.empty();) {
    const auto next = to_explore_.back();
    to_explore_.pop_back();
    for (const auto& form : object_forms(next)) {
      for (const auto& member : form->members) explore(member.value);
      for (const auto& others : form->others) explore(others.value);
    }
    for (const auto& form : array_forms(next)) {
      for (const auto item : form->prefix) explore(item);
      explore(form->others);
    }
    if (explored_.size() > kSetsMax) document_.refuse(document_.root(), "properties", "the schema is too complex");
  }
  const auto all = value(root);
  if (all == RegularPool::kEmpty) normalizer_.refuse_empty();
  return all;
}

void SchemaMachine::explore(SchemaSet set) {
  if (!explored_.insert(set).second) return;
  to_explore_.push_back(set);
}

/// The texts of null, booleans, numbers and strings; each value has one text if `once`.
Expr SchemaMachine::scalars(const NormalSchema& normal, bool once) {
  std::vector<Expr> parts;
  if (normal.null) parts.push_back(pool_.literal("null"));
  if (normal.yes) parts.push_back(pool_.literal("true"));
  if (normal.no) parts.push_back(pool_.literal("false"));
  if (normal.numbers != RegularPool::kEmpty)
    parts.push_back(once ? normal.numbers : json_.spelled_numbers(normal.numbers));
  if (normal.texts != RegularPool::kEmpty)
    parts.push_back(once ? json_.quoted_once(normal.texts) : json_.quoted(normal.texts));
  return pool_.or_(parts);
}

Expr SchemaMachine::value(SchemaSet set) {
  if (const auto known = values_.find(set); known != values_.end()) return known->second;
  if (!normalizer_.inhabited(set)) return values_[set] = RegularPool::kEmpty;
  const auto& normal = normalizer_.normal(set);
  if (normal.objects.empty() && normal.arrays.empty()) return values_[set] = scalars(normal, false);
  RegularPool::CallFacts facts;
  const std::uint8_t number_starts[] = {'-'};
  if (normal.numbers != RegularPool::kEmpty) {
    facts.first.add(number_starts[0]);
    facts.first.add('0', '9');
  }
  for (const auto& [has, byte] : {std::pair(normal.null, 'n'),
                                  {normal.yes, 't'},
                                  {normal.no, 'f'},
                                  {normal.texts != RegularPool::kEmpty, '"'},
                                  {!normal.objects.empty(), '{'},
                                  {!normal.arrays.empty(), '['}})
    if (has) facts.first.add(static_cast<std::uint8_t>(byte));
  return values_[set] = later(facts, [this, set] { return value_body(set); });
}

Expr SchemaMachine::value_body(SchemaSet set) {
  std::vector<Expr> parts{scalars(normalizer_.normal(set), false)};
  for (const auto& form : object_forms(set)) parts.push_back(object(*form));
  for (const auto& form : array_forms(set)) parts.push_back(array(*form));
  return pool_.or_(parts);
}

Language compile_schema(RegularPool& pool, std::string_view schema) {
  auto machine = std::make_shared<SchemaMachine>(pool, schema);
  const auto start = machine->start();
  return {.start = start, .owner = std::move(machine)};
}

}  // namespace forge::text::constraint
