// Regular expressions against a matcher that knows no derivatives: languages as sets of all their short words.

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/support/error_of.h"
#include "tests/text/splitmix.h"
#include "text/constraint/code_ranges.h"
#include "text/constraint/regular_dfa.h"
#include "text/tokenizer/unicode.h"

using namespace forge;
using namespace forge::tests;
using namespace forge::text::constraint;
using Words = std::set<std::string>;

namespace {

constexpr std::size_t kLength = 4;  // of the words compared

const Words& universe() {
  static const Words all = [] {
    Words words{""};
    for (std::size_t length = 0; length < kLength; ++length) {
      const auto before = words;
      for (const auto& word : before)
        for (const char c : {'a', 'b', 'c'}) words.insert(word + c);
    }
    return words;
  }();
  return all;
}

Words concatenated(const Words& left, const Words& right) {
  Words words;
  for (const auto& l : left)
    for (const auto& r : right)
      if (l.size() + r.size() <= kLength) words.insert(l + r);
  return words;
}

Words repeated(const Words& one, std::uint32_t min, std::uint32_t max) {
  Words words, power{""};
  // Beyond min + kLength further copies add no short words.
  for (std::uint32_t n = 0; n <= std::min<std::uint64_t>(max, min + kLength); ++n) {
    if (n >= min) words.insert(power.begin(), power.end());
    power = concatenated(power, one);
  }
  return words;
}

bool matches(RegularPool& pool, Expr expr, const std::string& word) {
  for (const char c : word) expr = pool.derivative(expr, static_cast<std::uint8_t>(c));
  return pool.nullable(expr);
}

Words words_of(RegularPool& pool, Expr expr) {
  Words words;
  for (const auto& word : universe())
    if (matches(pool, expr, word)) words.insert(word);
  return words;
}

/// An expression and, made beside it by the definitions, its short words.
struct Both {
  Expr expr;
  Words words;
};

class Maker {
 public:
  Maker(RegularPool& pool, std::uint64_t seed, bool plain) : pool_(pool), random_{seed}, plain_(plain) {}

  Both make(unsigned depth) {
    const auto pick = below(depth == 0 ? 3 : plain_ ? 8 : 11);
    if (pick < 3) return leaf();
    if (pick < 5) {
      const auto l = make(depth - 1), r = make(depth - 1);
      return {pool_.concat(l.expr, r.expr), concatenated(l.words, r.words)};
    }
    if (pick < 7) {
      auto l = make(depth - 1);
      const auto r = make(depth - 1), s = make(depth - 1);
      l.words.insert(r.words.begin(), r.words.end());
      l.words.insert(s.words.begin(), s.words.end());
      return {pool_.or_({l.expr, r.expr, s.expr}), l.words};
    }
    if (pick == 7) {
      const auto one = make(depth - 1);
      const auto min = static_cast<std::uint32_t>(below(4));
      const auto max = below(3) == 0 ? kUnbounded : min + static_cast<std::uint32_t>(below(4));
      return {pool_.repeat(one.expr, min, max), repeated(one.words, min, max)};
    }
    const auto l = make(depth - 1);
    Words words;
    if (pick == 8) {
      for (const auto& word : universe())
        if (!l.words.contains(word)) words.insert(word);
      return {pool_.not_(l.expr), words};
    }
    const auto r = make(depth - 1);
    for (const auto& word : l.words)
      if (r.words.contains(word)) words.insert(word);
    return {pool_.and_({l.expr, r.expr}), words};
  }

 private:
  Both leaf() {
    const auto bits = below(9);
    if (bits == 8) return {RegularPool::kEpsilon, {""}};
    ByteSet set;
    Words words;
    for (unsigned i = 0; i < 3; ++i) {
      if ((bits >> i & 1) == 0) continue;
      set.add(static_cast<std::uint8_t>('a' + i));
      words.insert(std::string(1, static_cast<char>('a' + i)));
    }
    return {pool_.bytes(set), words};
  }
  std::uint64_t below(std::uint64_t n) { return random_.below(n); }

