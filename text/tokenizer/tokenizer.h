#pragma once
// Text to token ids and back, with the vocabulary inside a GGUF file. This is the interface that the rest of forge
// uses; the algorithms are in bpe.h, sentencepiece.h, unigram.h, wordpiece.h, rwkv.h and plamo2.h.
//
// What encode() does:
//    text --special_split--> fragments --pre-tokenizer--> words --BPE, Unigram, WordPiece, ...--> ids

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loader/gguf/gguf.h"

namespace forge::text {

/// Options of Tokenizer::encode().
struct EncodeOptions {
  bool add_special = false;    ///< add BOS and EOS if the model was trained with them
  bool parse_special = false;  ///< text that spells a control token becomes that token, not only user-defined ones
};

/// The tokenizer of one model. tokenizer.ggml.model chooses the algorithm: 'gpt2', 'gemma4' and 'whitespace' BPE with a
/// list of merges, 'llama' SentencePiece BPE, 't5' SentencePiece Unigram, 'bert' WordPiece, 'rwkv' the longest match,
/// 'plamo2' a unigram model of its own.
/// Immutable once open, so any number of threads may use it at the same time.
class Tokenizer {
 public:
  /// Reads the vocabulary. `gguf` must outlive the tokenizer, because token texts are read in place. Errors: kTokenizer
  /// if the vocabulary is missing, broken or of an unknown kind; kModelFormat for keys of the wrong type.
  static std::unique_ptr<Tokenizer> open(const loader::Gguf& gguf);
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// The ids of `text`, which may hold any bytes, NUL included. Where a byte is not UTF-8, byte-level BPE reads U+FFFD,
  /// SentencePiece BPE takes a byte token, Unigram and PLaMo 2 read U+FFFD, WordPiece drops it and RWKV takes it as it
  /// is. Unigram and WordPiece also normalise the text first. A byte for which a byte-level vocabulary has no token is
  /// left out, as in llama.cpp. Error: kPrompt for more than 256 MiB.
  [[nodiscard]] virtual std::vector<std::int32_t> encode(std::string_view text, EncodeOptions options = {}) const = 0;

  /// The ids of two texts as one input, for rerankers: BOS first EOS SEP second EOS, each special token if the model
  /// was trained with it. BERT's SEP is the EOS of this interface and separates alone: [CLS] first [SEP] second [SEP].
  /// Errors: those of encode.
  [[nodiscard]] virtual std::vector<std::int32_t> encode_pair(std::string_view first,
                                                              std::string_view second) const = 0;

  /// The bytes that a token stands for, possibly only a part of a character. Empty for ids outside the vocabulary and,
  /// unless `special`, for control and unknown tokens. For a stream of generated tokens use Detokenizer.
  [[nodiscard]] virtual std::string decode_piece(std::int32_t id, bool special = false) const = 0;
  /// The text that encode() makes these ids of. Drops the space that SentencePiece adds at the start of a text and
  /// after control and user-defined tokens. Not for a model's answer, which continues a text: use Detokenizer there.
  [[nodiscard]] virtual std::string decode(std::span<const std::int32_t> ids, bool special = false) const = 0;

  /// A token as the vocabulary spells it; empty for ids outside it.
  [[nodiscard]] virtual std::string_view token_text(std::int32_t id) const = 0;
  /// True for tokens that structure a conversation, such as <|im_start|>, rather than being text.
  [[nodiscard]] virtual bool is_control(std::int32_t id) const = 0;

  /// The tokens that end an answer: EOS, EOT, EOM, and tokens that are known by their text. Ascending.
  [[nodiscard]] virtual const std::vector<std::int32_t>& end_of_generation() const = 0;
  [[nodiscard]] virtual std::int32_t bos() const = 0;  ///< -1 if there is none
  [[nodiscard]] virtual std::int32_t eos() const = 0;  ///< -1 if there is none
  [[nodiscard]] virtual bool add_bos() const = 0;      ///< whether add_special adds it
  [[nodiscard]] virtual bool add_eos() const = 0;      ///< whether add_special adds it
  [[nodiscard]] virtual std::int32_t vocab_size() const = 0;
  /// The algorithm in a few words: "byte-level BPE, words as 'llama-bpe'".
  [[nodiscard]] virtual std::string describe() const = 0;
  /// What had to be assumed about this file, one line each. To be shown to the user once.
  [[nodiscard]] virtual const std::vector<std::string>& warnings() const = 0;

 protected:
  Tokenizer() = default;
};

}  // namespace forge::text
