#include "text/constraint/schema/schema_machine.h"

#include <algorithm>
#include <array>

#include "support/error.h"
#include "text/constraint/regex_syntax.h"
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

void SchemaMachine::explore_all(SchemaSet root) {
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
}

SchemaSet SchemaMachine::explored_at(std::string_view at) {
  const auto& root = document_.root();
  std::string reference = "#";  // as a URI's fragment
  for (const char c : at) reference += c == '%' ? std::string("%25") : std::string(1, c);
  const auto set = normalizer_.set({normalizer_.ref(at.empty() ? root : document_.resolve(root, "$ref", reference))});
  explore_all(set);
  return set;
}

Expr SchemaMachine::start(std::string_view at) {
  const auto all = value(explored_at(at));
  if (all == RegularPool::kEmpty) normalizer_.refuse_empty();
  return all;
}

namespace {

/// Texts that the reader of tagged values may take for something else than a string.
Expr other_texts(RegularPool& pool, const std::vector<std::string>& types) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kForms{
      {{"", R"(["{[0-9-][\s\S]*|true|false|null)"},
       {"number", R"(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?)"},
       {"boolean", "[tT]rue|[fF]alse"},
       {"null", "null|None"},
       {"object", R"(\{[\s\S]*)"},
       {"array", R"([\[(][\s\S]*)"}}};
  std::vector<Expr> found;
  for (const auto& [type, form] : kForms)
    if (type.empty() ? types.empty() : std::ranges::find(types, type) != types.end())
      found.push_back(parse_regex(pool, form));
  const auto space = parse_regex(pool, "[ \\t\\r\\n]*");
  return pool.concat(space, pool.concat(pool.or_(found), space));
}

}  // namespace

Expr SchemaMachine::tagged(const TaggedValue& wanted) {
  const auto all = explored_at(wanted.at);
  const auto& types = wanted.types;
  const bool only_strings = types.size() == 1 && types[0] == "string";
  std::vector<Expr> forms;
  if (types.empty() || std::ranges::find(types, "string") != types.end()) {
    constexpr std::string_view kCdata = "<![CDATA[";
    const auto texts = normalizer_.normal(all).texts;
    std::vector<Expr> parts{texts, pool_.not_(pool_.containing(kCdata))};
    if (!wanted.until.empty()) parts.push_back(pool_.not_(pool_.containing(wanted.until)));
    if (!only_strings) parts.push_back(pool_.not_(other_texts(pool_, types)));
    if (const auto strings = pool_.and_(parts); !pool_.is_empty(strings)) forms.push_back(strings);
  }
  if (!only_strings) {
    auto others = types;
    if (others.empty()) others = {"number", "boolean", "null", "object", "array"};
    std::erase(others, "string");
    const auto rest =
        normalizer_.with(all, normalizer_.ref(document_.keep(SchemaJson{{"type", others}}, document_.root())));
    explore_all(rest);
    if (const auto values = value(rest); values != RegularPool::kEmpty) forms.push_back(values);
  }
  if (forms.empty()) normalizer_.refuse_empty();
  return pool_.or_(forms);
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

Language compile_schema(RegularPool& pool, std::string_view schema, std::string_view at) {
  auto machine = std::make_shared<SchemaMachine>(pool, schema);
  const auto start = machine->start(at);
  return {.start = start, .owner = std::move(machine)};
}

Language compile_tagged_value(RegularPool& pool, const TaggedValue& value) {
  auto machine = std::make_shared<SchemaMachine>(pool, value.schema);
  const auto start = machine->tagged(value);
  return {.start = start, .owner = std::move(machine)};
}

}  // namespace forge::text::constraint
