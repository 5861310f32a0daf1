#pragma once
// The values that a chat template computes with: Python's, as far as templates can see them.
//
// Containers never change once they are built (the sandbox forbids mutation), so copies share them. Only namespaces,
// iterators, loops and the objects made by joiner() and cycler() change. The nesting of containers is bounded, which
// bounds every recursion over a value.

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

/// An error while a template is parsed or runs. ChatTemplate adds the position and turns it into forge::Error.
struct EvalError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What one render may still spend. Every loop over data charges it, so no template can run forever or exhaust the
/// memory.
struct Budget {
  std::uint64_t steps_left;
  std::uint64_t bytes_left;  ///< for strings and containers; not returned when they are freed

  /// Charges `count` steps. Throws EvalError if there are not enough left.
  void step(std::uint64_t count = 1) {
    if (count > steps_left) throw EvalError("the template runs too long: its limit of steps is used up");
    steps_left -= count;
  }
  /// Charges for reading `count` bytes: one step and one more for each 64 bytes.
  void read(std::uint64_t count) { step(1 + count / 64); }
  /// Charges for `count` bytes of new data, and for writing them.
  void allocate(std::uint64_t count) {
    read(count);
    if (count > bytes_left) throw EvalError("the template makes too much data: its memory limit is used up");
    bytes_left -= count;
  }
};

inline constexpr int kNestingMax = 200;            ///< levels of containers inside containers
inline constexpr std::int64_t kRangeMax = 100000;  ///< elements; the limit of jinja2's sandbox

/// The type of a value. The order is that of Value's variant.
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

/// A Python str. Always valid UTF-8.
struct String {
  std::string text;
  std::size_t length;   ///< code points
  bool markup = false;  ///< made by |safe or |escape; plain text added to it is escaped
  [[nodiscard]] bool ascii() const { return length == text.size(); }
};

/// The value of an unknown name, attribute or item. It prints as nothing and iterates as an empty list; operators,
/// attributes and calls throw EvalError with the hint.
struct Undefined {
  std::string hint;
};

/// What a List is in Python: list, tuple, range, or one of the three views of a dict.
enum class ListKind : std::uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems };

/// A sequence. The elements of a range are stored, too.
struct List {
  ListKind kind = ListKind::kList;
  std::vector<Value> items;
  std::string label;                           ///< "group" for groupby's tuples
  int nesting = 1;                             ///< levels of containers, this one included
  std::int64_t start = 0, stop = 0, step = 1;  ///< of a range
};

class Dict;

/// Jinja's namespace(): the only object whose attributes a template may set.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

/// A Python generator. Its elements are computed in advance, but it can be walked only once: `next` is the first not
/// yet read.
struct Iterator {
  std::vector<Value> items;
  std::size_t next = 0;
  std::string name;  ///< of the generator function, for repr()
  int nesting = 1;
};

/// The arguments of a call, evaluated.
struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// A function, a bound method, a macro, or an object such as a cycler.
struct Callable {
  std::string name;
  std::function<Value(Interp&, CallArgs&)> call;
  bool macro = false;
  std::function<Value(std::string_view)> attribute;  ///< looks attributes up; null if there are none
  int nesting = 0;                                   ///< that of the values it is bound to
};

/// A value of any type: 16 bytes of payload and a tag. Copying is cheap; the larger types are shared by reference
/// count.
class Value {
 public:
  Value() = default;  ///< None
  static Value boolean(bool value) { return Value(Storage(value)); }
  static Value integer(std::int64_t value) { return Value(Storage(value)); }
  static Value real(double value) { return Value(Storage(value)); }
  /// A str. Throws EvalError unless `text` is valid UTF-8.
  static Value string(std::string text, bool markup = false);
  /// An undefined value; `hint` says what is missing, e.g. "'tools' is undefined".
  static Value undefined(std::string hint);
  /// Throws EvalError if the nesting gets too deep; so do dict() and iterator().
  static Value list(std::vector<Value> items, ListKind kind = ListKind::kList, std::string label = {});
  /// Python's range(start, stop, step) together with its elements; step must not be 0.
  static Value range(std::int64_t start, std::int64_t stop, std::int64_t step, std::vector<Value> items);
  static Value tuple(std::vector<Value> items) { return list(std::move(items), ListKind::kTuple); }
  static Value dict(Dict dict);
  /// A generator over `items`; `name` is the generator function's.
  static Value iterator(std::vector<Value> items, std::string name);
  /// `nesting` is that of the values bound to the function. Throws EvalError if it gets too deep.
  static Value callable(std::string name, std::function<Value(Interp&, CallArgs&)> call, int nesting = 0);
  /// Values for objects that have an identity; `same` compares them by address.
  static Value object(std::shared_ptr<const Callable> callable) { return Value(Storage(std::move(callable))); }
  static Value object(std::shared_ptr<Namespace> space) { return Value(Storage(std::move(space))); }
  static Value object(std::shared_ptr<Loop> loop) { return Value(Storage(std::move(loop))); }

