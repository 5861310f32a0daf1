// Special tokens claim their bytes longest first. One length is handled at a time, so the memory needed is
// proportional to the text, not to the number of overlapping matches:
//
//    places   where some special token may begin (by its first byte), found once
//    claims   [begin, end) of the tokens found so far; places inside them are dropped
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

/// A special token found at byte `at`. The order is by id first, then by place.
struct Match {
  TokenId id = kNoToken;
  std::size_t at = 0;
  auto operator<=>(const Match&) const = default;
};

/// A token that has its bytes; its key in ClaimsByBegin is the begin. Both ends include stripped white space.
struct Claim {
  std::size_t end = 0;
  TokenId id = kNoToken;
};
using ClaimsByBegin = std::map<std::size_t, Claim>;

bool strippable(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

/// Ascending positions at which a special token may begin. A text has at most 256 MiB, so 32 bits are enough.
std::vector<std::uint32_t> possible_begins(const Vocabulary& vocabulary, std::string_view text) {
  std::array<bool, 256> begins{};
  for (unsigned byte = 0; byte < 256; ++byte)
    begins.at(byte) = !vocabulary.special_lengths(static_cast<std::uint8_t>(byte)).empty();
  std::vector<std::uint32_t> places;
  for (std::size_t at = 0; at < text.size(); ++at)
    if (begins.at(static_cast<std::uint8_t>(text[at]))) places.push_back(static_cast<std::uint32_t>(at));
  return places;
}

/// The distinct lengths of the special tokens that begin with a byte found at one of the places, longest first.
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

/// The special tokens of exactly `bytes` bytes at the places, in the order in which they may claim bytes.
std::vector<Match> matches_of(const Vocabulary& vocabulary, std::string_view text, std::uint16_t bytes,
                              std::span<const std::uint32_t> places, bool parse_special) {
  std::vector<Match> matches;
  for (const std::size_t at : places) {
    if (bytes > text.size() - at) break;
    const auto& lengths = vocabulary.special_lengths(static_cast<std::uint8_t>(text[at]));
    const auto length = std::ranges::lower_bound(lengths, bytes, std::ranges::greater{}, &SpecialLength::bytes);
    if (length == lengths.end() || length->bytes != bytes) continue;
    if (!length->last.test(static_cast<std::uint8_t>(text[at + bytes - 1])))
      continue;  // rules most places out without a hash
    const TokenId id = vocabulary.find(text.substr(at, bytes));
    if (id == kNoToken || !vocabulary.is_special(id)) continue;
    if (!parse_special && (vocabulary.kind(id) & (kControlToken | kUnknownToken)) != 0) continue;
    matches.push_back({id, at});
  }
  std::ranges::sort(matches);
  return matches;
}

/// Claims the bytes of the match, and the white space it strips, unless another token has some of its bytes already.
void claim(const Vocabulary& vocabulary, std::string_view text, const Match& match, std::size_t bytes,
           ClaimsByBegin& claims) {
  std::size_t end = match.at + bytes;
  const auto next = claims.lower_bound(match.at);
  const std::size_t room_end = next == claims.end() ? text.size() : next->first;
  if (end > room_end) return;
  const std::size_t room_begin = next == claims.begin() ? 0 : std::prev(next)->second.end;
  if (room_begin > match.at) return;
  std::size_t begin = match.at;
  if ((vocabulary.kind(match.id) & kStripsLeft) != 0)
    while (begin > room_begin && strippable(text[begin - 1])) --begin;
  if ((vocabulary.kind(match.id) & kStripsRight) != 0)
    while (end < room_end && strippable(text[end])) ++end;
  claims.emplace_hint(next, begin, Claim{end, match.id});
}

/// Removes the places that are claimed.
void drop_claimed(const ClaimsByBegin& claims, std::vector<std::uint32_t>& places) {
  auto next = claims.begin();
  std::erase_if(places, [&](std::size_t at) {
    while (next != claims.end() && next->second.end <= at) ++next;
    return next != claims.end() && next->first <= at;
  });
}

}  // namespace

std::vector<Fragment> split_special(const Vocabulary& vocabulary, std::string_view text, bool parse_special) {
  std::vector<Fragment> fragments;
  if (text.empty()) return fragments;
  ClaimsByBegin claims;
  auto places = possible_begins(vocabulary, text);
  for (const auto bytes : lengths_at(vocabulary, text, places)) {
    const auto matches = matches_of(vocabulary, text, bytes, places, parse_special);
    for (const Match& match : matches) claim(vocabulary, text, match, bytes, claims);
    if (!matches.empty()) drop_claimed(claims, places);
  }

  std::size_t at = 0;
  for (const auto& [begin, token] : claims) {
    if (begin > at) fragments.push_back({text.substr(at, begin - at), kNoToken});
    fragments.push_back({{}, token.id});
    at = token.end;
  }
  if (at < text.size()) fragments.push_back({text.substr(at), kNoToken});
  return fragments;
}

}  // namespace forge::text
