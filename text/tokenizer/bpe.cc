#include "text/tokenizer/bpe.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "support/error.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/merge.h"
#include "text/tokenizer/metaspace.h"
#include "text/tokenizer/unicode.h"
#include "text/tokenizer/word_cache.h"

namespace forge::text {

ByteLevelBpe::ByteLevelBpe(Vocabulary& vocabulary, const loader::Gguf& gguf) : vocabulary_(&vocabulary) {
  // These two models are pre-tokenizers as well, which their files may or may not name.
  const auto model = gguf.find<std::string_view>("tokenizer.ggml.model");
  const bool named = model == "gemma4" || model == "whitespace";
  const auto name = named ? model : gguf.find<std::string_view>("tokenizer.ggml.pre");
  drop_spaces_ = model == "whitespace";
  lowercase_ = drop_spaces_ && gguf.get<bool>("tokenizer.ggml.normalizer.lowercase", false);
  if (name) pre_ = find_pre_tokenizer(*name);
  if (pre_ == nullptr) {
    pre_ = &default_pre_tokenizer();
    vocabulary.warn(fmt::format("{}; '{}' is used instead, and answers may be worse",
                                name ? fmt::format("the pre-tokenizer '{}' is unknown", printable(*name))
                                     : std::string("the file names no pre-tokenizer"),
                                pre_->name));
  }
  words_.emplace(*pre_);
  if (pre_->add_bos && !gguf.has("tokenizer.ggml.add_bos_token")) vocabulary.default_add_bos(gguf, true);
  read_merges(gguf);
  if (pre_->spelling == Spelling::kByteLevel)
    check_bytes();
  else if (pre_->spelling == Spelling::kMetaspace || vocabulary.find("<0x00>") != kNoToken)
    vocabulary.find_byte_tokens();
}

/// Published vocabularies lack tokens for bytes that rarely occur or that UTF-8 never contains, so those are not
/// required. A vocabulary without the printable ASCII characters is broken.
void ByteLevelBpe::check_bytes() const {
  for (char byte = ' '; byte <= '~'; ++byte) {
    std::string token;
    append_printable_bytes(token, {&byte, 1});
    if (vocabulary_->find(token) == kNoToken)
      throw Error(ErrorCode::kTokenizer, fmt::format("byte 0x{:02X} has no token", static_cast<std::uint8_t>(byte)),
                  fmt::format("a byte-level vocabulary needs one that is spelled '{}'", token),
                  "convert the model again");
  }
}

void ByteLevelBpe::read_merges(const loader::Gguf& gguf) {
  constexpr std::string_view kKey = "tokenizer.ggml.merges";
  const loader::GgufValue* array = gguf.find_value(kKey);
  if (array == nullptr)
    throw Error(ErrorCode::kTokenizer, "the model has no merges", fmt::format("'{}' is missing", kKey),
                "convert the model again");
  merges_ = StringList(*array, kKey);
  slots_ = HashSlots(merges_.size());
  std::string joined;
  for (std::uint32_t i = 0; i < merges_.size(); ++i) {
    const auto merge = merges_[i];
    const std::size_t space = merge.find(' ', 1);
    if (space == merge.npos || space + 1 == merge.size())
      throw Error(ErrorCode::kTokenizer, fmt::format("merge {} is '{}'", i, printable(merge)),
                  "a merge is two parts with a space between them", "convert the model again");
    longest_pair_ = std::max(longest_pair_, merge.size() - 1);
    const auto left = hash_of(merge.substr(0, space)), right = hash_of(merge.substr(space + 1));
    const auto hash = hash_of_pair(left, right);
    joined.assign(merge.substr(0, space)).append(merge.substr(space + 1));
    const auto refuse_unknown = [&](std::string_view text, std::uint64_t text_hash) {
      if (!vocabulary_->has_hash(text_hash))
        throw Error(ErrorCode::kTokenizer,
                    fmt::format("merge {} is '{}', but '{}' is not a token", i, printable(merge), printable(text)),
                    fmt::format("'{}' does not fit the vocabulary", kKey), "convert the model again");
    };
    refuse_unknown(merge.substr(0, space), left);
    refuse_unknown(merge.substr(space + 1), right);
    refuse_unknown(joined, hash_of(joined));
    // A merge that occurs twice keeps its first, lower rank.
    slots_.insert(hash, i, [&](std::uint32_t j) { return merges_[j] == merge; });
  }
}

std::uint32_t ByteLevelBpe::rank(std::string_view pair, std::size_t left_bytes, std::uint64_t hash) const {
  return slots_.find(hash, [&](std::uint32_t i) {
    const auto merge = merges_[i];
    return merge.size() == pair.size() + 1 && merge[left_bytes] == ' ' &&
           merge.starts_with(pair.substr(0, left_bytes)) && merge.ends_with(pair.substr(left_bytes));
  });
}

void ByteLevelBpe::encode(std::span<const Fragment> fragments, std::vector<TokenId>& ids) const {
  WordCache cache(ids);
  Merger merger;
  std::string printable_word;
  // Copies of repaired or re-spelled fragments. The keys of `cache` point into them, so they must not move: a deque.
  std::deque<std::string> repaired;

  const auto priority = [&](std::string_view pair, const Symbol& left,
                            const Symbol& right) -> std::optional<std::uint32_t> {
    if (pair.size() > longest_pair_) return std::nullopt;
    const auto found = rank(pair, left.bytes, hash_of_pair(left.hash, right.hash));
    if (found == HashSlots::kNone) return std::nullopt;
    return found;
  };
  const bool metaspace = pre_->spelling == Spelling::kMetaspace;
  const bool utf8 = metaspace || pre_->spelling == Spelling::kUtf8;
  // A symbol that is not a token (a character the vocabulary lacks) is spelled byte by byte.
  const auto emit = [&](std::string_view text, std::uint64_t hash) {
    if (const TokenId id = vocabulary_->find(text, hash); id != kNoToken) return ids.push_back(id);
    if (utf8) {
      for (const char c : text)
        if (const TokenId id = vocabulary_->byte_token(static_cast<std::uint8_t>(c)); id != kNoToken) ids.push_back(id);
      return;
    }
    for (std::size_t i = 0; i < text.size(); ++i)
      if (const TokenId id = vocabulary_->find(text.substr(i, 1)); id != kNoToken) ids.push_back(id);
  };
  const auto encode_word = [&](std::string_view word) {
    if (metaspace) {
      // A run of line breaks that is in the vocabulary becomes that token without merging.
      const TokenId id = word.front() == '\n' ? vocabulary_->find(word) : kNoToken;
      return id != kNoToken ? ids.push_back(id) : merger.run(word, priority, emit);
    }
    if (utf8) return merger.run(word, priority, emit);
    printable_word.clear();
    append_printable_bytes(printable_word, word);
    if (pre_->ignore_merges)
      if (const TokenId id = vocabulary_->find(printable_word); id != kNoToken) return ids.push_back(id);
    merger.run(printable_word, priority, emit);
  };
  for (const Fragment& fragment : fragments) {
    if (fragment.id != kNoToken) {
      ids.push_back(fragment.id);
      continue;
    }
    std::string storage;
    std::string_view text = repair_utf8(fragment.text, storage);
    if (metaspace)
      text = repaired.emplace_back(escape_spaces(text));
    else if (lowercase_)
      text = repaired.emplace_back(lower_case(text));
    else if (text.data() == storage.data())
      text = repaired.emplace_back(std::move(storage));
    words_->split(text, [&](std::string_view word) {
      if (drop_spaces_ && is_white_space(text::decode(word, 0).code)) return;
      cache.append(word, [&] { encode_word(word); });
    });
  }
}

std::string ByteLevelBpe::describe() const {
  const std::string_view kind = pre_->spelling == Spelling::kByteLevel   ? "byte-level"
                                : pre_->spelling == Spelling::kMetaspace ? "byte-fallback"
                                                                         : "character-level";
  return fmt::format("{} BPE, words as '{}'", kind, pre_->name);
}

std::string ByteLevelBpe::decode(std::string_view token) const {
  switch (pre_->spelling) {
    case Spelling::kByteLevel:
      return bytes_of_printable(token);
    case Spelling::kMetaspace:
      return unescape_spaces(token);
    case Spelling::kUtf8:
      break;
  }
  return std::string(token);
}

}  // namespace forge::text
