#pragma once
// The vocabulary of a GGUF file: token texts and kinds, special tokens, and the rules about them. What a file leaves
// out is filled in as llama.cpp does, because files are made for it and tested with it.

#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "loader/gguf/gguf.h"
#include "text/tokenizer/string_table.h"

namespace forge::text {

using TokenId = std::int32_t;
inline constexpr TokenId kNoToken = -1;

/// Bits of Vocabulary::kind(). The first six are the values of tokenizer.ggml.token_type.
inline constexpr std::uint8_t kNormalToken = 1;
inline constexpr std::uint8_t kUnknownToken = 2;
inline constexpr std::uint8_t kControlToken = 4;
inline constexpr std::uint8_t kUserToken = 8;  ///< found in text before anything else, also without parse_special
inline constexpr std::uint8_t kUnusedToken = 16;
inline constexpr std::uint8_t kByteToken = 32;
inline constexpr std::uint8_t kStripsRight = 64;  ///< drops the white space after it
inline constexpr std::uint8_t kStripsLeft = 128;  ///< drops the white space before it

/// The algorithm, from tokenizer.ggml.model: 'gpt2', 'gemma4' and 'whitespace', 'llama', 't5', 'bert', 'rwkv',
/// 'plamo2'.
enum class VocabularyKind : std::uint8_t { kByteLevelBpe, kSentencePiece, kUnigram, kWordPiece, kRwkv, kPlamo2 };

/// The longest text that is tokenized, before and after normalisation.
inline constexpr std::size_t kTextBytesMax = std::size_t{256} << 20;
[[noreturn]] void throw_text_too_large(std::size_t bytes);
/// Throws Error(kPrompt) if `bytes` is more than kTextBytesMax.
inline void check_text_size(std::size_t bytes) {
  if (bytes > kTextBytesMax) throw_text_too_large(bytes);
}

/// Read once when a tokenizer is opened; the tokenizer's scheme may still call the non-const members, then it is
/// immutable.
class Vocabulary {
 public:
  /// Refers to `gguf`, which must outlive this. Errors: kTokenizer (no vocabulary, an unknown model, arrays of
  /// different lengths, a token that occurs twice), kModelFormat (keys of the wrong type).
  explicit Vocabulary(const loader::Gguf& gguf);

  [[nodiscard]] VocabularyKind vocabulary_kind() const { return vocabulary_kind_; }
  [[nodiscard]] TokenId size() const { return static_cast<TokenId>(tokens_.size()); }
  /// The token as the file spells it (byte-level BPE: in GPT-2's alphabet). `id` must be in [0, size()).
  [[nodiscard]] std::string_view text(TokenId id) const { return tokens_[static_cast<std::uint32_t>(id)]; }
  [[nodiscard]] std::uint8_t kind(TokenId id) const { return kinds_[static_cast<std::uint32_t>(id)]; }
  /// The token that is spelled `text`, kNoToken if there is none. The second form takes a hash_of(text) that is known
  /// already.
  [[nodiscard]] TokenId find(std::string_view text) const { return find(text, hash_of(text)); }
  [[nodiscard]] TokenId find(std::string_view text, std::uint64_t hash) const;
  /// True if some token probably has this hash_of(text): only a part of the hash is compared, and no token's text is
  /// read. Fast enough to check every merge of a file.
  [[nodiscard]] bool has_hash(std::uint64_t hash) const {
    return slots_.find(hash, [](std::uint32_t) { return true; }) != HashSlots::kNone;
  }
  [[nodiscard]] std::size_t longest() const { return longest_; }  ///< bytes of the longest token
  /// The token for a byte that no other token covers: its byte token ("<0x0A>") or, in SentencePiece BPE, the unknown
  /// token. Unigram: kNoToken for every byte unless the vocabulary has all 256.
  [[nodiscard]] TokenId byte_token(std::uint8_t byte) const { return bytes_.at(byte); }

  [[nodiscard]] TokenId bos() const { return bos_; }
  [[nodiscard]] TokenId eos() const { return eos_; }  ///< WordPiece: the separator SEP, which ends a text
  [[nodiscard]] TokenId unknown() const { return unknown_; }
  /// The token between two texts, besides the EOS of the first one; never in WordPiece, where EOS is the separator.
  [[nodiscard]] TokenId separator() const { return separator_; }
  [[nodiscard]] bool add_separator() const { return add_separator_; }
  [[nodiscard]] bool add_bos() const { return add_bos_; }
  [[nodiscard]] bool add_eos() const { return add_eos_; }
  [[nodiscard]] bool add_space_prefix() const { return add_space_prefix_; }
  /// The tokens that end a generation, ascending.
  [[nodiscard]] const std::vector<TokenId>& end_tokens() const { return end_tokens_; }

  /// The special tokens with a given first byte and length, summarised for a fast test before any hash is computed.
  struct SpecialLength {
    std::uint16_t bytes = 0;
    std::bitset<256> last;  ///< set for every byte that one of them ends with
  };
  /// The lengths of the special tokens that begin with this byte, longest first.
  [[nodiscard]] const std::vector<SpecialLength>& special_lengths(std::uint8_t first_byte) const {
    return special_lengths_.at(first_byte);
  }
  /// True for tokens that split_special() looks for.
  [[nodiscard]] bool is_special(TokenId id) const {
    return (kind(id) & (kControlToken | kUserToken | kUnknownToken)) != 0;
  }
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  void warn(std::string text) { warnings_.push_back(std::move(text)); }
  /// Sets add_bos() to `add` unless tokenizer.ggml.add_bos_token says otherwise. It stays false if there is no BOS
  /// token.
  void default_add_bos(const loader::Gguf& gguf, bool add);
  /// Fills byte_token(). For SentencePiece and Unigram, and for BPE vocabularies that spell bytes as "<0x0A>".
  void find_byte_tokens();

 private:
  void read_model(const loader::Gguf& gguf);
  void read_tokens(const loader::Gguf& gguf);
  void read_kinds(const loader::Gguf& gguf);
  void read_special_ids(const loader::Gguf& gguf);
  void find_end_tokens(const loader::Gguf& gguf);
  void adjust_end_tokens();
  void set_strip_rules(const loader::Gguf& gguf);
  void collect_special();
  void find_bytes();
  [[nodiscard]] TokenId id_of_key(const loader::Gguf& gguf, std::string_view key, TokenId fallback);
  void make_control(TokenId id);

  VocabularyKind vocabulary_kind_ = VocabularyKind::kByteLevelBpe;
  StringList tokens_;
  HashSlots slots_;
  std::size_t longest_ = 0;
  std::vector<std::uint8_t> kinds_;   // of each token
  std::array<TokenId, 256> bytes_{};  // byte_token()
  TokenId bos_ = kNoToken, eos_ = kNoToken, unknown_ = kNoToken;
  TokenId separator_ = kNoToken;
  bool add_bos_ = false, add_eos_ = false, add_separator_ = false, add_space_prefix_ = false;
  std::vector<TokenId> end_tokens_;
  std::array<std::vector<SpecialLength>, 256> special_lengths_;
  std::vector<std::string> warnings_;
};

}  // namespace forge::text
