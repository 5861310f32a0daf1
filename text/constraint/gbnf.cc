#include "text/constraint/gbnf.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "support/error.h"
#include "support/utf8.h"
#include "text/constraint/code_ranges.h"
#include "text/constraint/grammar_rules.h"
#include "text/tokenizer/unicode.h"

namespace forge::text::constraint {
namespace {

using PartKind = GrammarNode::Kind;

constexpr unsigned kGroupDepthMax = 100;
constexpr std::uint32_t kGbnfCountMax = 1'000'000'000;

class GbnfParser {
 public:
  GbnfParser(RegularPool& pool, std::string_view text) : pool_(pool), text_(text) {}

  std::vector<GrammarRule> rules() {
    for (skip(true); at_ < text_.size(); skip(true)) rule();
    for (const auto& [name, number] : numbers_)
      if (!defined_[number]) fail(fmt::format("the rule {} is not defined", printable(name)));
    return std::move(rules_);
  }
  std::uint32_t root() {
    const auto known = numbers_.find("root");
    if (known == numbers_.end()) fail("there is no rule named root");
    return known->second;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    const auto line = 1 + std::ranges::count(text_.substr(0, std::min(at_, text_.size())), '\n');
    throw Error(ErrorCode::kUsage, fmt::format("grammar, line {}", line), why);
  }
  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(std::string_view text) {
    if (!text_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  void skip(bool lines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  }
  std::string_view name() {
    const auto begin = at_;
    while (is_name(peek())) ++at_;
    if (at_ == begin) fail("the name of a rule is missing");
    return text_.substr(begin, at_ - begin);
  }
  std::uint32_t number_of(std::string_view name) {
    const auto [at, is_new] = numbers_.try_emplace(std::string(name), static_cast<std::uint32_t>(rules_.size()));
    if (is_new) {
      rules_.push_back({.name = std::string(name), .root = {}});
      defined_.push_back(false);
    }
    return at->second;
  }

  void rule() {
    const auto number = number_of(name());
    if (defined_[number]) fail(fmt::format("the rule {} is defined twice", printable(rules_[number].name)));
    skip(false);
    if (!take("::=")) fail("::= is missing after the name of a rule");
    skip(true);
    auto root = alternatives(0);
    rules_[number].root = std::move(root);
    defined_[number] = true;
    if (at_ < text_.size() && !take("\n") && !take("\r")) fail("a rule ends with its line");
  }

  GrammarNode alternatives(unsigned depth) {
    if (depth > kGroupDepthMax) fail(fmt::format("more than {} groups inside groups", kGroupDepthMax));
    GrammarNode any{.kind = PartKind::kOr};
    for (bool more = true; more;) {
      any.parts.push_back(sequence(depth));
      const auto end = at_;
      skip(true);
      more = take("|");
      if (more) {
        skip(true);
      } else {
        at_ = end;
      }
    }
    return any.parts.size() == 1 ? std::move(any.parts[0]) : std::move(any);
  }

  GrammarNode sequence(unsigned depth) {
    GrammarNode all{.kind = PartKind::kConcat};
    for (skip(depth > 0);; skip(depth > 0)) {
      const char c = peek();
      if (c == '"') {
        ++at_;
        all.parts.push_back({.language = literal()});
      } else if (c == '[') {
        ++at_;
        all.parts.push_back({.language = char_class()});
      } else if (c == '.') {
        ++at_;
        all.parts.push_back({.language = any_character(pool_)});
      } else if (c == '(') {
        ++at_;
        skip(true);
        all.parts.push_back(alternatives(depth + 1));
        skip(true);
        if (!take(")")) fail("a group ( is not closed");
      } else if (is_name(c)) {
        all.parts.push_back({.kind = PartKind::kRule, .rule = number_of(name())});
      } else if (c == '<' || c == '!') {
        fail("tokens by name are not supported");
      } else if (c == '*' || c == '+' || c == '?' || c == '{') {
        fail("nothing to repeat");
      } else {
        break;
      }
      skip(depth > 0);
      for (unsigned repeats = 0; quantifier(all.parts.back()); skip(depth > 0))
        if (++repeats > kGroupDepthMax) fail("too many quantifiers behind each other");
    }
    return all;
  }

  std::uint32_t count() {
    std::uint64_t value = 0;
    const auto begin = at_;
    while (peek() >= '0' && peek() <= '9' && value <= kGbnfCountMax)
      value = value * 10 + static_cast<unsigned>(text_[at_++] - '0');
    if (at_ == begin) fail("a quantifier { needs a number");
    if (value > kGbnfCountMax) fail("the count of a quantifier is too large");
    return static_cast<std::uint32_t>(value);
  }

  bool quantifier(GrammarNode& node) {
    std::uint32_t min = 0, max = kUnbounded;
    if (take("*")) {
    } else if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (take("{")) {
      skip(false);
      if (peek() != ',') min = max = count();
      skip(false);
      if (take(",")) {
        skip(false);
        max = peek() == '}' ? kUnbounded : count();
        skip(false);
      }
      if (!take("}")) fail("a quantifier { is not closed");
      if (max < min) fail("the counts of a quantifier are out of order");
    } else {
      return false;
    }
    GrammarNode repeat{.kind = PartKind::kRepeat, .min = min, .max = max};
    repeat.parts.push_back(std::move(node));
    node = std::move(repeat);
    return true;
  }

  std::uint32_t character() {
    if (take("\\")) return escape();
    if (at_ >= text_.size()) fail("a literal or class is not closed");
    if (utf8_length(text_.substr(at_)) == 0) fail("not valid UTF-8");
    const auto one = decode(text_, at_);
    at_ += one.bytes;
    return one.code;
  }

  std::uint32_t escape() {
    const char c = peek();
    ++at_;
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return hex(2);
      case 'u':
        return hex(4);
      case 'U':
        return hex(8);
      case '"':
      case '\\':
      case '[':
      case ']':
      case '-':
      case '^':
      case '/':
        return static_cast<unsigned char>(c);
      default:
        fail("an unknown escape");
    }
  }

  std::uint32_t hex(unsigned digits) {
    std::uint32_t value = 0;
    for (unsigned i = 0; i < digits; ++i, ++at_) {
      const int digit = hex_value(peek());
      if (digit < 0) fail(fmt::format("{} hexadecimal digits are missing", digits));
      value = value << 4 | static_cast<unsigned>(digit);
    }
    if (value > kCodeMax || (value >= 0xD800 && value <= 0xDFFF)) fail("an escape that is no character");
    return value;
  }

  Expr literal() {
    std::vector<std::uint32_t> codes;
    while (!take("\"")) codes.push_back(character());
    Expr expr = RegularPool::kEpsilon;
    for (auto code = codes.rbegin(); code != codes.rend(); ++code)
      expr = pool_.concat(utf8_of(pool_, {{*code, *code}}), expr);
    return expr;
  }

  Expr char_class() {
    const bool negated = take("^");
    CodeRanges ranges;
    while (!take("]")) {
      const auto first = character();
      auto last = first;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        last = character();
      }
      if (last < first) fail("a range of characters is out of order");
      ranges.push_back({first, last});
    }
    return utf8_of(pool_, negated ? complement(ranges) : ranges);
  }

  RegularPool& pool_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<GrammarRule> rules_;
  std::vector<bool> defined_;
  std::map<std::string, std::uint32_t, std::less<>> numbers_;
};

}  // namespace

Language parse_gbnf(RegularPool& pool, std::string_view grammar) {
  if (grammar.size() > kGrammarBytesMax)
    throw Error(ErrorCode::kUsage, fmt::format("the grammar has {} bytes", grammar.size()),
                fmt::format("the limit is {}", kGrammarBytesMax));
  GbnfParser parser(pool, grammar);
  const auto rules = parser.rules();
  return {.start = language_of(pool, rules, parser.root()), .owner = nullptr};
}

}  // namespace forge::text::constraint