  RegularPool& pool_;
  SplitMix random_;
  bool plain_;
};

}  // namespace

TEST_CASE("random expressions have the words that their definitions give", "[regular]") {
  std::size_t wrong = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    RegularPool pool;
    const auto [expr, words] = Maker(pool, seed, seed % 2 == 0).make(3);
    if (words_of(pool, expr) != words) {
      ++wrong;
      CHECK(seed == ~0ULL);
    }
    // A word at least is there, or none is found.
    if (!words.empty() && pool.is_empty(expr)) ++wrong;
    if (pool.is_plain(expr) && pool.is_empty(expr) != (expr == RegularPool::kEmpty)) ++wrong;
    auto others = words;
    others.erase("");
    if (words_of(pool, pool.without_epsilon(expr)) != others) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("emptiness and inclusion agree with the words", "[regular]") {
  std::size_t wrong = 0, included = 0, empty = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    RegularPool pool;
    Maker maker(pool, seed + 77777, false);
    const auto l = maker.make(2), r = maker.make(2);
    const bool is_included = pool.includes(l.expr, r.expr);
    included += is_included;
    empty += pool.is_empty(l.expr);
    bool words_included = true;
    for (const auto& word : r.words) words_included &= l.words.contains(word);
    if (is_included && !words_included) ++wrong;
    if (pool.is_empty(l.expr) && !l.words.empty()) ++wrong;
    // De Morgan, distribution and double complement, decided by the automaton itself.
    const auto both = pool.and_({l.expr, r.expr});
    const auto again = pool.not_(pool.or_({pool.not_(l.expr), pool.not_(r.expr)}));
    if (!pool.includes(both, again) || !pool.includes(again, both)) ++wrong;
    if (!pool.includes(l.expr, both) || !pool.includes(pool.or_({l.expr, r.expr}), r.expr)) ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(included > 20);
  CHECK(empty > 20);
}

TEST_CASE("a horizon keeps every short beginning", "[regular]") {
  std::size_t wrong = 0, changed = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    RegularPool pool;
    const auto [expr, words] = Maker(pool, seed + 5555, true).make(3);
    for (const std::uint32_t bytes : {1U, 2U, 3U}) {
      const auto near = pool.within_horizon(expr, bytes);
      changed += near != expr;
      for (const auto& word : universe()) {
        if (word.size() > bytes) continue;
        auto x = expr, y = near;
        for (const char c : word) {
          x = pool.derivative(x, static_cast<std::uint8_t>(c));
          y = pool.derivative(y, static_cast<std::uint8_t>(c));
        }
        wrong += pool.is_empty(x) != pool.is_empty(y);
      }
    }
  }
  CHECK(wrong == 0);
  CHECK(changed > 100);
}

TEST_CASE("normal forms join what is equal", "[regular]") {
  RegularPool pool;
  const auto a = pool.literal("a"), b = pool.literal("b"), ab = pool.literal("ab");
  CHECK(pool.or_({a, b}) == pool.or_({b, a, b}));
  CHECK(pool.star(pool.star(a)) == pool.star(a));
  CHECK(pool.repeat(pool.repeat(a, 1, 100), 1, 100) == pool.repeat(a, 1, 10000));
  CHECK(pool.repeat(pool.repeat(a, 2, 2), 0, 3) != pool.repeat(a, 0, 6));
  CHECK(pool.concat(pool.repeat(ab, 1, 2), pool.repeat(ab, 3, 4)) == pool.repeat(ab, 4, 6));
  CHECK(pool.or_({pool.repeat(ab, 1, 3), pool.repeat(ab, 4, 9)}) == pool.repeat(ab, 1, 9));
  CHECK(pool.or_({pool.literal("abx"), pool.literal("aby")}) ==
        pool.concat(ab, pool.or_({pool.literal("x"), pool.literal("y")})));
  CHECK(pool.not_(pool.not_(ab)) == ab);
  CHECK(pool.and_({ab, pool.not_(ab)}) == RegularPool::kEmpty);
  CHECK(pool.or_({ab, pool.not_(ab)}) == RegularPool::kAll);
  CHECK(pool.or_({ab, pool.and_({ab, pool.star(a)})}) == ab);
}

