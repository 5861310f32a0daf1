#include "text/tokenizer/vocabulary.h"

#include <fmt/core.h>

#include <algorithm>

#include "support/error.h"

namespace forge::text {
namespace {

constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::size_t kSpecialBytesMax = 512;

/// Tokens that end a generation whatever the file's keys say. adjust_end_tokens() has the exceptions.
constexpr std::string_view kEndTexts[] = {"<|eot_id|>",
                                          "<|im_end|>",
                                          "<|end|>",
                                          "<|return|>",
                                          "<|call|>",
                                          "<|flush|>",
                                          "<|calls|>",
                                          "</s>",
                                          "<end_of_turn>",
                                          "<eos>",
                                          "<turn|>",
                                          "<|tool_response>",
                                          "<|endoftext|>",
                                          "<|eom_id|>",
                                          "<EOT>",
                                          "_<EOT>",
                                          "[EOT]",
                                          "[EOS]",
                                          "[e~[",
                                          "<|end_of_text|>",
                                          "<end_of_utterance>",
                                          "<｜end▁of▁sentence｜>"};
/// Fill-in-the-middle tokens that also end a generation: padding, repository and file separators.
constexpr std::string_view kFillEndTexts[] = {"<|fim_pad|>", "<fim-pad>",     "<fim_pad>",   "<PAD>",
                                              "[PAD]",       "<|fim_repo|>",  "<fim-repo>",  "<REPO>",
                                              "<reponame>",  "<|repo_name|>", "<|file_sep|>"};
/// Fill-in-the-middle tokens that do not end a generation, but are control tokens whatever tokenizer.ggml.token_type
/// says.
constexpr std::string_view kFillTexts[] = {
    "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>",
    "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>",  "<SUF>", "▁<SUF>", "<|code_suffix|>",
    "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>",   "<MID>", "▁<MID>", "<|code_middle|>"};

[[noreturn]] void broken(std::string what, std::string why) {
  throw Error(ErrorCode::kTokenizer, std::move(what), std::move(why), "convert the model again");
}

/// tokenizer.ggml.token_type counts from 1: normal, unknown, control, user-defined, unused, byte.
std::uint8_t kind_of_type(std::int64_t type) {
  constexpr std::array<std::uint8_t, 7> kKinds{0,          kNormalToken, kUnknownToken, kControlToken,
                                               kUserToken, kUnusedToken, kByteToken};
  return type >= 0 && type < static_cast<std::int64_t>(kKinds.size()) ? kKinds.at(static_cast<std::size_t>(type)) : 0;
}

}  // namespace

void throw_text_too_large(std::size_t bytes) {
  throw Error(ErrorCode::kPrompt, fmt::format("the text has {} bytes", bytes),
              fmt::format("at most {} are tokenized at once", kTextBytesMax), "shorten it");
}

Vocabulary::Vocabulary(const loader::Gguf& gguf) {
  read_model(gguf);
  read_tokens(gguf);
  read_kinds(gguf);
  read_special_ids(gguf);
  find_end_tokens(gguf);
  adjust_end_tokens();
  set_strip_rules(gguf);
  collect_special();
  find_bytes();
}

// The defaults of each algorithm, as in llama.cpp. The ids are those of the original vocabularies.
void Vocabulary::read_model(const loader::Gguf& gguf) {
  const auto model = gguf.find<std::string_view>("tokenizer.ggml.model");
  if (!model || *model == "none" || *model == "no_vocab")
    throw Error(ErrorCode::kTokenizer, "the model has no tokenizer", "tokenizer.ggml.model is missing or 'none'",
                "give token ids, or a file that was converted with its vocabulary");
  if (*model == "gpt2" || *model == "gemma4" || *model == "whitespace") {
    vocabulary_kind_ = VocabularyKind::kByteLevelBpe;
  } else if (*model == "llama") {
    vocabulary_kind_ = VocabularyKind::kSentencePiece;
    add_bos_ = add_space_prefix_ = true;
    bos_ = 1;
    eos_ = 2;
    unknown_ = 0;
  } else if (*model == "t5") {
    vocabulary_kind_ = VocabularyKind::kUnigram;
    add_eos_ = true;
    eos_ = 1;
    unknown_ = 2;
  } else if (*model == "bert") {
    vocabulary_kind_ = VocabularyKind::kWordPiece;
    add_bos_ = add_eos_ = true;
    bos_ = 101;
    eos_ = 102;
    unknown_ = 100;
  } else if (*model == "rwkv") {
    vocabulary_kind_ = VocabularyKind::kRwkv;
  } else if (*model == "plamo2") {
    vocabulary_kind_ = VocabularyKind::kPlamo2;
    bos_ = 1;
    eos_ = 2;
    unknown_ = 0;
  } else {
    throw Error(ErrorCode::kTokenizer, fmt::format("unknown tokenizer model '{}'", printable(*model)),
                "forge has byte-level BPE ('gpt2'), BPE of UTF-8 ('gemma4', 'whitespace'), SentencePiece's BPE "
                "('llama') and unigram ('t5'), WordPiece ('bert'), RWKV's ('rwkv'), PLaMo 2's ('plamo2')",
                "use a model with one of these");
  }
  add_space_prefix_ = gguf.get<bool>("tokenizer.ggml.add_space_prefix", add_space_prefix_);
}

void Vocabulary::read_tokens(const loader::Gguf& gguf) {
  const loader::GgufValue* array = gguf.find_value(kTokensKey);
  if (array == nullptr) broken("the model has no vocabulary", fmt::format("'{}' is missing", kTokensKey));
  tokens_ = StringList(*array, kTokensKey);
  if (tokens_.size() == 0) broken("the vocabulary is empty", fmt::format("'{}' has no strings", kTokensKey));
  slots_ = HashSlots(tokens_.size());
  for (std::uint32_t id = 0; id < tokens_.size(); ++id) {
    const auto text = tokens_[id];
    if (text.empty()) continue;  // padding of some converters; such a token can be decoded but is never found
    longest_ = std::max(longest_, text.size());
    const auto duplicate = slots_.insert(hash_of(text), id, [&](std::uint32_t i) { return tokens_[i] == text; });
    if (duplicate != HashSlots::kNone)
      broken(fmt::format("token '{}' occurs twice", printable(text)),
             fmt::format("it has the ids {} and {}", duplicate, id));
  }
}

TokenId Vocabulary::find(std::string_view text, std::uint64_t hash) const {
  const auto at = slots_.find(hash, [&](std::uint32_t i) { return tokens_[i] == text; });
  return at == HashSlots::kNone ? kNoToken : static_cast<TokenId>(at);
}

void Vocabulary::read_kinds(const loader::Gguf& gguf) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  kinds_.assign(tokens_.size(), kNormalToken);
  const loader::GgufValue* types = gguf.find_value(kKey);
  if (types == nullptr) return;
  if (!types->is_array() || (types->element != loader::GgufType::kI32 && types->element != loader::GgufType::kU32) ||
      types->count < tokens_.size())
    broken(fmt::format("'{}' is {}", kKey, types->describe()),
           fmt::format("an i32 for each of the {} tokens is expected", tokens_.size()));
  for (std::uint32_t id = 0; id < tokens_.size(); ++id) {
    std::int32_t type = 0;
    std::memcpy(&type, types->bytes.data() + std::size_t{id} * sizeof type, sizeof type);
    kinds_[id] = kind_of_type(type);
  }
}

