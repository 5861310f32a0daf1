#pragma once
// From what a user types to the token ids a model is given.

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

/// The messages in the model's chat template, ready for its answer; without one, or when raw, their contents as they
/// stand, one after the other. The rest as encode_prompt.
[[nodiscard]] std::vector<std::int32_t> encode_messages(const loader::Gguf& file, const text::Tokenizer& tokenizer,
                                                        std::span<const Message> messages, bool raw);

/// Has the model a chat template, and is it used? Says on stderr that there is none. Errors: kUsage for a system text
/// without a template.
bool uses_template(const loader::Gguf& file, const PromptOptions& options);

/// `text` as a user's message in the model's chat template, or as it stands when raw or when the model has no template.
/// BOS comes first where the model wants one, exactly once. Text that spells special tokens becomes them only where
/// the template (or a raw prompt) does. Errors: kTemplate; kUsage for a system text without a template.
[[nodiscard]] std::vector<std::int32_t> encode_prompt(const loader::Gguf& file, const text::Tokenizer& tokenizer,
                                                      std::string_view text, const PromptOptions& options);

/// Errors: kTokenizer when an id is not below `vocab`, the rows of the model's embedding.
void check_known(std::span<const std::int32_t> ids, std::size_t vocab);

}  // namespace forge::session
