#pragma once
// Text to token ids and back, on the vocabulary that a GGUF file carries.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loader/gguf/gguf.h"

namespace forge::text {

struct EncodeOptions {
  bool add_special = false;    ///< put BOS and EOS where the model wants them
  bool parse_special = false;  ///< text that spells a control token becomes that token; else only user-defined ones do
};

/// Byte-level BPE (tokenizer.ggml.model 'gpt2'), SentencePiece's BPE ('llama') and unigram ('t5'), WordPiece ('bert').
/// Immutable once open, so any number of threads may encode at once.
class Tokenizer {
 public:
  /// `gguf` must outlive the tokenizer: token texts are read in place. Errors: kTokenizer for a vocabulary that is
  /// missing, of an unknown model or broken; kModelFormat for keys of the wrong type.
  static std::unique_ptr<Tokenizer> open(const loader::Gguf& gguf);
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Any bytes are accepted, NUL included. Byte-level BPE reads a byte that is no UTF-8 as U+FFFD; SentencePiece keeps
  /// it as a byte token. Unigram and WordPiece read what their normalisation makes of a text. A byte
  /// that a byte-level vocabulary has no token for is left out, as in llama.cpp. Error: kPrompt for more than 256 MiB.
  [[nodiscard]] virtual std::vector<std::int32_t> encode(std::string_view text, EncodeOptions options = {}) const = 0;

  /// The bytes that a token stands for; they may be a part of a character. Control and unknown tokens have none unless
  /// `special`. Ids outside the vocabulary have none.
  [[nodiscard]] virtual std::string decode_piece(std::int32_t id, bool special = false) const = 0;
  /// The text that encode makes these ids of: without the space that SentencePiece puts in front of a text, and behind
  /// control and user-defined tokens. What goes on with a text, a model's answer, is a Detokenizer's.
  [[nodiscard]] virtual std::string decode(std::span<const std::int32_t> ids, bool special = false) const = 0;

  /// A token as the vocabulary spells it, empty for ids outside it.
  [[nodiscard]] virtual std::string_view token_text(std::int32_t id) const = 0;
  [[nodiscard]] virtual bool is_control(std::int32_t id) const = 0;

  /// Tokens after which a model is done: EOS, EOT, EOM, and those known by their text. Ascending.
  [[nodiscard]] virtual const std::vector<std::int32_t>& end_of_generation() const = 0;
  [[nodiscard]] virtual std::int32_t bos() const = 0;  ///< -1 when there is none
  [[nodiscard]] virtual std::int32_t eos() const = 0;  ///< -1 when there is none
  [[nodiscard]] virtual bool add_bos() const = 0;
  [[nodiscard]] virtual bool add_eos() const = 0;
  [[nodiscard]] virtual std::int32_t vocab_size() const = 0;
  /// How text becomes tokens, in a few words: "byte-level BPE, words as 'llama-bpe'".
  [[nodiscard]] virtual std::string describe() const = 0;
  /// What was assumed about this file, a line each: to be shown once.
  [[nodiscard]] virtual const std::vector<std::string>& warnings() const = 0;

 protected:
  Tokenizer() = default;
};

}  // namespace forge::text
