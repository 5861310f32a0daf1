#pragma once
// The prompt as the command line of forge-run gives it: -p, -f, standard input, --tokens.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "session/prompt.h"

namespace forge::tools {

inline constexpr std::size_t kPromptBytesMax = std::size_t{64} << 20;

/// The user's text. Errors: kIo, kUsage for both -p and -f, kPrompt when it is no UTF-8 or too long.
[[nodiscard]] std::string read_prompt(const session::PromptOptions& options);

/// Writes the text of `ids` to stderr, special tokens as they are spelled, under a line with their number. Lines stay
/// lines; other control characters are shown as escapes. Without a tokenizer the number alone.
void show_prompt(const text::Tokenizer* tokenizer, std::span<const std::int32_t> ids);

/// "1,2,3" -> ids. Errors: kUsage for what is no list of numbers, or an id outside [0, vocab).
[[nodiscard]] std::vector<std::int32_t> parse_tokens(std::string_view text, std::size_t vocab);

}  // namespace forge::tools
