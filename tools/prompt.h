#pragma once
// From what a user types to the token ids a model is given.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/gguf.h"
#include "loader/tok/tokenizer.h"

namespace forge::tools {

inline constexpr std::size_t kPromptBytesMax = std::size_t{64} << 20;

struct PromptOptions {
  std::optional<std::string> text;    ///< -p
  std::optional<std::string> file;    ///< -f; with neither, stdin
  std::optional<std::string> system;  ///< --system
  bool raw = false;                   ///< --raw: no chat template
};

/// The user's text. Errors: kIo, kUsage for both -p and -f, kPrompt when it is no UTF-8 or too long.
[[nodiscard]] std::string read_prompt(const PromptOptions& options);

struct Message {
  std::string role, content;
};

/// The messages in the model's chat template, ready for its answer; without one, or when raw, their contents as they
/// stand, one after the other. The rest as encode_prompt.
[[nodiscard]] std::vector<std::int32_t> encode_messages(const loader::Gguf& file, const loader::Tokenizer& tokenizer,
                                                        std::span<const Message> messages, bool raw);

/// Has the model a chat template, and is it used? Says on stderr that there is none. Errors: kUsage for a system text
/// without a template.
bool uses_template(const loader::Gguf& file, const PromptOptions& options);

/// `text` as a user's message in the model's chat template, or as it stands when raw or when the model has no template.
/// BOS comes first where the model wants one, exactly once. Text that spells special tokens becomes them only where
/// the template (or a raw prompt) does. Errors: kTemplate; kUsage for a system text without a template.
[[nodiscard]] std::vector<std::int32_t> encode_prompt(const loader::Gguf& file, const loader::Tokenizer& tokenizer,
                                                      std::string_view text, const PromptOptions& options);

/// Writes the text of `ids` to stderr, special tokens as they are spelled, under a line with their number. Lines stay
/// lines; other control characters are shown as escapes. Without a tokenizer the number alone.
void show_prompt(const loader::Tokenizer* tokenizer, std::span<const std::int32_t> ids);

/// Errors: kTokenizer when an id is not below `vocab`, the rows of the model's embedding.
void check_known(std::span<const std::int32_t> ids, std::size_t vocab);

/// "1,2,3" -> ids. Errors: kUsage for what is no list of numbers, or an id outside [0, vocab).
[[nodiscard]] std::vector<std::int32_t> parse_tokens(std::string_view text, std::size_t vocab);

}  // namespace forge::tools
