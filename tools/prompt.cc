#include "tools/prompt.h"

#include <fmt/format.h>
#include <unistd.h>

#include <limits>

#include "loader/chat/chat.h"
#include "support/error.h"
#include "tools/console.h"
#include "tools/options.h"

namespace forge::tools {
namespace {

namespace chat = loader::chat;

/// The chat template's text for one turn.
std::string render(std::string_view source, const loader::Tokenizer& tokenizer, std::string_view text,
                   const std::optional<std::string>& system) {
  const auto parsed = chat::ChatTemplate::parse(source);
  std::vector<chat::Value> messages;
  try {
    if (system) messages.push_back(chat::make_message("system", *system));
    messages.push_back(chat::make_message("user", std::string(text)));
  } catch (const chat::EvalError& error) {
    throw Error(ErrorCode::kPrompt, "the prompt cannot be used", error.what(), "give valid UTF-8");
  }
  chat::ChatRequest request;
  request.messages = chat::Value::list(std::move(messages));
  request.bos_token = tokenizer.token_text(tokenizer.bos());
  request.eos_token = tokenizer.token_text(tokenizer.eos());
  return chat::render_chat(parsed, request);
}

}  // namespace

std::string read_prompt(const PromptOptions& options) {
  if (options.text && options.file)
    throw Error(ErrorCode::kUsage, "-p and -f are both given", {}, "give the prompt once");
  if (options.text) return *options.text;
  if (!options.file && ::isatty(STDIN_FILENO) == 1) note("type the prompt, and end it with Ctrl-D:");
  auto text = read_text(options.file.value_or("-"), kPromptBytesMax);
  if (text.ends_with('\n')) text.pop_back();  // the shell's, not the user's
  return text;
}

std::vector<std::int32_t> encode_prompt(const loader::Gguf& file, const loader::Tokenizer& tokenizer,
                                        std::string_view text, const PromptOptions& options) {
  const auto source = file.find<std::string_view>("tokenizer.chat_template");
  const bool chat = !options.raw && source.has_value();
  if (options.system && !chat)
    throw Error(ErrorCode::kUsage, "--system cannot be used here",
                options.raw ? "--raw gives the prompt as it stands" : "the model has no chat template",
                "put the text into the prompt");
  if (!options.raw && !source) note("note: the model has no chat template: the prompt is given as it stands");
  auto ids = tokenizer.encode(chat ? render(*source, tokenizer, text, options.system) : std::string(text),
                              {.add_special = false, .parse_special = true});
  const auto bos = tokenizer.bos();
  if (tokenizer.add_bos() && bos >= 0 && (ids.empty() || ids.front() != bos)) ids.insert(ids.begin(), bos);
  return ids;
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
