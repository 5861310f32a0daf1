#include "text/constraint/schema/json_language.h"

#include <fmt/core.h>

#include "text/constraint/code_ranges.h"
#include "text/constraint/regex_syntax.h"

namespace forge::text::constraint {
namespace {

constexpr std::size_t kFlatStates = 400;

}  // namespace

JsonLanguage::JsonLanguage(RegularPool& pool) : pool_(pool) {
  escapes_.fill(RegularPool::kEpsilon);
  for (unsigned byte = 0; byte < 0x20; ++byte) escapes_[byte] = pool_.literal(fmt::format("\\u{:04x}", byte));
  for (const auto& [byte, text] : {std::pair('"', "\\\""),
                                   {'\\', "\\\\"},
                                   {'\b', "\\b"},
                                   {'\f', "\\f"},
                                   {'\n', "\\n"},
                                   {'\r', "\\r"},
                                   {'\t', "\\t"}})
    escapes_[static_cast<unsigned char>(byte)] = pool_.literal(text);
  character_ = any_character(pool_);
  text_ = pool_.star(character_);
  escaped_ =
      parse_regex(pool_, R"([^\x00-\x1f"\\]|\\(["\\/bfnrt]|u([0-9a-cefA-CEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}|)"
                         R"([dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})))");
  integer_ = parse_regex(pool_, "0|-?[1-9][0-9]*");
  with_fraction_ = parse_regex(pool_, R"(-?(0|[1-9][0-9]*)\.[0-9]*[1-9])");
  number_ = pool_.or_({integer_, with_fraction_});
  space_ = parse_regex(pool_, "( |\\n( {0,32}|\\t{1,16}))?");
  colon_ = parse_regex(pool_, ": ?");
  comma_ = pool_.concat(pool_.literal(","), space_);
  (void)text(0, kUnbounded);
}

Expr JsonLanguage::text(std::uint32_t min, std::uint32_t max) {
  const auto decoded = pool_.repeat(character_, min, max);
  any_escape_.try_emplace(decoded, pool_.repeat(escaped_, min, max));
  return decoded;
}

Expr JsonLanguage::quoted(Expr decoded) {
  if (const auto known = any_escape_.find(decoded); known != any_escape_.end())
    return pool_.concat(pool_.literal("\""), pool_.concat(known->second, pool_.literal("\"")));
  return quoted_once(decoded);
}

Expr JsonLanguage::quoted_once(Expr decoded) {
  if (const auto known = known_.find(decoded); known != known_.end()) return known->second;
  auto content = pool_.substitute(decoded, escapes_);
  if (!pool_.is_open(content, kUnbounded)) content = pool_.flattened(content, kFlatStates);
  const auto result = pool_.concat(pool_.literal("\""), pool_.concat(content, pool_.literal("\"")));
  return known_[decoded] = result;
}

Expr JsonLanguage::spelled_numbers(Expr numbers) {
  if (numbers == number_) return parse_regex(pool_, R"(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?)");
  if (numbers == integer_) return numbers;
  if (pool_.is_empty(pool_.and_({numbers, with_fraction_}))) {
    // A constant that is written as 2.0: above 2^53 many programs know no other spelling.
    std::vector<Expr> all{pool_.flattened(numbers, kFlatStates)};
    for (const auto& word : pool_.words(numbers, 50, 5000).value_or(std::vector<std::string>{}))
      if (word.size() >= 16) all.push_back(pool_.literal(word + ".0"));
    return pool_.or_(all);
  }
  const auto zeros = pool_.repeat(pool_.literal("0"), 0, 8);
  const auto whole = pool_.flattened(pool_.and_({numbers, integer_}), kFlatStates);
  const auto broken = pool_.flattened(pool_.and_({numbers, with_fraction_}), kFlatStates);
  const auto point = parse_regex(pool_, "(\\.0{1,8})?");
  const auto all = pool_.or_(
      {pool_.is_empty(whole) ? RegularPool::kEmpty : pool_.concat(whole, point), pool_.concat(broken, zeros)});
  return all;
}

}  // namespace forge::text::constraint
