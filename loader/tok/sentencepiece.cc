#include "loader/tok/sentencepiece.h"

#include <fmt/core.h>

#include <bit>
#include <cmath>
#include <deque>
#include <optional>

#include "loader/tok/merge.h"
#include "loader/tok/word_cache.h"
#include "support/error.h"

namespace forge::loader::tok {
namespace {

constexpr std::string_view kBlank = "\xE2\x96\x81";  // U+2581, which stands for a space

/// Orders scores as unsigned numbers, the highest score lowest; NaN comes last.
std::uint32_t rank_of_score(float score) {
  if (std::isnan(score)) return UINT32_MAX;
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);  // one zero, not two
  const std::uint32_t ascending = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return ~ascending;
}

/// The end of the word that begins at `at`: the next U+2581 that does not follow another one.
std::size_t word_end(std::string_view text, std::size_t at) {
  while (text.substr(at).starts_with(kBlank)) at += kBlank.size();
  const std::size_t end = text.find(kBlank, at);
  return end == text.npos ? text.size() : end;
}

}  // namespace

SentencePiece::SentencePiece(Vocabulary& vocabulary, const Gguf& gguf) : vocabulary_(&vocabulary) {
  constexpr std::string_view kKey = "tokenizer.ggml.scores";
  ranks_.assign(static_cast<std::size_t>(vocabulary.size()), rank_of_score(0));
  if (const GgufValue* scores = gguf.find_value(kKey)) {
    if (!scores->is_array() || scores->element != GgufType::kF32 || scores->count < ranks_.size())
      throw Error(ErrorCode::kTokenizer, fmt::format("'{}' is {}", kKey, scores->describe()),
                  fmt::format("an f32 for each of the {} tokens is wanted", ranks_.size()), "convert the model again");
    for (std::size_t id = 0; id < ranks_.size(); ++id) {
      float score = 0;
      std::memcpy(&score, scores->bytes.data() + id * sizeof score, sizeof score);
      ranks_[id] = rank_of_score(score);
    }
  } else {
    vocabulary.warn("the vocabulary has no scores; pairs are joined from left to right");
  }
  for (TokenId id = 0; id < vocabulary.size() && words_are_separate_; ++id) {
    const auto text = vocabulary.text(id);
    words_are_separate_ = text.empty() || word_end(text, 0) == text.size();
  }
}

void SentencePiece::encode(std::span<const Fragment> fragments, std::vector<TokenId>& ids) const {
  WordCache cache(ids);
  Merger merger;
  std::deque<std::string> escaped;  // words of the cache point into it

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
  bool after_special = true;  // the text's start counts as such
  for (const Fragment& fragment : fragments) {
    if (fragment.id != kNoToken) {
      ids.push_back(fragment.id);
      after_special = true;
      continue;
    }
    std::string& text = escaped.emplace_back();
    text.reserve(fragment.text.size() * 2);
    if (after_special && vocabulary_->add_space_prefix()) text += kBlank;
    after_special = false;
    for (const char c : fragment.text) c == ' ' ? text += kBlank : text += c;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = words_are_separate_ ? word_end(text, at) : text.size();
      const auto word = std::string_view(text).substr(at, end - at);
      cache.append(word, [&] { merger.run(word, priority, emit); });
      at = end;
    }
  }
}

std::string SentencePiece::decode(std::string_view token) {
  std::string out;
  for (std::size_t at = 0; at < token.size();) {
    const bool blank = token.substr(at).starts_with(kBlank);
    out += blank ? ' ' : token[at];
    at += blank ? kBlank.size() : 1;
  }
  return out;
}

}  // namespace forge::loader::tok
