#include "tools/prompt.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "loader/chat/chat.h"
#include "support/error.h"
#include "tools/console.h"
#include "tools/options.h"

namespace forge::tools {
namespace {

namespace chat = loader::chat;

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";

std::string render(std::string_view source, const loader::Tokenizer& tokenizer, std::span<const Message> messages) {
  const auto parsed = chat::ChatTemplate::parse(source);
  std::vector<chat::Value> values;
  try {
    for (const auto& [role, content] : messages) values.push_back(chat::make_message(role, content));
  } catch (const chat::EvalError& error) {
    throw Error(ErrorCode::kPrompt, "the prompt cannot be used", error.what(), "give valid UTF-8");
  }
  chat::ChatRequest request;
  request.messages = chat::Value::list(std::move(values));
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

bool uses_template(const loader::Gguf& file, const PromptOptions& options) {
  const bool present = file.find<std::string_view>(kTemplateKey).has_value();
  if (options.system && (options.raw || !present))
    throw Error(ErrorCode::kUsage, "--system cannot be used here",
                options.raw ? "--raw gives the prompt as it stands" : "the model has no chat template",
                "put the text into the prompt");
  if (!options.raw && !present) note("note: the model has no chat template: the prompt is given as it stands");
  return !options.raw && present;
}

std::vector<std::int32_t> encode_messages(const loader::Gguf& file, const loader::Tokenizer& tokenizer,
                                          std::span<const Message> messages, bool raw) {
  const auto source = file.find<std::string_view>(kTemplateKey);
  std::string text;
  if (!raw && source)
    text = render(*source, tokenizer, messages);
  else
    for (const auto& message : messages) text += message.content;
  auto ids = tokenizer.encode(text, {.add_special = false, .parse_special = true});
  const auto bos = tokenizer.bos();
  if (tokenizer.add_bos() && bos >= 0 && (ids.empty() || ids.front() != bos)) ids.insert(ids.begin(), bos);
  return ids;
}

std::vector<std::int32_t> encode_prompt(const loader::Gguf& file, const loader::Tokenizer& tokenizer,
                                        std::string_view text, const PromptOptions& options) {
  std::vector<Message> messages;
  if (uses_template(file, options) && options.system) messages.push_back({"system", *options.system});
  messages.push_back({"user", std::string(text)});
  return encode_messages(file, tokenizer, messages, options.raw);
}

void show_prompt(const loader::Tokenizer* tokenizer, std::span<const std::int32_t> ids) {
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

void check_known(std::span<const std::int32_t> ids, std::size_t vocab) {
  if (std::ranges::any_of(ids, [&](std::int32_t id) { return static_cast<std::size_t>(id) >= vocab; }))
    throw Error(ErrorCode::kTokenizer, "the prompt has tokens that the model does not know",
                fmt::format("its vocabulary has more than the {} rows of its embedding", vocab),
                "the model file is broken: fetch it again");
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
