// The parser of the text form. Grammar, with one node or output a line and comments from // to the end of the line:
//   graph   = { node | output }
//   node    = value { "," value } "=" op "(" [ value { "," value } ] ")" [ "{" field { ";" field } "}" ]
//             ":" type { "," type } [ "@layer" int ] [ "#group" int ]
//   output  = "output" string "=" value
//   value   = "%" int
//   type    = name "[" [ dim { "," dim } ] "]" | "state"
//   dim     = int | "T" | "R" | "B" | "P"
//   field   = name "=" ( number | string | name | "[" [ number { "," number } ] "]" )
// Nothing nests, so nothing recurses, and memory is proportional to the text. Attributes that are left out keep their
// defaults.

#include <fmt/format.h>

#include <charconv>
#include <map>

#include "ir/text/attrs_io.h"
#include "ir/text/text.h"
#include "support/error.h"

namespace forge::ir {
namespace {

// Limits for hostile text.
constexpr std::size_t kTextBytesMax = std::size_t{16} << 20;
constexpr std::size_t kNodesMax = std::size_t{1} << 18;

/// The message of an error of the shape rules or the verifier, without the prefix "error[internal]: ".
std::string reason(const Error& error) {
  const auto& line = error.line();
  const auto start = line.find("]: ");
  return start == std::string::npos ? line : line.substr(start + 3);
}

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Reads tokens and reports errors with line and column.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  /// Throws Error(kPlan). Line and column are counted only here, so that they cost nothing otherwise.
  [[noreturn]] void fail(std::size_t at, const std::string& why) const {
    std::size_t line = 1;
    std::size_t start = 0;
    for (std::size_t i = 0; i < at; ++i)
      if (text_[i] == '\n') {
        ++line;
        start = i + 1;
      }
    throw Error(ErrorCode::kPlan, fmt::format("graph text {}:{}", line, at - start + 1), why,
                "compile the model again if this text comes from a plan");
  }
  [[noreturn]] void fail(const std::string& why) const { fail(at_, why); }

