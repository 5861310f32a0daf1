#pragma once
// The vocabulary of a GGUF file: token texts and kinds, the special tokens and the rules about them. What files leave
// unsaid is filled in as llama.cpp does, because that is what the files are made for and tested with.

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

/// Bits of `Vocabulary::kind`; tokenizer.ggml.token_type gives the first six.
inline constexpr std::uint8_t kNormalToken = 1;
inline constexpr std::uint8_t kUnknownToken = 2;
inline constexpr std::uint8_t kControlToken = 4;
inline constexpr std::uint8_t kUserToken = 8;  ///< found in text before anything else, also without parse_special
inline constexpr std::uint8_t kUnusedToken = 16;
inline constexpr std::uint8_t kByteToken = 32;
inline constexpr std::uint8_t kStripsRight = 64;  ///< white space after it belongs to it
inline constexpr std::uint8_t kStripsLeft = 128;  ///< white space before it belongs to it

/// tokenizer.ggml.model: 'gpt2' and 'gemma4', 'llama', 't5', 'bert'.
enum class VocabularyKind : std::uint8_t { kByteLevelBpe, kSentencePiece, kUnigram, kWordPiece };

inline constexpr std::size_t kTextBytesMax = std::size_t{256} << 20;
[[noreturn]] void refuse_text(std::size_t bytes);
/// Throws Error(kPrompt) for a text of more than kTextBytesMax, as it is given or as it is normalised so far.
inline void check_text(std::size_t bytes) {
  if (bytes > kTextBytesMax) refuse_text(bytes);
}

class Vocabulary {
 public:
  /// Views into `gguf`, which outlives this. Errors: kTokenizer (no vocabulary, an unknown model, arrays that do not
  /// fit each other, a token that occurs twice), kModelFormat (keys of the wrong type).
  explicit Vocabulary(const loader::Gguf& gguf);

  [[nodiscard]] VocabularyKind vocabulary_kind() const { return vocabulary_kind_; }
  [[nodiscard]] TokenId size() const { return static_cast<TokenId>(tokens_.size()); }
  /// As the file spells it (byte-level BPE: in GPT-2's printable alphabet); id in [0, size()).
  [[nodiscard]] std::string_view text(TokenId id) const { return tokens_[static_cast<std::uint32_t>(id)]; }
  [[nodiscard]] std::uint8_t kind(TokenId id) const { return kinds_[static_cast<std::uint32_t>(id)]; }
  /// kNoToken when no token is spelled so.
  [[nodiscard]] TokenId find(std::string_view text) const { return find(text, hash_of(text)); }
  [[nodiscard]] TokenId find(std::string_view text, std::uint64_t hash) const;
  /// Whether some token has this hash_of(text), as far as a part of the hash tells: for checks of many, without a look
  /// at the tokens' texts.
  [[nodiscard]] bool has_hash(std::uint64_t hash) const {
    return slots_.find(hash, [](std::uint32_t) { return true; }) != HashSlots::kNone;
  }
  [[nodiscard]] std::size_t longest() const { return longest_; }  ///< bytes of the longest token
  /// What stands for a byte that no other token covers: its byte token, or (SentencePiece) the unknown token. Unigram:
  /// kNoToken for all of them unless the vocabulary has all 256.
  [[nodiscard]] TokenId byte_token(std::uint8_t byte) const { return bytes_.at(byte); }

  [[nodiscard]] TokenId bos() const { return bos_; }
  [[nodiscard]] TokenId eos() const { return eos_; }  ///< WordPiece: the separator, which ends a text there
  [[nodiscard]] TokenId unknown() const { return unknown_; }
  [[nodiscard]] bool add_bos() const { return add_bos_; }
  [[nodiscard]] bool add_eos() const { return add_eos_; }
  [[nodiscard]] bool add_space_prefix() const { return add_space_prefix_; }
  [[nodiscard]] const std::vector<TokenId>& ends() const { return ends_; }  ///< sorted: they end a generation

  /// Special tokens of one first byte and one length.
  struct SpecialLength {
    std::uint16_t bytes = 0;
    std::bitset<256> last;  ///< bytes that one of them ends with
  };
  /// Those that begin with this byte, longest first.
  [[nodiscard]] const std::vector<SpecialLength>& special_lengths(std::uint8_t first_byte) const {
    return special_lengths_.at(first_byte);
  }
  [[nodiscard]] bool is_special(TokenId id) const {
    return (kind(id) & (kControlToken | kUserToken | kUnknownToken)) != 0;
  }
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  void warn(std::string text) { warnings_.push_back(std::move(text)); }
  void default_add_bos(const loader::Gguf& gguf, bool add);
  /// For a BPE vocabulary that spells bytes as "<0x0A>".
  void find_byte_tokens();

 private:
  void read_model(const loader::Gguf& gguf);
  void read_tokens(const loader::Gguf& gguf);
  void read_kinds(const loader::Gguf& gguf);
  void read_special_ids(const loader::Gguf& gguf);
  void find_ends(const loader::Gguf& gguf);
  void settle_ends();
  void strip_rules(const loader::Gguf& gguf);
  void collect_special();
  void find_bytes();
  [[nodiscard]] TokenId id_of_key(const loader::Gguf& gguf, std::string_view key, TokenId fallback);
  void make_control(TokenId id);

  VocabularyKind vocabulary_kind_ = VocabularyKind::kByteLevelBpe;
  StringList tokens_;
  HashSlots slots_;
  std::size_t longest_ = 0;
  std::vector<std::uint8_t> kinds_;
  std::array<TokenId, 256> bytes_{};
  TokenId bos_ = kNoToken, eos_ = kNoToken, unknown_ = kNoToken;
  bool add_bos_ = false, add_eos_ = false, add_space_prefix_ = false;
  std::vector<TokenId> ends_;
  std::array<std::vector<SpecialLength>, 256> special_lengths_;
  std::vector<std::string> warnings_;
};

}  // namespace forge::text