// The token id that a key gives, or `fallback` if the key is missing or -1 (also as an unsigned 32-bit number). An id
// outside the vocabulary is ignored with a warning.
TokenId Vocabulary::id_of_key(const loader::Gguf& gguf, std::string_view key, TokenId fallback) {
  if (fallback >= size()) fallback = kNoToken;
  const auto stated = gguf.find<std::int64_t>(key);
  if (!stated || *stated == -1 || *stated == UINT32_MAX) return fallback;
  if (*stated >= 0 && *stated < size()) return static_cast<TokenId>(*stated);
  warn(fmt::format("{} is {}, but the vocabulary has {} tokens; {} is used", key, *stated, size(),
                   fallback == kNoToken ? "none" : std::to_string(fallback)));
  return fallback;
}

void Vocabulary::read_special_ids(const loader::Gguf& gguf) {
  // BERT encloses a text in CLS and SEP. ("seperator" is how GGUF spells the key.)
  const bool bert = vocabulary_kind_ == VocabularyKind::kWordPiece;
  if (bert) bos_ = id_of_key(gguf, "tokenizer.ggml.cls_token_id", bos_);
  bos_ = id_of_key(gguf, "tokenizer.ggml.bos_token_id", bos_);
  eos_ = id_of_key(gguf, bert ? "tokenizer.ggml.seperator_token_id" : "tokenizer.ggml.eos_token_id", eos_);
  unknown_ = id_of_key(gguf, "tokenizer.ggml.unknown_token_id", unknown_);
  default_add_bos(gguf, add_bos_);
  const std::string_view key = bert ? "tokenizer.ggml.add_sep_token" : "tokenizer.ggml.add_eos_token";
  add_eos_ = gguf.get<bool>(key, add_eos_);
  if (add_eos_ && eos_ == kNoToken) {
    if (gguf.has(key)) warn(fmt::format("{} is true, but there is no such token; none is added", key));
    add_eos_ = false;
  }
  // A file that names the token and does not say whether to add it was converted before the second key existed.
  if (bert) return;
  separator_ = id_of_key(gguf, "tokenizer.ggml.seperator_token_id", kNoToken);
  add_separator_ = separator_ != kNoToken && gguf.get<bool>("tokenizer.ggml.add_sep_token", true);
}

