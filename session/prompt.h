#pragma once
// Converts a user's text or chat messages to the token ids of a prompt: chat template, then tokenizer. Used by
// forge-run and its chat.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/gguf/gguf.h"
#include "text/tokenizer/tokenizer.h"

namespace forge::session {

struct PromptOptions {
  std::optional<std::string> text;    ///< -p
  std::optional<std::string> file;    ///< -f; with neither, stdin
  std::optional<std::string> system;  ///< --system
  bool raw = false;                   ///< --raw: no chat template
};

struct Message {
  std::string role, content;
};

/// Renders the messages with the model's chat template, up to the start of the assistant's answer, and tokenises the
/// result. If `raw`, or if the model has no template, the contents are concatenated instead. BOS and special tokens as
/// in encode_prompt. Errors: kTemplate; kPrompt for invalid UTF-8.
[[nodiscard]] std::vector<std::int32_t> encode_messages(const loader::Gguf& file, const text::Tokenizer& tokenizer,
                                                        std::span<const Message> messages, bool raw);

/// True if the prompt goes through the model's chat template. Prints a note if the model has none and --raw is not
/// given. Errors: kUsage for --system without a template.
bool uses_template(const loader::Gguf& file, const PromptOptions& options);

/// Encodes `text` as a user message in the model's chat template, or as it is if options.raw or the model has no
/// template. If the model wants a BOS token, the ids begin with exactly one. The text of a special token is encoded as
/// that token wherever it occurs, in the template as well as in `text`. Errors: kTemplate; kUsage for a system message
/// without a template.
[[nodiscard]] std::vector<std::int32_t> encode_prompt(const loader::Gguf& file, const text::Tokenizer& tokenizer,
                                                      std::string_view text, const PromptOptions& options);

/// Errors: kTokenizer when an id is not below `vocab`, the number of rows of the model's embedding table.
void check_known(std::span<const std::int32_t> ids, std::size_t vocab);

}  // namespace forge::session