  [[nodiscard]] Kind kind() const { return static_cast<Kind>(storage_.index()); }
  [[nodiscard]] bool is(Kind kind) const { return this->kind() == kind; }
  [[nodiscard]] bool is_string() const { return is(Kind::kString); }
  /// True for an int and, as in Python, for a bool.
  [[nodiscard]] bool is_integer() const { return is(Kind::kInt) || is(Kind::kBool); }
  [[nodiscard]] bool is_number() const { return is_integer() || is(Kind::kFloat); }
  /// True if the value is a List of exactly this kind.
  [[nodiscard]] bool is_list(ListKind kind) const { return is(Kind::kList) && list().kind == kind; }

  // Access to the payload. Each function requires the kind that it names.
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

  /// Levels of containers in this value; 0 for scalars and strings.
  [[nodiscard]] int nesting() const;
  /// Python's `is`: the same object. Numbers compare by value.
  [[nodiscard]] bool same(const Value& other) const { return storage_ == other.storage_; }
  /// The name of the Python type: "str", "NoneType", "dict".
  [[nodiscard]] std::string_view type_name() const;

 private:
  using Storage = std::variant<std::monostate, bool, std::int64_t, double, std::shared_ptr<const Undefined>,
                               std::shared_ptr<const String>, std::shared_ptr<const List>, std::shared_ptr<const Dict>,
                               std::shared_ptr<Namespace>, std::shared_ptr<Iterator>, std::shared_ptr<const Callable>,
                               std::shared_ptr<Loop>>;
  explicit Value(Storage storage) : storage_(std::move(storage)) {}
  Storage storage_;
};

/// A Python dict: keeps the order of insertion. Up to 8 entries are searched linearly, larger dicts by a hash index.
class Dict {
 public:
  [[nodiscard]] const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  /// The value of `key`; nullptr if there is none.
  [[nodiscard]] const Value* find(std::string_view key) const;
  /// The same for a key of any type; nullptr also if the key cannot be hashed.
  [[nodiscard]] const Value* find(const Value& key, Budget& budget) const;
  /// Adds or replaces an entry. Only for a dict that is being built.
  void set(std::string key, Value value);
  /// The same. Throws EvalError for a key that cannot be hashed.
  void set(Value key, Value value, Budget& budget);
  [[nodiscard]] int nesting() const { return nesting_; }

 private:
  // Adds an entry whose key is new; `hash` is that of the key.
  void append(Value key, Value value, std::size_t hash);
  std::vector<std::pair<Value, Value>> entries_;
  std::unordered_multimap<std::size_t, std::uint32_t> index_;
  int nesting_ = 1;
};

/// Python's bool(value).
[[nodiscard]] bool truth(const Value& value);
/// Python's ==: 1 == 1.0 == True, lists element by element.
[[nodiscard]] bool equal(const Value& left, const Value& right, Budget& budget);
/// Three-way comparison: negative, zero or positive; empty if a NaN is involved, for which every comparison is false.
/// Throws EvalError for types without an order; `op` is the operator for its message.
[[nodiscard]] std::optional<int> compare(const Value& left, const Value& right, std::string_view op, Budget& budget);
/// Equal values have equal hashes. Empty for types that Python cannot hash.
[[nodiscard]] std::optional<std::size_t> hash(const Value& value, Budget& budget);
/// The elements that iterating over `value` gives; an iterator is exhausted by it. Throws EvalError if `value` cannot
/// be iterated.
[[nodiscard]] std::vector<Value> elements(const Value& value, Budget& budget);
/// Python's len(). Throws EvalError for types without one.
[[nodiscard]] std::int64_t length(const Value& value);
/// Throws EvalError with the value's hint if it is undefined.
inline void require_defined(const Value& value) {
  if (value.is(Kind::kUndefined)) throw EvalError(value.undefined().hint);
}

}  // namespace forge::text::jinja
