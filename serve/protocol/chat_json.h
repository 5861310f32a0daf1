#pragma once
// The members of a chat request that make the conversation: messages, tools and the choice of tools. Source: OpenAI's
// API reference; what clients send back of models' answers also from vLLM and llama.cpp.

#include <string>
#include <string_view>

#include "serve/protocol/json_fields.h"
#include "serve/protocol/request_json.h"

namespace forge::serve {

/// Takes messages, tools, tool_choice, parallel_tool_calls and the template's variables, and sets the body's members
/// that come of them.
void read_conversation(Fields& fields, ChatBody& body);

/// True if a call of a tool of this name can be told from other text (text/answer).
[[nodiscard]] bool is_callable_name(std::string_view name);

}  // namespace forge::serve
