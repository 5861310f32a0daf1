#include "text/tokenizer/tokenizer.h"

#include <fmt/core.h>

#include "support/error.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/plamo2.h"
#include "text/tokenizer/rwkv.h"
#include "text/tokenizer/sentencepiece.h"
#include "text/tokenizer/special_split.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/vocabulary.h"
#include "text/tokenizer/wordpiece.h"

namespace forge::text {
namespace {

/// The Tokenizer interface around one algorithm: ByteLevelBpe, SentencePiece, Unigram, WordPiece, ... This class
/// handles special tokens, BOS and EOS; the scheme encodes the text between them.
template <class Scheme>
class SchemeTokenizer final : public Tokenizer {
 public:
  SchemeTokenizer(Vocabulary vocabulary, const loader::Gguf& gguf)
      : vocabulary_(std::move(vocabulary)), scheme_(vocabulary_, gguf) {}

  std::vector<std::int32_t> encode(std::string_view text, EncodeOptions options) const override {
    check_text_size(text.size());
    std::vector<std::int32_t> ids;
    ids.reserve(text.size() / 4 + 2);
    if (options.add_special && vocabulary_.add_bos()) ids.push_back(vocabulary_.bos());
    scheme_.encode(split_special(vocabulary_, text, options.parse_special), ids);
    if (options.add_special && vocabulary_.add_eos()) ids.push_back(vocabulary_.eos());
    return ids;
  }

  std::vector<std::int32_t> encode_pair(std::string_view first, std::string_view second) const override {
    auto ids = encode(first, {.add_special = true});
    if (vocabulary_.add_separator()) ids.push_back(vocabulary_.separator());
    const auto rest = encode(second, {});
    ids.insert(ids.end(), rest.begin(), rest.end());
    if (vocabulary_.add_eos()) ids.push_back(vocabulary_.eos());
    return ids;
  }

  std::string decode_piece(std::int32_t id, bool special) const override {
    if (!is_valid(id)) return {};
    const auto kind = vocabulary_.kind(id);
    if ((kind & (kControlToken | kUnknownToken)) != 0)
      return special ? std::string(vocabulary_.text(id)) : std::string();
    if ((kind & kUserToken) != 0) return std::string(vocabulary_.text(id));
    if ((kind & kByteToken) != 0)
      if (const int byte = byte_of(vocabulary_.text(id)); byte >= 0) return std::string(1, static_cast<char>(byte));
    return scheme_.decode(vocabulary_.text(id));
  }

  std::string decode(std::span<const std::int32_t> ids, bool special) const override {
    std::string text;
    bool at_start = true;  // of a stretch of text, where encode() may have added a space
    for (const std::int32_t id : ids) {
      const std::string piece = decode_piece(id, special);
      const bool separates = is_valid(id) && (vocabulary_.kind(id) & (kControlToken | kUserToken)) != 0;
      const bool added = at_start && !separates && vocabulary_.add_space_prefix() && piece.starts_with(' ');
      text.append(piece, added ? 1 : 0);
      at_start = separates || (at_start && piece.empty());
    }
    return text;
  }

  std::string_view token_text(std::int32_t id) const override {
    return is_valid(id) ? vocabulary_.text(id) : std::string_view();
  }
  bool is_control(std::int32_t id) const override {
    return is_valid(id) && (vocabulary_.kind(id) & kControlToken) != 0;
  }
  const std::vector<std::int32_t>& end_of_generation() const override { return vocabulary_.end_tokens(); }
  std::int32_t bos() const override { return vocabulary_.bos(); }
  std::int32_t eos() const override { return vocabulary_.eos(); }
  bool add_bos() const override { return vocabulary_.add_bos(); }
  bool add_eos() const override { return vocabulary_.add_eos(); }
  std::int32_t vocab_size() const override { return vocabulary_.size(); }
  std::string describe() const override { return scheme_.describe(); }
  const std::vector<std::string>& warnings() const override { return vocabulary_.warnings(); }

 private:
  bool is_valid(std::int32_t id) const { return id >= 0 && id < vocabulary_.size(); }

  /// The value of a byte token: 10 for "<0x0A>"; -1 for any other text.
  static int byte_of(std::string_view text) {
    if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
    int byte = 0;
    for (const char c : text.substr(3, 2)) {
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                               : -1;
      if (digit < 0) return -1;
      byte = byte * 16 + digit;
    }
    return byte;
  }

  Vocabulary vocabulary_;  // before scheme_, which refers to it
  Scheme scheme_;
};

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::open(const loader::Gguf& gguf) {
  Vocabulary vocabulary(gguf);
  const auto make = [&]<class Scheme>(std::type_identity<Scheme>) -> std::unique_ptr<Tokenizer> {
    return std::make_unique<SchemeTokenizer<Scheme>>(std::move(vocabulary), gguf);
  };
  switch (vocabulary.vocabulary_kind()) {
    case VocabularyKind::kByteLevelBpe:
      return make(std::type_identity<ByteLevelBpe>());
    case VocabularyKind::kSentencePiece:
      return make(std::type_identity<SentencePiece>());
    case VocabularyKind::kUnigram:
      return make(std::type_identity<Unigram>());
    case VocabularyKind::kWordPiece:
      return make(std::type_identity<WordPiece>());
    case VocabularyKind::kRwkv:
      return make(std::type_identity<Rwkv>());
    case VocabularyKind::kPlamo2:
      return make(std::type_identity<Plamo2>());
  }
  throw Error(ErrorCode::kInternal, "a kind of vocabulary without a tokenizer");
}

}  // namespace forge::text
