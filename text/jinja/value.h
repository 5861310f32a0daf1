#pragma once
// The values a chat template computes with: Python's, as far as templates can see them.
// Containers are immutable once built (the sandbox forbids mutation), so values are shared freely; only namespaces,
// iterators and loops change. Container nesting is bounded, which bounds every recursion over a value.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace forge::text::jinja {

class Interp;
class Value;
struct Loop;

/// What goes wrong while a template runs or is read; whoever knows the place turns it into forge::Error.
struct EvalError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What one render may spend. Every loop over data charges it, so no template can hang or fill the memory.
struct Budget {
  std::uint64_t steps_left;
  std::uint64_t bytes_left;  ///< of strings and containers ever made; never given back

  void step(std::uint64_t count = 1) {
    if (count > steps_left) throw EvalError("the template runs too long: its limit of steps is used up");
    steps_left -= count;
  }
  /// Reading `count` bytes costs a step for each 64.
  void read(std::uint64_t count) { step(1 + count / 64); }
  void allocate(std::uint64_t count) {
    read(count);
    if (count > bytes_left) throw EvalError("the template makes too much data: its memory limit is used up");
    bytes_left -= count;
  }
};

inline constexpr int kNestingMax = 200;            ///< of containers in containers
inline constexpr std::int64_t kRangeMax = 100000;  ///< as jinja2's sandbox

/// The order is that of Value's variant.
enum class Kind : std::uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,
  kUndefined,
  kString,
  kList,
  kDict,
  kNamespace,
  kIterator,
  kCallable,
  kLoop,
};

/// UTF-8, always valid.
struct String {
  std::string text;
  std::size_t length;   ///< code points
  bool markup = false;  ///< came from |safe or |escape: plain text added to it is escaped
  [[nodiscard]] bool ascii() const { return length == text.size(); }
};

/// Why there is no value; using it raises the hint.
struct Undefined {
  std::string hint;
};

enum class ListKind : std::uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems };

struct List {
  ListKind kind = ListKind::kList;
  std::vector<Value> items;
  std::string label;  ///< "group" for groupby's tuples
  int nesting = 1;
  std::int64_t start = 0, stop = 0, step = 1;  ///< of a range
};

class Dict;

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

/// A Python generator, computed ahead: it can be walked once.
struct Iterator {
  std::vector<Value> items;
  std::size_t next = 0;
  std::string name;
  int nesting = 1;
};

struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Callable {
  std::string name;
  std::function<Value(Interp&, CallArgs&)> call;
  bool macro = false;
  std::function<Value(std::string_view)> attribute;  ///< null when there are none
  int nesting = 0;                                   ///< of the values it is bound to
};

class Value {
 public:
  Value() = default;  ///< None
  static Value boolean(bool value) { return Value(Storage(value)); }
  static Value integer(std::int64_t value) { return Value(Storage(value)); }
  static Value real(double value) { return Value(Storage(value)); }
  /// Throws EvalError unless `text` is valid UTF-8.
  static Value string(std::string text, bool markup = false);
  static Value undefined(std::string hint);
  /// Throws EvalError when the nesting gets too deep.
  static Value list(std::vector<Value> items, ListKind kind = ListKind::kList, std::string label = {});
  /// Python's range(start, stop, step) with its elements; step is not 0.
  static Value range(std::int64_t start, std::int64_t stop, std::int64_t step, std::vector<Value> items);
  static Value tuple(std::vector<Value> items) { return list(std::move(items), ListKind::kTuple); }
  static Value dict(Dict dict);
  static Value iterator(std::vector<Value> items, std::string name);
  /// `nesting` is that of the values bound to it. Throws EvalError when it gets too deep.
  static Value callable(std::string name, std::function<Value(Interp&, CallArgs&)> call, int nesting = 0);
  static Value object(std::shared_ptr<const Callable> callable) { return Value(Storage(std::move(callable))); }
  static Value object(std::shared_ptr<Namespace> space) { return Value(Storage(std::move(space))); }
  static Value object(std::shared_ptr<Loop> loop) { return Value(Storage(std::move(loop))); }

