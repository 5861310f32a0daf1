// Builds the template's context from a ChatRequest.
#include "text/chat/chat.h"

#include "support/error.h"

namespace forge::text {

Value make_message(std::string role, std::string content) {
  Dict message;
  message.set("role", Value::string(std::move(role)));
  message.set("content", Value::string(std::move(content)));
  return Value::dict(std::move(message));
}

std::string render_chat(const ChatTemplate& chat_template, const ChatRequest& request, const RenderLimits& limits) {
  Dict context = request.extra;
  try {
    context.set("messages", request.messages);
    context.set("tools", request.tools);
    // Hugging Face always passes `documents`, so it is None rather than undefined.
    if (context.find("documents") == nullptr) context.set("documents", Value());
    context.set("add_generation_prompt", Value::boolean(request.add_generation_prompt));
    context.set("bos_token", Value::string(request.bos_token));
    context.set("eos_token", Value::string(request.eos_token));
  } catch (const EvalError& error) {
    throw Error(ErrorCode::kPrompt, "the conversation cannot be used", error.what());
  }
  return chat_template.render(context, request.now, limits);
}

}  // namespace forge::text
