#include "text/tokenizer/special_split.h"

#include <algorithm>
#include <array>
#include <compare>
#include <map>
#include <span>
#include <utility>

namespace forge::text {
namespace {

using SpecialLength = Vocabulary::SpecialLength;

struct Match {
  TokenId id = kNoToken;
  std::size_t at = 0;
  auto operator<=>(const Match&) const = default;
};

struct Taken {
  std::size_t end = 0;
  TokenId id = kNoToken;
};
using TakenByBegin = std::map<std::size_t, Taken>;  // stripped spaces included

bool strippable(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

/// Places where a special token may begin, rising. A text has at most 256 MiB.
std::vector<std::uint32_t> possible_begins(const Vocabulary& vocabulary, std::string_view text) {
  std::array<bool, 256> begins{};
  for (unsigned byte = 0; byte < 256; ++byte)
    begins.at(byte) = !vocabulary.special_lengths(static_cast<std::uint8_t>(byte)).empty();
  std::vector<std::uint32_t> places;
  for (std::size_t at = 0; at < text.size(); ++at)
    if (begins.at(static_cast<std::uint8_t>(text[at]))) places.push_back(static_cast<std::uint32_t>(at));
  return places;
}

/// Lengths of the special tokens that begin like one of the places, longest first.
std::vector<std::uint16_t> lengths_at(const Vocabulary& vocabulary, std::string_view text,
                                      std::span<const std::uint32_t> places) {
  std::array<bool, 256> seen{};
  std::vector<std::uint16_t> lengths;
  for (const auto at : places) {
    const auto first = static_cast<std::uint8_t>(text[at]);
    if (std::exchange(seen.at(first), true)) continue;
    const auto& more = vocabulary.special_lengths(first);
    for (const auto& length : more) lengths.push_back(length.bytes);
  }
  std::ranges::sort(lengths, std::ranges::greater{});
  lengths.erase(std::ranges::unique(lengths).begin(), lengths.end());
  return lengths;
}

/// Special tokens of `bytes` bytes at the places, in the order in which they take their bytes.
std::vector<Match> matches_of(const Vocabulary& vocabulary, std::string_view text, std::uint16_t bytes,
                              std::span<const std::uint32_t> places, bool parse_special) {
  std::vector<Match> matches;
  for (const std::size_t at : places) {
    if (bytes > text.size() - at) break;
    const auto& lengths = vocabulary.special_lengths(static_cast<std::uint8_t>(text[at]));
    const auto length = std::ranges::lower_bound(lengths, bytes, std::ranges::greater{}, &SpecialLength::bytes);
    if (length == lengths.end() || length->bytes != bytes) continue;
    if (!length->last.test(static_cast<std::uint8_t>(text[at + bytes - 1]))) continue;  // most places, without a hash
    const TokenId id = vocabulary.find(text.substr(at, bytes));
    if (id == kNoToken || !vocabulary.is_special(id)) continue;
    if (!parse_special && (vocabulary.kind(id) & (kControlToken | kUnknownToken)) != 0) continue;
    matches.push_back({id, at});
  }
  std::ranges::sort(matches);
  return matches;
}

/// Takes the match where its bytes are free, and the white space that it strips.
void take(const Vocabulary& vocabulary, std::string_view text, const Match& match, std::size_t bytes,
          TakenByBegin& taken) {
  std::size_t end = match.at + bytes;
  const auto next = taken.lower_bound(match.at);
  const std::size_t room_end = next == taken.end() ? text.size() : next->first;
  if (end > room_end) return;
  const std::size_t room_begin = next == taken.begin() ? 0 : std::prev(next)->second.end;
  if (room_begin > match.at) return;
  std::size_t begin = match.at;
  if ((vocabulary.kind(match.id) & kStripsLeft) != 0)
    while (begin > room_begin && strippable(text[begin - 1])) --begin;
  if ((vocabulary.kind(match.id) & kStripsRight) != 0)
    while (end < room_end && strippable(text[end])) ++end;
  taken.emplace_hint(next, begin, Taken{end, match.id});
}

/// Leaves the places that are free.
void drop_taken(const TakenByBegin& taken, std::vector<std::uint32_t>& places) {
  auto next = taken.begin();
  std::erase_if(places, [&](std::size_t at) {
    while (next != taken.end() && next->second.end <= at) ++next;
    return next != taken.end() && next->first <= at;
  });
}

}  // namespace

std::vector<Fragment> split_special(const Vocabulary& vocabulary, std::string_view text, bool parse_special) {
  std::vector<Fragment> fragments;
  if (text.empty()) return fragments;
  TakenByBegin taken;
  auto places = possible_begins(vocabulary, text);
  for (const auto bytes : lengths_at(vocabulary, text, places)) {  // one length at a time: memory is the text's
    const auto matches = matches_of(vocabulary, text, bytes, places, parse_special);
    for (const Match& match : matches) take(vocabulary, text, match, bytes, taken);
    if (!matches.empty()) drop_taken(taken, places);
  }

  std::size_t at = 0;
  for (const auto& [begin, token] : taken) {
    if (begin > at) fragments.push_back({text.substr(at, begin - at), kNoToken});
    fragments.push_back({{}, token.id});
    at = token.end;
  }
  if (at < text.size()) fragments.push_back({text.substr(at), kNoToken});
  return fragments;
}

}  // namespace forge::text
