#include "text/tokenizer/sentencepiece.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <optional>

#include "text/tokenizer/merge.h"
#include "text/tokenizer/scores.h"
#include "text/tokenizer/word_cache.h"

namespace forge::text {
namespace {

/// Maps a score to a rank so that the highest score gets the lowest rank and NaN the highest. The bits of an f32 sort
/// like unsigned integers once negative numbers are inverted and the sign bit of the others is set; ~ then reverses the
/// order.
std::uint32_t rank_of_score(float score) {
  if (std::isnan(score)) return UINT32_MAX;
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);  // -0.0 becomes +0.0
  const std::uint32_t ascending = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return ~ascending;
}

}  // namespace

SentencePiece::SentencePiece(Vocabulary& vocabulary, const loader::Gguf& gguf) : vocabulary_(&vocabulary) {
  const auto scores = read_scores(vocabulary, gguf);
  if (scores.empty()) vocabulary.warn("the vocabulary has no scores; pairs are merged from left to right");
  ranks_.assign(static_cast<std::size_t>(vocabulary.size()), rank_of_score(0));
  std::ranges::transform(scores, ranks_.begin(), rank_of_score);
  by_word_ = no_token_spans_words(vocabulary);
}

void SentencePiece::encode(std::span<const Fragment> fragments, std::vector<TokenId>& ids) const {
  WordCache cache(ids);
  Merger merger;
  // Fragments with U+2581 for spaces. The keys of `cache` point into them, so they must not move: a deque.
  std::deque<std::string> escaped;

  const auto priority = [&](std::string_view pair, const Symbol&, const Symbol&) -> std::optional<std::uint32_t> {
    if (pair.size() > vocabulary_->longest()) return std::nullopt;
    const TokenId id = vocabulary_->find(pair);
    if (id == kNoToken) return std::nullopt;
    return ranks_[static_cast<std::size_t>(id)];
  };
  const auto emit = [&](std::string_view text, std::uint64_t hash) {
    if (const TokenId id = vocabulary_->find(text, hash); id != kNoToken) return ids.push_back(id);
    for (const char c : text)
      if (const TokenId id = vocabulary_->byte_token(static_cast<std::uint8_t>(c)); id != kNoToken) ids.push_back(id);
  };
  bool after_special = true;  // also at the start of the text
  for (const Fragment& fragment : fragments) {
    if (fragment.id != kNoToken) {
      ids.push_back(fragment.id);
      after_special = true;
      continue;
    }
    std::string& text = escaped.emplace_back();
    text.reserve(fragment.text.size() * 2);
    if (after_special && vocabulary_->add_space_prefix()) text += kMetaspace;
    after_special = false;
    for (const char c : fragment.text) c == ' ' ? text += kMetaspace : text += c;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = by_word_ ? word_end(text, at) : text.size();
      const auto word = std::string_view(text).substr(at, end - at);
      cache.append(word, [&] { merger.run(word, priority, emit); });
      at = end;
    }
  }
}

}  // namespace forge::text