  [[nodiscard]] Kind kind() const { return static_cast<Kind>(storage_.index()); }
  [[nodiscard]] bool is(Kind kind) const { return this->kind() == kind; }
  [[nodiscard]] bool is_string() const { return is(Kind::kString); }
  [[nodiscard]] bool is_integer() const { return is(Kind::kInt) || is(Kind::kBool); }
  [[nodiscard]] bool is_number() const { return is_integer() || is(Kind::kFloat); }
  /// A list, not a tuple, view or range.
  [[nodiscard]] bool is_list(ListKind kind) const { return is(Kind::kList) && list().kind == kind; }

  // Each of these needs the kind it names.
  [[nodiscard]] bool boolean() const { return std::get<bool>(storage_); }
  [[nodiscard]] std::int64_t integer() const;  ///< of an int or a bool
  [[nodiscard]] double real() const;           ///< of any number
  [[nodiscard]] const String& string() const { return *std::get<std::shared_ptr<const String>>(storage_); }
  [[nodiscard]] const std::string& text() const { return string().text; }
  [[nodiscard]] const Undefined& undefined() const { return *std::get<std::shared_ptr<const Undefined>>(storage_); }
  [[nodiscard]] const List& list() const { return *std::get<std::shared_ptr<const List>>(storage_); }
  [[nodiscard]] const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(storage_); }
  [[nodiscard]] Namespace& space() const { return *std::get<std::shared_ptr<Namespace>>(storage_); }
  [[nodiscard]] Iterator& iterator() const { return *std::get<std::shared_ptr<Iterator>>(storage_); }
  [[nodiscard]] const Callable& callable() const { return *std::get<std::shared_ptr<const Callable>>(storage_); }
  [[nodiscard]] const std::shared_ptr<Loop>& loop() const { return std::get<std::shared_ptr<Loop>>(storage_); }

  [[nodiscard]] int nesting() const;
  /// The same object (Python's `is`); numbers by value.
  [[nodiscard]] bool same(const Value& other) const { return storage_ == other.storage_; }
  /// Python's name of the type: "str", "NoneType", "dict".
  [[nodiscard]] std::string_view type_name() const;

 private:
  using Storage = std::variant<std::monostate, bool, std::int64_t, double, std::shared_ptr<const Undefined>,
                               std::shared_ptr<const String>, std::shared_ptr<const List>, std::shared_ptr<const Dict>,
                               std::shared_ptr<Namespace>, std::shared_ptr<Iterator>, std::shared_ptr<const Callable>,
                               std::shared_ptr<Loop>>;
  explicit Value(Storage storage) : storage_(std::move(storage)) {}
  Storage storage_;
};

/// A dict in insertion order. Small ones are searched in line, larger ones through an index of hashes.
class Dict {
 public:
  [[nodiscard]] const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  /// nullptr when absent.
  [[nodiscard]] const Value* find(std::string_view key) const;
  /// nullptr when absent or when the key cannot be hashed.
  [[nodiscard]] const Value* find(const Value& key, Budget& budget) const;
  void set(std::string key, Value value);
  /// Throws EvalError for a key that cannot be hashed.
  void set(Value key, Value value, Budget& budget);
  [[nodiscard]] int nesting() const { return nesting_; }

 private:
  void append(Value key, Value value, std::size_t hash);
  std::vector<std::pair<Value, Value>> entries_;
  std::unordered_multimap<std::size_t, std::uint32_t> index_;
  int nesting_ = 1;
};

[[nodiscard]] bool truth(const Value& value);
/// Python's ==: 1 == 1.0 == True, lists by element.
[[nodiscard]] bool equal(const Value& left, const Value& right, Budget& budget);
/// Negative, zero or positive; `op` is for the message. Throws EvalError for types without an order; NaN is "neither":
/// the result is then empty.
[[nodiscard]] std::optional<int> compare(const Value& left, const Value& right, std::string_view op, Budget& budget);
/// Empty for what Python cannot hash.
[[nodiscard]] std::optional<std::size_t> hash(const Value& value, Budget& budget);
/// The elements that iterating gives (an iterator is used up by it). Throws EvalError for what cannot be iterated.
[[nodiscard]] std::vector<Value> elements(const Value& value, Budget& budget);
/// Python's len(). Throws EvalError where there is none.
[[nodiscard]] std::int64_t length(const Value& value);
/// Throws EvalError with its hint if the value is undefined.
inline void require_defined(const Value& value) {
  if (value.is(Kind::kUndefined)) throw EvalError(value.undefined().hint);
}

}  // namespace forge::text::jinja
