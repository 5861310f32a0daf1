#include "text/tokenizer/unigram.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "support/error.h"
#include "text/tokenizer/scores.h"
#include "text/tokenizer/unicode.h"

namespace forge::text {
namespace {

/// An unknown character scores this much less than the worst token (SentencePiece's kUnkPenalty).
constexpr float kUnknownPenalty = 10;

}  // namespace

/// The state of the Viterbi search. steps[i] is the last token of the best split of the word's first i bytes, and sums
/// its score. Scores are kept in a ring, because no token reaches back further than kSearchedBytesMax bytes.
struct Unigram::Lattice {
  struct Step {
    TokenId id = kNoToken;    // kNoToken with bytes > 0: an unknown character
    std::uint32_t bytes = 0;  // 0: no split ends here yet
  };
  std::vector<Step> steps;
  std::vector<float> sums;
  std::vector<Step> path;  // scratch: the best split, backwards
  // Carried over from the words before: the score so far (it affects rounding), and whether the last character was
  // unknown.
  float sum = 0;
  bool unknown = false;
};

Unigram::Unigram(Vocabulary& vocabulary, const loader::Gguf& gguf)
    : vocabulary_(&vocabulary), rules_(gguf), scores_(read_scores(vocabulary, gguf)) {
  if (scores_.empty())
    throw Error(ErrorCode::kTokenizer, "the vocabulary has no scores",
                fmt::format("'{}' is missing, and Unigram tokenizers need it", kScoresKey), "convert the model again");
  merge_spaces_ = gguf.get<bool>("tokenizer.ggml.remove_extra_whitespaces", false);
  std::vector<TokenId> ids;
  float least = std::numeric_limits<float>::infinity();
  std::size_t too_long = 0;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    if ((vocabulary.kind(id) & (kNormalToken | kUserToken)) == 0 || vocabulary.text(id).empty()) continue;
    const float score = scores_[static_cast<std::size_t>(id)];
    if (!std::isfinite(score))
      throw Error(ErrorCode::kTokenizer, fmt::format("the score of token {} is {}", id, score),
                  fmt::format("'{}' must hold finite numbers", kScoresKey), "convert the model again");
    least = std::min(least, score);
    if (vocabulary.text(id).size() <= kSearchedBytesMax)
      ids.push_back(id);
    else
      ++too_long;
  }
  warn_of_long_tokens(vocabulary, too_long);
  unknown_score_ = (ids.empty() ? 0 : least) - kUnknownPenalty;
  trie_ = Trie(vocabulary, std::move(ids));
  by_word_ = no_token_spans_words(vocabulary);
}

std::string Unigram::normalized(std::string_view text) const {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  // A space is written only once the text after it is known, so that spaces at the end of the text can be dropped.
  bool begun = false, pending = vocabulary_->add_space_prefix();
  const auto put = [&](std::string_view part) {
    for (const char c : part) {
      if (c == ' ' && merge_spaces_) {
        pending = pending || begun;
        continue;
      }
      if (pending) out += kMetaspace;
      pending = false;
      begun = true;
      if (c == ' ')
        out += kMetaspace;
      else
        out += c;
    }
  };
  while (!text.empty()) {
    std::size_t bytes = 1;
    // See Charsmap::keeps_ascii(): the common case without a trie look-up.
    const bool plain = rules_.keeps_ascii(text[0]) && (text.size() == 1 || (text[1] & 0x80) == 0);
    if (plain) {
      put(text.substr(0, 1));
    } else if (const auto rule = rules_.find(text); rule.bytes != 0) {
      put(rule.value);
      bytes = rule.bytes;
    } else {
      std::size_t ill_formed = 0;
      bytes = well_formed_bytes(text, ill_formed);
      put(bytes != 0 ? text.substr(0, bytes) : kReplacementText);
      bytes = std::max<std::size_t>(bytes, 1);
    }
    text.remove_prefix(bytes);
    check_text_size(out.size());
  }
  return out;
}

void Unigram::encode_word(std::string_view word, Lattice& lattice, std::vector<TokenId>& ids) const {
  constexpr std::size_t kWindow = std::bit_ceil(kSearchedBytesMax + 1);
  lattice.steps.assign(word.size() + 1, {});
  lattice.sums.resize(kWindow);
  lattice.sums[0] = lattice.sum;
  // Offers a split that ends at `to` with token `id`, after the best split of the first `from` bytes. An earlier offer
  // of the same score stays.
  const auto relax = [&](std::size_t from, std::size_t to, float score, TokenId id) {
    const float sum = lattice.sums[from % kWindow] + score;
    auto& step = lattice.steps[to];
    if (step.bytes != 0 && sum <= lattice.sums[to % kWindow]) return;
    step = {id, static_cast<std::uint32_t>(to - from)};
    lattice.sums[to % kWindow] = sum;
  };
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t char_bytes = std::min(sequence_bytes(word[at]), word.size() - at);
    bool covered = false;
    std::uint32_t node = Trie::kRoot;
    for (std::size_t end = at; end < word.size();) {
      node = trie_.child(node, word[end++]);
      if (node == Trie::kNoNode) break;
      const TokenId id = trie_.token(node);
      if (id == kNoToken) continue;
      // User-defined tokens score 0, more than any log-probability, so they are preferred.
      const bool user = (vocabulary_->kind(id) & kUserToken) != 0;
      relax(at, end, user ? 0 : scores_[static_cast<std::size_t>(id)], id);
      covered = covered || end - at == char_bytes;
    }
    if (!covered) relax(at, at + char_bytes, unknown_score_, kNoToken);
    at += char_bytes;
  }
  lattice.sum = lattice.sums[word.size() % kWindow];

  // Follow the steps back from the end, then write the tokens forward.
  lattice.path.clear();
  std::size_t at = word.size();
  for (; at > 0; at -= lattice.steps[at].bytes) lattice.path.push_back(lattice.steps[at]);
  for (std::size_t i = lattice.path.size(); i-- > 0;) {
    const auto [id, bytes] = lattice.path[i];
    if (id != kNoToken)
      ids.push_back(id);
    else if (vocabulary_->byte_token(0) != kNoToken)
      for (const char c : word.substr(at, bytes)) ids.push_back(vocabulary_->byte_token(static_cast<std::uint8_t>(c)));
    else if (!lattice.unknown && vocabulary_->unknown() != kNoToken)
      ids.push_back(vocabulary_->unknown());
    lattice.unknown = id == kNoToken;
    at += bytes;
  }
}

std::string Unigram::describe() const {
  return fmt::format("unigram{}{}", rules_.empty() ? "" : ", text normalised", merge_spaces_ ? ", spaces merged" : "");
}

void Unigram::encode(std::span<const Fragment> fragments, std::vector<TokenId>& ids) const {
  Lattice lattice;
  for (const Fragment& fragment : fragments) {
    if (fragment.id != kNoToken) {
      ids.push_back(fragment.id);
      continue;
    }
    const std::string text = normalized(fragment.text);
    lattice.sum = 0;
    lattice.unknown = false;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = by_word_ ? word_end(text, at) : text.size();
      encode_word(std::string_view(text).substr(at, end - at), lattice, ids);
      at = end;
    }
  }
}

}  // namespace forge::text
