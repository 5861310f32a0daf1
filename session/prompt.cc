#include "session/prompt.h"

#include <fmt/format.h>

#include <algorithm>

#include "support/error.h"
#include "support/os/console.h"
#include "text/chat/chat.h"

namespace forge::session {
namespace {

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";

std::string render(std::string_view source, const text::Tokenizer& tokenizer, std::span<const Message> messages) {
  const auto parsed = text::ChatTemplate::parse(source);
  std::vector<text::Value> values;
  try {
    for (const auto& [role, content] : messages) values.push_back(text::make_message(role, content));
  } catch (const text::EvalError& error) {
    throw Error(ErrorCode::kPrompt, "the prompt cannot be used", error.what(), "give valid UTF-8");
  }
  text::ChatRequest request;
  request.messages = text::Value::list(std::move(values));
  request.bos_token = tokenizer.token_text(tokenizer.bos());
  request.eos_token = tokenizer.token_text(tokenizer.eos());
  return text::render_chat(parsed, request);
}

}  // namespace

bool uses_template(const loader::Gguf& file, const PromptOptions& options) {
  const bool present = file.find<std::string_view>(kTemplateKey).has_value();
  if (options.system && (options.raw || !present))
    throw Error(ErrorCode::kUsage, "--system cannot be used here",
                options.raw ? "--raw uses no chat template" : "the model has no chat template",
                "put the text into the prompt");
  if (!options.raw && !present) note("note: the model has no chat template; the prompt is used as it is");
  return !options.raw && present;
}

std::vector<std::int32_t> encode_messages(const loader::Gguf& file, const text::Tokenizer& tokenizer,
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

std::vector<std::int32_t> encode_prompt(const loader::Gguf& file, const text::Tokenizer& tokenizer,
                                        std::string_view text, const PromptOptions& options) {
  std::vector<Message> messages;
  if (uses_template(file, options) && options.system) messages.push_back({"system", *options.system});
  messages.push_back({"user", std::string(text)});
  return encode_messages(file, tokenizer, messages, options.raw);
}

void check_known(std::span<const std::int32_t> ids, std::size_t vocab) {
  if (std::ranges::any_of(ids, [&](std::int32_t id) { return static_cast<std::size_t>(id) >= vocab; }))
    throw Error(ErrorCode::kTokenizer, "the prompt has tokens that the model has no embedding for",
                fmt::format("its vocabulary has more tokens than its embedding table has rows ({})", vocab),
                "the model file is damaged: download or convert it again");
}

}  // namespace forge::session
