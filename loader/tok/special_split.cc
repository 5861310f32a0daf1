#include "loader/tok/special_split.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace forge::loader::tok {
namespace {

struct Match {
  std::size_t at = 0;
  std::size_t bytes = 0;
  TokenId id = kNoToken;
};

bool strippable(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

std::vector<Match> all_matches(const Vocabulary& vocabulary, std::string_view text, bool parse_special) {
  std::vector<Match> matches;
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const std::size_t bytes : vocabulary.special_lengths(static_cast<std::uint8_t>(text[at]))) {
      if (bytes > text.size() - at) continue;
      const TokenId id = vocabulary.find(text.substr(at, bytes));
      if (id == kNoToken || !vocabulary.is_special(id)) continue;
      if (!parse_special && (vocabulary.kind(id) & (kControlToken | kUnknownToken)) != 0) continue;
      matches.push_back({at, bytes, id});
    }
  }
  return matches;
}

}  // namespace

std::vector<Fragment> split_special(const Vocabulary& vocabulary, std::string_view text, bool parse_special) {
  std::vector<Fragment> fragments;
  if (text.empty()) return fragments;
  auto matches = all_matches(vocabulary, text, parse_special);
  if (matches.empty()) return {{text, kNoToken}};
  std::ranges::sort(matches, {}, [](const Match& m) { return std::tuple(SIZE_MAX - m.bytes, m.id, m.at); });

  struct Taken {
    std::size_t end = 0;
    TokenId id = kNoToken;
  };
  std::map<std::size_t, Taken> taken;  // by first byte, stripped spaces included
  for (const Match& match : matches) {
    std::size_t end = match.at + match.bytes;
    const auto next = taken.lower_bound(match.at);
    const std::size_t room_end = next == taken.end() ? text.size() : next->first;
    if (end > room_end) continue;
    const std::size_t room_begin = next == taken.begin() ? 0 : std::prev(next)->second.end;
    if (room_begin > match.at) continue;
    std::size_t begin = match.at;
    if ((vocabulary.kind(match.id) & kStripsLeft) != 0)
      while (begin > room_begin && strippable(text[begin - 1])) --begin;
    if ((vocabulary.kind(match.id) & kStripsRight) != 0)
      while (end < room_end && strippable(text[end])) ++end;
    taken.emplace_hint(next, begin, Taken{end, match.id});
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

}  // namespace forge::loader::tok