TEST_CASE("a dead state is known as dead", "[regular]") {
  RegularPool pool;
  const auto a = pool.literal("a");
  ByteSet set;
  set.add('a', 'b');
  // Even and odd numbers of letters: nothing is both, which only exploring shows.
  const auto even = pool.star(pool.repeat(pool.bytes(set), 2, 2));
  const auto odd = pool.concat(a, even);
  const auto both = pool.concat(pool.literal("x"), pool.and_({even, odd}));
  CHECK(pool.is_empty(pool.and_({even, odd})));
  RegularDfa dfa(pool);
  CHECK(dfa.step(both, 'x') == RegularPool::kEmpty);
  CHECK(dfa.step(odd, 'a') == even);
}

TEST_CASE("large counts and ambiguous expressions stay small, or are refused", "[regular]") {
  RegularPool pool;
  const auto a = pool.literal("a");
  auto many = pool.repeat(a, 1, 20000);
  for (int i = 0; i < 20000; ++i) many = pool.derivative(many, 'a');
  CHECK(many == RegularPool::kEpsilon);
  CHECK(pool.size() < 30000);
  const auto long_ = pool.within_horizon(pool.repeat(a, 1, 20000), 100);
  CHECK(pool.derivative(long_, 'a') == pool.star(a));

  // (a|b)*a(a|b){20} has two million states; a word of 300 letters meets at most 300.
  ByteSet set;
  set.add('a', 'b');
  auto wide = pool.concat(pool.star(pool.bytes(set)), pool.concat(a, pool.repeat(pool.bytes(set), 20, 20)));
  SplitMix random{1};
  for (int i = 0; i < 300; ++i) wide = pool.derivative(wide, random.below(2) == 0 ? 'a' : 'b');
  CHECK(pool.memory_bytes() < (8U << 20));

  RegularPool small(std::size_t{1} << 20);
  const auto text = error_of(
      [&] {
        auto expr = small.concat(small.star(small.bytes(set)),
                                 small.concat(small.literal("a"), small.repeat(small.bytes(set), 30, 30)));
        CHECK(small.is_empty(small.and_({expr, small.not_(expr), small.star(small.bytes(set))})));
        for (int i = 0; i < 100000; ++i) expr = small.derivative(expr, random.below(2) == 0 ? 'a' : 'b');
      },
      ErrorCode::kMemory);
  CHECK(text.find("the constraint needs more than 1024 KiB") != std::string::npos);
}

TEST_CASE("ranges of characters are their UTF-8 sequences", "[regular]") {
  RegularPool pool;
  const auto length = [&](Expr expr, std::string_view text) {
    for (const char c : text) expr = pool.derivative(expr, static_cast<std::uint8_t>(c));
    return pool.nullable(expr);
  };
  const CodeRanges greek{{0x3B1, 0x3C9}, {0x391, 0x3A9}};
  const auto one = utf8_of(pool, greek), other = utf8_of(pool, complement(greek)), any = any_character(pool);
  std::size_t wrong = 0;
  for (std::uint32_t code = 0; code <= kCodeMax; code += code < 0x1000 ? 1 : 97) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string text;
    text::append_utf8(text, code);
    const bool in = (code >= 0x3B1 && code <= 0x3C9) || (code >= 0x391 && code <= 0x3A9);
    wrong += length(one, text) != in || length(other, text) == in || !length(any, text);
  }
  CHECK(wrong == 0);
  for (const std::string_view bad : {"\x80", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE0\x80\x80", "\xFF"})
    CHECK_FALSE(length(any, bad));
  CHECK(pool.is_empty(pool.and_({one, other})));
  CHECK(pool.includes(any, pool.or_({one, other})));
  CHECK(pool.includes(pool.or_({one, other}), any));
}
