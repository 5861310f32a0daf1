#include "text/tokenizer/plamo2.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "support/error.h"
#include "text/tokenizer/scores.h"
#include "text/tokenizer/unicode.h"

namespace forge::text {
namespace {

/// The score of a character that is spelled in bytes, and the score from which down a token is never used.
constexpr std::int64_t kBytesScore = -10'000'000, kUnusedScore = -20'000'000;
/// Keeps sums of hostile scores in 64 bits; real scores are at most 0.
constexpr double kScoreMax = 1e9;

bool is_well_formed(std::string_view text) {
  std::size_t ill_formed = 0;
  while (!text.empty()) {
    const std::size_t bytes = well_formed_bytes(text, ill_formed);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

}  // namespace

Plamo2::Plamo2(Vocabulary& vocabulary, const loader::Gguf& gguf) : vocabulary_(&vocabulary) {
  const auto refuse = [](std::string what, std::string why) {
    throw Error(ErrorCode::kTokenizer, std::move(what), std::move(why), "convert the model again");
  };
  const auto scores = read_scores(vocabulary, gguf);
  if (scores.empty())
    refuse("the vocabulary has no scores", fmt::format("'{}' is missing, and PLaMo 2 needs it", kScoresKey));
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto name = fmt::format("<0x{:02X}>", byte);
    bytes_.at(byte) = vocabulary.find(name);
    if (bytes_.at(byte) == kNoToken)
      refuse(fmt::format("the vocabulary has no token {}", name), "PLaMo 2 needs all 256 byte tokens");
  }

  scores_.assign(scores.size(), kUnusedScore);
  std::vector<TokenId> ids;
  std::size_t too_long = 0;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const auto text = vocabulary.text(id);
    const double score = std::round(static_cast<double>(scores[static_cast<std::size_t>(id)]) * 1e4);
    // Padding of converters is typed unused. Control tokens are found by split_special() alone, where that is allowed.
    if ((vocabulary.kind(id) & (kNormalToken | kUserToken)) == 0 || text.empty() || !is_well_formed(text)) continue;
    if (!(score > static_cast<double>(kUnusedScore))) continue;  // NaN too
    scores_[static_cast<std::size_t>(id)] = static_cast<std::int64_t>(std::min(score, kScoreMax));
    if (text.size() <= kSearchedBytesMax)
      ids.push_back(id);
    else
      ++too_long;
  }
  warn_of_long_tokens(vocabulary, too_long);
  trie_ = Trie(vocabulary, std::move(ids));
}

void Plamo2::encode_text(std::string_view text, std::vector<TokenId>& ids) const {
  // firsts[i] is the first token of the best split of the text from byte i on, kNoToken for a character in bytes, and
  // sums its score. Sums are kept in a ring, because no token reaches further than kSearchedBytesMax bytes.
  constexpr std::size_t kRing = std::bit_ceil(kSearchedBytesMax + 1);
  std::vector<TokenId> firsts(text.size(), kNoToken);
  std::vector<std::int64_t> sums(kRing);
  sums[text.size() % kRing] = 0;
  const auto is_inside = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  for (std::size_t at = text.size(); at > 0;) {
    const std::size_t after = at--;
    while (at > 0 && is_inside(text[at])) --at;
    std::int64_t best = sums[after % kRing] + kBytesScore;
    std::uint32_t node = Trie::kRoot;
    for (std::size_t end = at; end < text.size();) {
      node = trie_.child(node, text[end++]);
      if (node == Trie::kNoNode) break;
      const TokenId id = trie_.token(node);
      if (id == kNoToken) continue;
      const std::int64_t sum = sums[end % kRing] + scores_[static_cast<std::size_t>(id)];
      // Tokens come shortest first, and the longest of equals is wanted. Bytes lose against any equal.
      if (sum < best) continue;
      best = sum;
      firsts[at] = id;
    }
    sums[at % kRing] = best;
  }
  for (std::size_t at = 0; at < text.size();) {
    if (firsts[at] != kNoToken) {
      ids.push_back(firsts[at]);
      at += vocabulary_->text(firsts[at]).size();
      continue;
    }
    do ids.push_back(bytes_.at(static_cast<std::uint8_t>(text[at++])));
    while (at < text.size() && is_inside(text[at]));
  }
}

void Plamo2::encode(std::span<const Fragment> fragments, std::vector<TokenId>& ids) const {
  std::string storage;
  for (const auto& [text, special] : fragments) {
    if (special != kNoToken)
      ids.push_back(special);
    else
      encode_text(repair_utf8(text, storage), ids);
  }
}

}  // namespace forge::text