void Vocabulary::default_add_bos(const loader::Gguf& gguf, bool add) {
  add_bos_ = gguf.get<bool>("tokenizer.ggml.add_bos_token", add);
  if (add_bos_ && bos_ == kNoToken) {
    if (gguf.has("tokenizer.ggml.add_bos_token"))
      warn("tokenizer.ggml.add_bos_token is true, but there is no BOS token; none is added");
    add_bos_ = false;
  }
}

void Vocabulary::make_control(TokenId id) {
  kinds_[static_cast<std::uint32_t>(id)] |= kControlToken;
}

// Collects the tokens that end a generation, by their texts and by the file's keys, and makes them control tokens.
void Vocabulary::find_end_tokens(const loader::Gguf& gguf) {
  for (const auto list :
       {std::span<const std::string_view>(kEndTexts), std::span<const std::string_view>(kFillEndTexts)})
    for (const auto text : list)
      if (const TokenId id = find(text); id != kNoToken) {
        make_control(id);
        end_tokens_.push_back(id);
      }
  for (const auto text : kFillTexts)
    if (const TokenId id = find(text); id != kNoToken) make_control(id);
  if (eos_ != kNoToken) end_tokens_.push_back(eos_);
  for (const auto key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    if (const TokenId id = id_of_key(gguf, key, kNoToken); id != kNoToken) end_tokens_.push_back(id);
  // The tokens of the Harmony format (gpt-oss) are part of the text that is shown.
  for (const auto text : {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"})
    if (const TokenId id = find(text); id != kNoToken) kinds_[static_cast<std::uint32_t>(id)] = kUserToken;
}

/// Exceptions: in Harmony-like vocabularies <|end|> only ends a message, not the generation, and where <|tool_response>
/// exists </s> is ordinary text.
void Vocabulary::adjust_end_tokens() {
  const auto has = [&](std::string_view text) { return find(text) != kNoToken; };
  const auto drop = [&](std::string_view text, std::uint8_t kind) {
    const TokenId id = find(text);
    if (id == kNoToken) return;
    std::erase(end_tokens_, id);
    kinds_[static_cast<std::uint32_t>(id)] = kind;
  };
  const bool calls = has("<|call|>") || has("<|calls|>");
  if (calls && (has("<|return|>") || has("<|flush|>"))) drop("<|end|>", kUserToken);
  if (has("<|tool_response>")) drop("</s>", kNormalToken);
  std::ranges::sort(end_tokens_);
  end_tokens_.erase(std::ranges::unique(end_tokens_).begin(), end_tokens_.end());
}

/// Some tokenizers drop the white space next to special tokens. GGUF has no key for that, so it goes by the model's
/// name, as in llama.cpp: Phi-3 drops it after most special tokens; Jina and Nomic models derived from RoBERTa drop it
/// before <mask>, ModernBERT before [MASK].
void Vocabulary::set_strip_rules(const loader::Gguf& gguf) {
  const auto text_of = [&](std::string_view key) {
    const auto value = gguf.find_value(key);
    std::string text(value == nullptr ? "" : value->to_string().value_or(""));
    std::ranges::transform(text, text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
    return text;
  };
  const auto contains = [](std::string_view text, std::initializer_list<std::string_view> parts) {
    return std::ranges::any_of(parts, [&](std::string_view part) { return text.find(part) != text.npos; });
  };
  const auto strips_left = [&](std::string_view token) {
    if (const TokenId id = find(token); id != kNoToken) kinds_[static_cast<std::uint32_t>(id)] |= kStripsLeft;
  };
  if (contains(text_of("tokenizer.ggml.pre"), {"jina-v2-de", "jina-v2-es", "jina-v2-code"}) ||
      contains(text_of("general.architecture"), {"nomic-bert-moe", "jina-bert-v3"}))
    return strips_left("<mask>");
  const std::string name = text_of("general.name");
  if (contains(name, {"modern-bert"})) return strips_left("[MASK]");
  if (!contains(name, {"phi-3", "phi3"})) return;
  for (TokenId id = 0; id < size(); ++id)
    if (is_special(id)) kinds_[static_cast<std::uint32_t>(id)] |= kStripsRight;
  for (const auto text : {"<unk>", "<s>", "<|endoftext|>"})
    if (const TokenId id = find(text); id != kNoToken)
      kinds_[static_cast<std::uint32_t>(id)] &= static_cast<std::uint8_t>(~kStripsRight);
}

// Builds special_lengths(): for each first byte the lengths in descending order, each with the set of last bytes.
void Vocabulary::collect_special() {
  std::size_t too_long = 0;
  for (TokenId id = 0; id < size(); ++id) {
    if (!is_special(id)) continue;
    const auto text = this->text(id);
    if (text.empty()) continue;
    if (text.size() > kSpecialBytesMax) {
      ++too_long;
      continue;
    }
    auto& lengths = special_lengths_.at(static_cast<unsigned char>(text[0]));
    const auto length = static_cast<std::uint16_t>(text.size());
    auto at = std::ranges::lower_bound(lengths, length, std::ranges::greater{}, &SpecialLength::bytes);
    if (at == lengths.end() || at->bytes != length) at = lengths.insert(at, {.bytes = length, .last = {}});
    at->last.set(static_cast<unsigned char>(text.back()));
  }
  if (too_long != 0)
    warn(fmt::format("{} special tokens are longer than {} bytes; they are not recognised in text", too_long,
                     kSpecialBytesMax));
}

void Vocabulary::find_bytes() {
  bytes_.fill(kNoToken);
  if (vocabulary_kind_ == VocabularyKind::kSentencePiece || vocabulary_kind_ == VocabularyKind::kUnigram)
    find_byte_tokens();
}

void Vocabulary::find_byte_tokens() {
  const bool unigram = vocabulary_kind_ == VocabularyKind::kUnigram;
  int missing = 0;
  for (unsigned byte = 0; byte < 256; ++byte) {
    TokenId id = find(fmt::format("<0x{:02X}>", byte));
    if (id == kNoToken && !unigram) id = find(std::string(1, static_cast<char>(byte)));
    if (id == kNoToken) {
      id = unknown_;
      ++missing;
    }
    bytes_.at(byte) = id;
  }
  if (missing != 0 && unigram)
    return bytes_.fill(kNoToken);  // most have none; the unknown token covers what is missing
  if (missing != 0)
    warn(fmt::format("the vocabulary lacks {} of the 256 byte tokens; {}", missing,
                     unknown_ == kNoToken ? "text with such bytes loses them" : "the unknown token replaces them"));
}

}  // namespace forge::text