  [[nodiscard]] std::size_t at() const { return at_; }
  /// Skips spaces and comments, but no line break.
  void space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
    if (text_.substr(at_, 2) == "//")
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  }
  [[nodiscard]] bool done() const { return at_ == text_.size(); }
  /// Skips spaces; if `c` is next, consumes it and returns true.
  bool accept(char c) {
    space();
    if (done() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  /// Consumes `c` or fails.
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("'{}' is missing", c));
  }
  void end_of_line() {
    space();
    if (!done() && text_[at_] != '\n') fail("unexpected text at the end of the line");
    if (!done()) ++at_;
  }
  /// A non-empty run of letters, digits and underscores.
  std::string_view name() {
    space();
    const std::size_t start = at_;
    while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
    if (at_ == start) fail("a name is missing");
    return text_.substr(start, at_ - start);
  }
  /// A number in the syntax of std::from_chars; floats may be inf or nan.
  template <class T>
  T number() {
    space();
    T value{};
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range) fail("a number is out of range");
    if (error != std::errc{}) fail("a number is missing");
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }
  /// A string in double quotes, on one line, with the escapes of quoted().
  std::string string() {
    expect('"');
    std::string out;
    for (;; ++at_) {
      if (done() || text_[at_] == '\n') fail("a string does not end");
      const char c = text_[at_];
      if (c == '"') break;
      out += c == '\\' ? escape() : c;
    }
    ++at_;
    return out;
  }

 private:
  /// Decodes an escape. The cursor is at the backslash before and at the escape's last character after.
  char escape() {
    const auto rest = text_.substr(at_ + 1);
    if (!rest.empty() && (rest[0] == '"' || rest[0] == '\\')) return text_[++at_];
    unsigned byte = 0;
    if (rest.size() < 3 || rest[0] != 'x' ||
        std::from_chars(rest.data() + 1, rest.data() + 3, byte, 16).ptr != rest.data() + 3)
      fail("an escape is \\\", \\\\ or \\xHH");
    at_ += 3;
    return static_cast<char>(byte);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

/// Visitor that parses a value into the member called `wanted`. `seen` has one bit for each member, in fields() order,
/// so that a duplicate is an error.
class FieldReader {
 public:
  FieldReader(Scanner& in, std::string_view wanted, std::uint64_t& seen) : in_(in), wanted_(wanted), seen_(seen) {}
  template <class T>
  void operator()(std::string_view name, T& value) {
    const std::uint64_t bit = std::uint64_t{1} << index_++;
    if constexpr (!kIsResultType<T>) {
      if (name != wanted_) return;
      if ((seen_ & bit) != 0) in_.fail(fmt::format("'{}' is given twice", name));
      seen_ |= bit;
      found = true;
      read(value);
    }
  }
  bool found = false;

 private:
  void read(std::string& value) { value = in_.string(); }
  void read(std::int64_t& value) { value = in_.number<std::int64_t>(); }
  void read(float& value) { value = in_.number<float>(); }
  template <class E>
    requires std::is_enum_v<E>
  void read(E& value) {
    const auto text = in_.name();
    for (std::size_t i = 0; i < kEnumNames<E>.size(); ++i)
      if (kEnumNames<E>[i] == text) {
        value = static_cast<E>(i);
        return;
      }
    in_.fail(fmt::format("'{}' is no value of '{}'", text, wanted_));
  }
  template <class T>
  void read(std::vector<T>& values) {
    values.clear();
    in_.expect('[');
    if (in_.accept(']')) return;
    do values.push_back(in_.number<T>());
    while (in_.accept(','));
    in_.expect(']');
  }
  Scanner& in_;
  std::string_view wanted_;
  std::uint64_t& seen_;
  unsigned index_ = 0;
};

/// Visitor that sets members with kIsResultType from the first result type, which the text has after the colon.
struct ResultTypeSetter {
  const TensorType& type;
  template <class T>
  void operator()(std::string_view, T& value) const {
    if constexpr (std::is_same_v<T, TensorType>) value = type;
    if constexpr (std::is_same_v<T, DType>) value = type.dtype;
  }
};

class Parser {
 public:
  explicit Parser(std::string_view text) : in_(text) {}

  Graph run() {
    while (true) {
      in_.space();
      if (in_.done()) break;
      if (const auto start = in_.at(); in_.accept('%'))
        node(start);
      else if (!in_.accept('\n'))
        output(start);
    }
    try {
      verify(graph_);
    } catch (const Error& error) {
      throw Error(ErrorCode::kPlan, "graph text", reason(error),
                  "compile the model again if this text comes from a plan");
    }
    return std::move(graph_);
  }

 private:
  /// output "name" = %12
  void output(std::size_t start) {
    if (in_.name() != "output") in_.fail(start, "neither a node nor an output");
    std::string name = in_.string();
    in_.expect('=');
    graph_.add_output(std::move(name), used_value());
    in_.end_of_line();
  }

  /// Parses one node; the first '%' has been read. Graph::add runs the shape rule, whose errors get the position of the
  /// op name.
  void node(std::size_t start) {
    if (graph_.size() >= kNodesMax) in_.fail(start, fmt::format("more than {} nodes", kNodesMax));
    std::vector<std::uint64_t> names{in_.number<std::uint64_t>()};
    while (in_.accept(',')) {
      in_.expect('%');
      names.push_back(in_.number<std::uint64_t>());
    }
    in_.expect('=');
    in_.space();
    const std::size_t op_at = in_.at();
    const auto op_name = in_.name();
    const OpDef* def = find_op(op_name);
    if (def == nullptr) in_.fail(op_at, fmt::format("there is no op '{}'", op_name));
    auto operands = operand_list();
    Attrs attrs = default_attrs(def->attrs_index);
    if (in_.accept('{')) fields(attrs);
    const auto types = type_list();
    std::visit(
        [&](auto& a) {
          ResultTypeSetter setter{types[0]};
          a.fields(setter);
        },
        attrs);
    std::int64_t layer = kNoLayer;
    std::int64_t group = kNoGroup;
    if (in_.accept('@')) layer = suffix_number("layer", 0, INT32_MAX);
    if (in_.accept('#')) group = suffix_number("group", 1, UINT32_MAX - 1);
    in_.end_of_line();
    try {
      const NodeId id = graph_.add(def->op, std::move(operands), std::move(attrs), static_cast<std::int32_t>(layer));
      if (group != kNoGroup) graph_.set_group(id, static_cast<std::uint32_t>(group));
      define(op_at, id, names, types);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kPlan) throw;
      in_.fail(op_at, reason(error));
    }
  }

  /// Compares the stated types with those of the shape rule and binds the names to the results.
  void define(std::size_t op_at, NodeId id, const std::vector<std::uint64_t>& names,
              const std::vector<TensorType>& types) {
    const auto results = graph_.results(id);
    if (names.size() != results.size() || types.size() != results.size())
      in_.fail(op_at, fmt::format("{} names and {} types for {} results", names.size(), types.size(), results.size()));
    for (std::uint32_t i = 0; i < results.size(); ++i) {
      if (types[i] != results[i])
        in_.fail(op_at, fmt::format("result {} is {}, not {}", i, results[i].text(), types[i].text()));
      if (!values_.emplace(names[i], Value{id, i}).second)
        in_.fail(op_at, fmt::format("%{} is defined twice", names[i]));
    }
  }

  /// A value that was defined on an earlier line: this makes cycles impossible.
  Value used_value() {
    in_.expect('%');
    const std::size_t at = in_.at();
    const auto name = in_.number<std::uint64_t>();
    const auto found = values_.find(name);
    if (found == values_.end()) in_.fail(at, fmt::format("%{} is not defined above", name));
    return found->second;
  }

  std::vector<Value> operand_list() {
    std::vector<Value> operands;
    in_.expect('(');
    if (in_.accept(')')) return operands;
    do operands.push_back(used_value());
    while (in_.accept(','));
    in_.expect(')');
    return operands;
  }

  /// Parses attributes; the '{' has been read.
  void fields(Attrs& attrs) {
    std::uint64_t seen = 0;
    do {
      const auto name = in_.name();
      in_.expect('=');
      FieldReader reader(in_, name, seen);
      std::visit([&](auto& a) { a.fields(reader); }, attrs);
      if (!reader.found) in_.fail(fmt::format("there is no attribute '{}'", name));
    } while (in_.accept(';'));
    in_.expect('}');
  }

  std::vector<TensorType> type_list() {
    std::vector<TensorType> types;
    in_.expect(':');
    do types.push_back(type());
    while (in_.accept(','));
    return types;
  }

  TensorType type() {
    const auto name = in_.name();
    const auto dtype = dtype_of_name(name);
    if (!dtype) in_.fail(fmt::format("there is no element type '{}'", name));
    TensorType type{*dtype, {}};
    if (type.is_state()) return type;
    in_.expect('[');
    if (in_.accept(']')) return type;
    do type.shape.push_back(dim());
    while (in_.accept(','));
    in_.expect(']');
    return type;
  }

  Dim dim() {
    for (const Symbol symbol : kSymbols)
      if (in_.accept(symbol_name(symbol)[0])) return symbol;
    return in_.number<std::int64_t>();
  }

  /// The number after "layer" or "group".
  std::int64_t suffix_number(std::string_view tag, std::int64_t low, std::int64_t high) {
    if (in_.name() != tag) in_.fail(fmt::format("'{}' is missing", tag));
    const auto value = in_.number<std::int64_t>();
    if (value < low || value > high) in_.fail(fmt::format("{} is out of range", tag));
    return value;
  }

  Scanner in_;
  Graph graph_;
  std::map<std::uint64_t, Value> values_;  // by name; a tree, because hostile names could make a hash table slow
};

}  // namespace

Graph parse(std::string_view text) {
  if (text.size() > kTextBytesMax)
    throw Error(ErrorCode::kPlan, "graph text",
                fmt::format("{} bytes, at most {} are read", text.size(), kTextBytesMax));
  return Parser(text).run();
}

}  // namespace forge::ir
