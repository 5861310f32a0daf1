#include "text/constraint/schema/schema_numbers.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "text/constraint/regex_syntax.h"

namespace forge::text::constraint {
namespace {

constexpr int kDigitsMax = 400;

/// Numbers without a sign, compared digit by digit. A fraction never ends with 0.
class Magnitudes {
 public:
  Magnitudes(JsonLanguage& json, const Decimal& bound, bool strict, bool whole)
      : pool_(json.pool()), bound_(bound), strict_(strict), whole_(whole) {
    any_digits_ = parse_regex(pool_, "[0-9]*");
    more_ = parse_regex(pool_, "([0-9]*[1-9])?");
    fraction_ = whole ? RegularPool::kEpsilon : parse_regex(pool_, "(\\.[0-9]*[1-9])?");
  }

  Expr from() {
    const auto n = size();
    const auto longer = pool_.concat(digits('1', '9'), pool_.repeat(digits('0', '9'), n, kUnbounded));
    return pool_.or_({pool_.concat(longer, fraction_), from_whole(0)});
  }
  Expr to() {
    const auto n = size();
    Expr shorter = RegularPool::kEmpty;
    if (n > 1) {
      const auto number = pool_.concat(digits('1', '9'), pool_.repeat(digits('0', '9'), 0, n - 2));
      shorter = pool_.concat(pool_.or_({pool_.literal("0"), number}), fraction_);
    }
    return pool_.or_({shorter, to_whole(0)});
  }

 private:
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(bound_.whole.size()); }
  Expr digits(char first, char last) {
    if (first > last) return RegularPool::kEmpty;
    ByteSet set;
    set.add(static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last));
    return pool_.bytes(set);
  }
  Expr rest(std::uint32_t passed) {
    return pool_.concat(pool_.repeat(digits('0', '9'), size() - passed, size() - passed), fraction_);
  }

  Expr from_whole(std::uint32_t i) {
    if (i == size()) return from_fraction();
    const char digit = bound_.whole[i];
    return pool_.or_({pool_.concat(digits(static_cast<char>(digit + 1), '9'), rest(i + 1)),
                      pool_.concat(digits(digit, digit), from_whole(i + 1))});
  }
  Expr from_fraction() {
    if (whole_) return strict_ || !bound_.fraction.empty() ? RegularPool::kEmpty : RegularPool::kEpsilon;
    if (bound_.fraction.empty()) return strict_ ? pool_.without_epsilon(fraction_) : fraction_;
    Expr expr = strict_ ? pool_.without_epsilon(more_) : more_;
    for (auto at = bound_.fraction.rbegin(); at != bound_.fraction.rend(); ++at)
      expr = pool_.or_(
          {pool_.concat(digits(static_cast<char>(*at + 1), '9'), more_), pool_.concat(digits(*at, *at), expr)});
    return pool_.concat(pool_.literal("."), expr);
  }

  Expr to_whole(std::uint32_t i) {
    if (i == size()) return to_fraction();
    const char digit = bound_.whole[i], low = i == 0 && size() > 1 ? '1' : '0';
    return pool_.or_({pool_.concat(digits(low, static_cast<char>(digit - 1)), rest(i + 1)),
                      pool_.concat(digits(digit, digit), to_whole(i + 1))});
  }
  Expr to_fraction() {
    const bool reached = bound_.fraction.empty();
    if (reached) return strict_ ? RegularPool::kEmpty : RegularPool::kEpsilon;
    if (whole_) return RegularPool::kEpsilon;
    // From the last digit back: the fractions that begin where `expr` stands and are below the bound's.
    Expr expr = RegularPool::kEmpty;
    for (auto at = bound_.fraction.rbegin(); at != bound_.fraction.rend(); ++at) {
      const bool is_last = at == bound_.fraction.rbegin();
      const bool may_end = is_last ? !strict_ : *at != '0';
      const auto same = pool_.concat(digits(*at, *at), may_end ? pool_.or_({RegularPool::kEpsilon, expr}) : expr);
      const auto zero = *at > '0' ? pool_.concat(digits('0', '0'), pool_.without_epsilon(more_)) : RegularPool::kEmpty;
      expr = pool_.or_({same, zero, pool_.concat(digits('1', static_cast<char>(*at - 1)), more_)});
    }
    return pool_.or_({RegularPool::kEpsilon, pool_.concat(pool_.literal("."), expr)});
  }

  RegularPool& pool_;
  const Decimal& bound_;
  bool strict_, whole_;
  Expr any_digits_ = 0, more_ = 0, fraction_ = 0;
};

Expr negative(RegularPool& pool, Expr magnitudes) {
  const auto nonzero = parse_regex(pool, "0\\.[0-9]*[1-9]|[1-9][0-9]*(\\.[0-9]*[1-9])?");
  return pool.concat(pool.literal("-"), pool.flattened(pool.and_({magnitudes, nonzero}), 4000));
}
Expr all_magnitudes(RegularPool& pool, bool whole) {
  return parse_regex(pool, whole ? "0|[1-9][0-9]*" : "(0|[1-9][0-9]*)(\\.[0-9]*[1-9])?");
}

/// Multiples of p / 10^k as an automaton: the remainder of what was read, and how many digits of a fraction were read.
class Multiples {
 public:
  Multiples(RegularPool& pool, std::uint64_t p, unsigned k) : pool_(pool), p_(p), k_(k) {}

  Expr all() {
    std::vector<Expr> parts;
    for (char digit = '1'; digit <= '9'; ++digit)
      parts.push_back(pool_.concat(byte(digit), whole(static_cast<std::uint64_t>(digit - '0') % p_)));
    const auto nonzero = pool_.or_(parts);
    const auto broken = pool_.concat(byte('0'), point(0));
    return pool_.or_({byte('0'), broken, nonzero, pool_.concat(byte('-'), pool_.or_({broken, nonzero}))});
  }

