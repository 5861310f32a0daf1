#pragma once
// Reads forge-run's prompt: -p, -f, stdin, --tokens.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "session/prompt.h"

namespace forge::tools {

inline constexpr std::size_t kPromptBytesMax = std::size_t{64} << 20;

/// The prompt's text from -p, -f or stdin. Errors: kIo; kUsage for both -p and -f; kPrompt above kPromptBytesMax.
[[nodiscard]] std::string read_prompt(const session::PromptOptions& options);

/// --show-prompt: prints the number of tokens and the decoded text of `ids` to stderr. Special tokens are shown by
/// their names and control characters other than newlines as escapes. Without a tokenizer, prints the number alone.
void show_prompt(const text::Tokenizer* tokenizer, std::span<const std::int32_t> ids);

/// Parses "1,2,3". Errors: kUsage if it is not a list of numbers, or if an id is not in [0, vocab).
[[nodiscard]] std::vector<std::int32_t> parse_tokens(std::string_view text, std::size_t vocab);

}  // namespace forge::tools
