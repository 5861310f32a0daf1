#include "tools/run/prompt_input.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <limits>

#include "support/error.h"
#include "support/os/console.h"
#include "tools/cli/options.h"

namespace forge::tools {

std::string read_prompt(const session::PromptOptions& options) {
  if (options.text && options.file)
    throw Error(ErrorCode::kUsage, "-p and -f are both given", {}, "give the prompt once");
  if (options.text) return *options.text;
  if (!options.file && ::isatty(STDIN_FILENO) == 1) note("type the prompt and end it with Ctrl-D:");
  auto text = read_text(options.file.value_or("-"), kPromptBytesMax);
  if (text.ends_with('\n')) text.pop_back();  // a text file ends with a newline; it is not part of the prompt
  return text;
}

void show_prompt(const text::Tokenizer* tokenizer, std::span<const std::int32_t> ids) {
  note(fmt::format("the prompt has {} tokens{}", ids.size(), tokenizer == nullptr ? "" : ":"));
  if (tokenizer == nullptr) return;
  const std::string text = tokenizer->decode(ids, true);
  std::string shown;
  for (std::string_view rest = text;;) {
    const std::size_t end = rest.find('\n');
    shown += printable(rest.substr(0, end), std::string::npos) + '\n';
    if (end == rest.npos) break;
    rest.remove_prefix(end + 1);
  }
  (void)std::fwrite(shown.data(), 1, shown.size(), stderr);
}

std::vector<std::int32_t> parse_tokens(std::string_view text, std::size_t vocab) {
  std::vector<std::int32_t> ids;
  for (const auto id : parse_integers("--tokens", text, 0, std::numeric_limits<std::int32_t>::max())) {
    if (static_cast<std::size_t>(id) >= vocab)
      throw Error(ErrorCode::kUsage, fmt::format("--tokens: {} is not in the vocabulary", id),
                  fmt::format("ids are 0 to {}", vocab - 1), "give ids of this model");
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

}  // namespace forge::tools