 private:
  Expr byte(char c) { return pool_.literal(std::string_view(&c, 1)); }
  std::uint64_t scaled(std::uint64_t r, unsigned read) const {
    for (; read < k_; ++read) r = r * 10 % p_;
    return r;
  }
  /// Whether `read` digits of a fraction with this remainder can be followed by some that end with another than 0.
  bool goes_on(std::uint64_t r, unsigned read) const {
    std::uint64_t room = 1;
    for (auto i = read; i < k_ && room <= p_; ++i) room *= 10;
    const auto needed = (p_ - scaled(r, read)) % p_;
    return needed == 0 ? p_ < room : needed < room;
  }
  Expr point(std::uint64_t r) { return goes_on(r, 0) ? pool_.concat(byte('.'), fraction(r, 0)) : RegularPool::kEmpty; }
  Expr whole(std::uint64_t r) {
    const auto known = whole_.find(r);
    if (known != whole_.end()) return known->second;
    RegularPool::CallFacts facts{.first = {}, .min = scaled(r, 0) == 0 ? 0U : 1U};
    facts.first.add('0', '9');
    facts.first.add('.');
    const auto call = whole_[r] = pool_.call(facts);
    std::vector<Expr> parts{point(r)};
    if (facts.min == 0) parts.push_back(RegularPool::kEpsilon);
    for (char digit = '0'; digit <= '9'; ++digit)
      parts.push_back(pool_.concat(byte(digit), whole((r * 10 + static_cast<std::uint64_t>(digit - '0')) % p_)));
    pool_.define(call, pool_.or_(parts));
    return call;
  }
  Expr fraction(std::uint64_t r, unsigned read) {
    const auto [known, is_new] = fractions_.try_emplace({r, read}, RegularPool::kEmpty);
    if (!is_new) return known->second;
    std::vector<Expr> parts;
    for (char digit = '0'; digit <= '9' && read < k_; ++digit) {
      const auto next = (r * 10 + static_cast<std::uint64_t>(digit - '0')) % p_;
      Expr rest = goes_on(next, read + 1) ? fraction(next, read + 1) : RegularPool::kEmpty;
      if (digit != '0' && scaled(next, read + 1) == 0) rest = pool_.or_({RegularPool::kEpsilon, rest});
      parts.push_back(pool_.concat(byte(digit), rest));
    }
    return fractions_[{r, read}] = pool_.or_(parts);
  }

  RegularPool& pool_;
  std::uint64_t p_;
  unsigned k_;
  std::map<std::uint64_t, Expr> whole_;
  std::map<std::pair<std::uint64_t, unsigned>, Expr> fractions_;
};

}  // namespace

std::string Decimal::text() const {
  return fmt::format("{}{}{}{}", negative ? "-" : "", whole, fraction.empty() ? "" : ".", fraction);
}

std::optional<Decimal> decimal_of(const nlohmann::ordered_json& number) {
  std::string text = number.is_number_float() ? fmt::format("{}", number.get<double>()) : number.dump();
  Decimal result;
  result.negative = text.starts_with('-');
  if (result.negative) text.erase(0, 1);
  int exponent = 0;
  if (const auto e = text.find('e'); e != std::string::npos) {
    const auto digits = text.substr(e + (text[e + 1] == '+' ? 2 : 1));
    if (std::from_chars(digits.data(), digits.data() + digits.size(), exponent).ec != std::errc()) return std::nullopt;
    text.resize(e);
  }
  if (text.find_first_not_of("0123456789.") != std::string::npos || std::abs(exponent) > kDigitsMax)
    return std::nullopt;
  const auto dot = std::min(text.find('.'), text.size());
  auto whole = text.substr(0, dot), fraction = dot < text.size() ? text.substr(dot + 1) : std::string();
  for (; exponent > 0; --exponent) {
    whole += fraction.empty() ? '0' : fraction[0];
    if (!fraction.empty()) fraction.erase(0, 1);
  }
  for (; exponent < 0; ++exponent) {
    fraction.insert(0, 1, whole.empty() ? '0' : whole.back());
    if (!whole.empty()) whole.pop_back();
  }
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  while (fraction.ends_with('0')) fraction.pop_back();
  result.whole = whole.empty() ? "0" : whole;
  result.fraction = fraction;
  if (result.is_zero()) result.negative = false;
  return result;
}

Expr numbers_from(JsonLanguage& json, const Decimal& bound, bool strict, bool whole) {
  auto& pool = json.pool();
  if (!bound.negative) return Magnitudes(json, bound, strict, whole).from();
  return pool.or_({all_magnitudes(pool, whole), negative(pool, Magnitudes(json, bound, strict, whole).to())});
}

Expr numbers_to(JsonLanguage& json, const Decimal& bound, bool strict, bool whole) {
  auto& pool = json.pool();
  if (bound.negative) return negative(pool, Magnitudes(json, bound, strict, whole).from());
  return pool.or_({negative(pool, all_magnitudes(pool, whole)), Magnitudes(json, bound, strict, whole).to()});
}

std::optional<Expr> multiples_of(JsonLanguage& json, const Decimal& step) {
  const auto digits = step.whole + step.fraction;
  std::uint64_t p = 0;
  if (digits.size() > 9 || step.fraction.size() > 8) return std::nullopt;
  std::from_chars(digits.data(), digits.data() + digits.size(), p);
  const auto k = static_cast<unsigned>(step.fraction.size());
  if (p > 2000 || (k > 4 && p > 1)) return std::nullopt;
  return Multiples(json.pool(), p, k).all();
}

}  // namespace forge::text::constraint
