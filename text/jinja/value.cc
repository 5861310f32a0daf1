#include "text/jinja/value.h"

#include <fmt/format.h>

#include <cmath>

#include "text/jinja/pytext.h"

namespace forge::text::jinja {
namespace {

constexpr std::size_t kLinearMax = 8;  ///< entries up to which a Dict needs no index

std::size_t hash_text(std::string_view text) {
  return std::hash<std::string_view>{}(text);
}

void check_nesting(int nesting) {
  if (nesting > kNestingMax) throw EvalError(fmt::format("values are nested more than {} deep", kNestingMax));
}

// Lists of different kinds are never equal: [1] != (1,).
bool equal_lists(const List& left, const List& right, Budget& budget) {
  if (left.kind != right.kind || left.items.size() != right.items.size()) return false;
  for (std::size_t i = 0; i < left.items.size(); ++i)
    if (!equal(left.items[i], right.items[i], budget)) return false;
  return true;
}

// The order of the entries does not matter.
bool equal_dicts(const Dict& left, const Dict& right, Budget& budget) {
  if (left.size() != right.size()) return false;
  for (const auto& [key, value] : left.entries()) {
    const Value* other = right.find(key, budget);
    if (other == nullptr || !equal(value, *other, budget)) return false;
  }
  return true;
}

}  // namespace

Value Value::string(std::string text, bool markup) {
  const std::optional<std::size_t> length = utf8_length(text);
  if (!length) throw EvalError("text is not valid UTF-8");
  return Value(Storage(std::make_shared<const String>(String{std::move(text), *length, markup})));
}

Value Value::undefined(std::string hint) {
  return Value(Storage(std::make_shared<const Undefined>(Undefined{std::move(hint)})));
}

Value Value::list(std::vector<Value> items, ListKind kind, std::string label) {
  int nesting = 0;
  for (const Value& item : items) nesting = std::max(nesting, item.nesting());
  check_nesting(nesting + 1);
  return Value(Storage(std::make_shared<const List>(List{kind, std::move(items), std::move(label), nesting + 1})));
}

Value Value::range(std::int64_t start, std::int64_t stop, std::int64_t step, std::vector<Value> items) {
  return Value(
      Storage(std::make_shared<const List>(List{ListKind::kRange, std::move(items), {}, 1, start, stop, step})));
}

Value Value::dict(Dict dict) {
  check_nesting(dict.nesting());
  return Value(Storage(std::make_shared<const Dict>(std::move(dict))));
}

Value Value::iterator(std::vector<Value> items, std::string name) {
  int nesting = 0;
  for (const Value& item : items) nesting = std::max(nesting, item.nesting());
  check_nesting(nesting + 1);
  return Value(Storage(std::make_shared<Iterator>(Iterator{std::move(items), 0, std::move(name), nesting + 1})));
}

Value Value::callable(std::string name, std::function<Value(Interp&, CallArgs&)> call, int nesting) {
  check_nesting(nesting);
  return object(std::make_shared<const Callable>(Callable{std::move(name), std::move(call), false, {}, nesting}));
}

std::int64_t Value::integer() const {
  if (const bool* flag = std::get_if<bool>(&storage_)) return *flag ? 1 : 0;
  return std::get<std::int64_t>(storage_);
}

double Value::real() const {
  if (const double* number = std::get_if<double>(&storage_)) return *number;
  return static_cast<double>(integer());
}

// Stored in each container when it is made, so this never recurses.
int Value::nesting() const {
  if (is(Kind::kList)) return list().nesting;
  if (is(Kind::kDict)) return dict().nesting();
  if (is(Kind::kIterator)) return iterator().nesting;
  if (is(Kind::kCallable)) return callable().nesting;
  return 0;
}

std::string_view Value::type_name() const {
  switch (kind()) {
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kString:
      return string().markup ? "Markup" : "str";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kIterator:
      return "generator";
    case Kind::kCallable:
      return callable().macro ? "Macro" : "function";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kList:
      break;
  }
  static constexpr std::string_view kNames[] = {"list", "tuple", "range", "dict_keys", "dict_values", "dict_items"};
  return kNames[static_cast<int>(list().kind)];
}

// The common case, message.role and the like: no Value has to be made for the key.
const Value* Dict::find(std::string_view key) const {
  if (entries_.size() <= kLinearMax) {
    for (const auto& [name, value] : entries_)
      if (name.is_string() && name.text() == key) return &value;
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(hash_text(key));
  for (auto it = begin; it != end; ++it) {
    const auto& [name, value] = entries_[it->second];
    if (name.is_string() && name.text() == key) return &value;
  }
  return nullptr;
}

const Value* Dict::find(const Value& key, Budget& budget) const {
  if (key.is_string()) {
    budget.read(key.text().size());
    return find(key.text());
  }
  const std::optional<std::size_t> code = hash(key, budget);
  if (!code) return nullptr;
  if (entries_.size() <= kLinearMax) {
    for (const auto& [name, value] : entries_)
      if (equal(name, key, budget)) return &value;
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(*code);
  for (auto it = begin; it != end; ++it)
    if (equal(entries_[it->second].first, key, budget)) return &entries_[it->second].second;
  return nullptr;
}

// Adds a new entry. The entry after the kLinearMax-th makes the index, of all entries so far.
void Dict::append(Value key, Value value, std::size_t code) {
  nesting_ = std::max({nesting_, value.nesting() + 1, key.nesting() + 1});
  if (entries_.size() == kLinearMax) {
    Budget unlimited{~0ull, ~0ull};
    for (std::size_t i = 0; i < entries_.size(); ++i)
      index_.emplace(*hash(entries_[i].first, unlimited), static_cast<std::uint32_t>(i));
  }
  if (entries_.size() >= kLinearMax) index_.emplace(code, static_cast<std::uint32_t>(entries_.size()));
  entries_.emplace_back(std::move(key), std::move(value));
}

// For contexts made by forge itself, outside any render's budget.
void Dict::set(std::string key, Value value) {
  Budget unlimited{~0ull, ~0ull};
  set(Value::string(std::move(key)), std::move(value), unlimited);
}

void Dict::set(Value key, Value value, Budget& budget) {
  const std::optional<std::size_t> code = hash(key, budget);
  if (!code) throw EvalError(fmt::format("unhashable type: '{}'", key.type_name()));
  if (const Value* old = find(key, budget)) {
    nesting_ = std::max(nesting_, value.nesting() + 1);
    *const_cast<Value*>(old) = std::move(value);  // our own entry: find() is const only for callers
    return;
  }
  append(std::move(key), std::move(value), *code);
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
    case Kind::kUndefined:
      return false;
    case Kind::kBool:
      return value.boolean();
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.real() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
      return !value.list().items.empty();
    case Kind::kDict:
      return value.dict().size() != 0;
    default:
      return true;
  }
}

bool equal(const Value& left, const Value& right, Budget& budget) {
  budget.step();
  if (left.is_number() && right.is_number()) {
    if (left.is_integer() && right.is_integer()) return left.integer() == right.integer();
    return left.real() == right.real();
  }
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kNone:
    case Kind::kUndefined:
      return true;
    case Kind::kString:
      if (left.text().size() != right.text().size()) return false;
      budget.read(left.text().size());
      return left.text() == right.text();
    case Kind::kList:
      return left.same(right) || equal_lists(left.list(), right.list(), budget);
    case Kind::kDict:
      return left.same(right) || equal_dicts(left.dict(), right.dict(), budget);
    default:
      return left.same(right);
  }
}

// Containers compare like Python's: the first pair of different elements decides, then the length.
std::optional<int> compare(const Value& left, const Value& right, std::string_view op, Budget& budget) {
  budget.step();
  require_defined(left);
  require_defined(right);
  const auto order = [](const auto& a, const auto& b) { return a < b ? -1 : (b < a ? 1 : 0); };
  if (left.is_number() && right.is_number()) {
    if (left.is_integer() && right.is_integer()) return order(left.integer(), right.integer());
    if (std::isnan(left.real()) || std::isnan(right.real())) return std::nullopt;
    return order(left.real(), right.real());
  }
  if (left.is_string() && right.is_string()) {  // bytes of UTF-8 sort like their code points
    budget.read(std::min(left.text().size(), right.text().size()));
    return order(left.text(), right.text());
  }
  if (left.is(Kind::kList) && right.is(Kind::kList) && left.list().kind == right.list().kind &&
      left.list().kind <= ListKind::kTuple) {
    const std::vector<Value>&a = left.list().items, &b = right.list().items;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      if (!equal(a[i], b[i], budget)) return compare(a[i], b[i], op, budget);
    return order(a.size(), b.size());
  }
  throw EvalError(
      fmt::format("'{}' not supported between instances of '{}' and '{}'", op, left.type_name(), right.type_name()));
}

// 1, 1.0 and True are equal, so all numbers are hashed as double.
std::optional<std::size_t> hash(const Value& value, Budget& budget) {
  budget.step();
  switch (value.kind()) {
    case Kind::kNone:
      return 0x9e37;
    case Kind::kUndefined:
      return 0x7f4a;
    case Kind::kBool:
    case Kind::kInt:
      return std::hash<double>{}(static_cast<double>(value.integer()));
    case Kind::kFloat:
      return std::hash<double>{}(value.real());
    case Kind::kString:
      budget.read(value.text().size());
      return hash_text(value.text());
    case Kind::kDict:
      return std::nullopt;
    case Kind::kList:
      break;
    default:
      return 0x15;
  }
  if (value.list().kind != ListKind::kTuple && value.list().kind != ListKind::kRange) return std::nullopt;
  // Tuples and ranges can be hashed if all their elements can.
  std::size_t code = 0x345678;
  for (const Value& item : value.list().items) {
    const std::optional<std::size_t> part = hash(item, budget);
    if (!part) return std::nullopt;
    code = (code ^ *part) * 1000003;
  }
  return code;
}

// Iterating over a dict gives its keys, over a string its characters, over an undefined value nothing.
std::vector<Value> elements(const Value& value, Budget& budget) {
  const auto charge = [&](std::size_t count) { budget.allocate(count * sizeof(Value)); };
  switch (value.kind()) {
    case Kind::kUndefined:
      return {};
    case Kind::kList:
      charge(value.list().items.size());
      return value.list().items;
    case Kind::kIterator: {
      Iterator& source = value.iterator();
      charge(source.items.size() - source.next);
      std::vector<Value> rest(source.items.begin() + static_cast<std::ptrdiff_t>(source.next), source.items.end());
      source.next = source.items.size();
      return rest;
    }
    case Kind::kDict: {
      charge(value.dict().size());
      std::vector<Value> keys;
      keys.reserve(value.dict().size());
      for (const auto& entry : value.dict().entries()) keys.push_back(entry.first);
      return keys;
    }
    case Kind::kString: {
      charge(value.string().length * 4);
      std::vector<Value> letters;
      letters.reserve(value.string().length);
      std::string_view rest = value.text();
      while (!rest.empty()) {
        const std::size_t size = utf8_size(rest.front());
        letters.push_back(Value::string(std::string(rest.substr(0, size))));
        rest.remove_prefix(size);
      }
      return letters;
    }
    default:
      throw EvalError(fmt::format("'{}' object is not iterable", value.type_name()));
  }
}

std::int64_t length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<std::int64_t>(value.string().length);
    case Kind::kList:
      return static_cast<std::int64_t>(value.list().items.size());
    case Kind::kDict:
      return static_cast<std::int64_t>(value.dict().size());
    default:
      throw EvalError(fmt::format("object of type '{}' has no len()", value.type_name()));
  }
}

}  // namespace forge::text::jinja
