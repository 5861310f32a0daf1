// Fuzzes the chat template engine (text/jinja). The input is a template; it is rendered with one conversation that has
// every kind of message, tools and a constant clock. Resource limits are small, so that each run is short. Only
// forge::Error may be thrown, and rendered text must be valid UTF-8.

#include "tests/fuzz/target.h"
#include "text/chat/chat.h"

namespace {

using namespace forge;
using namespace forge::text;
using namespace forge::text::jinja;

constexpr std::string_view kConversation = R"({
  "messages": [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Wie heißt du? <b>\n"}]},
    {"role": "assistant", "content": null, "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "now", "arguments": {"zone": "UTC", "n": [1, 2.5, true]}}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "12:30"},
    {"role": "user", "content": "  Danke ☃  "}],
  "tools": [{"type": "function", "function": {"name": "now", "description": "the time",
    "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}}}],
  "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "now": "2026-01-15T12:30:00",
  "enable_thinking": false})";

constexpr RenderLimits kLimits{
    .steps_max = 100'000, .depth_max = 1000, .output_bytes_max = 1U << 20, .memory_bytes_max = 16U << 20};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ChatRequest request = parse_chat_request(kConversation);
  return fuzz::refuse_or_read([&] {
    const ChatTemplate chat_template = ChatTemplate::parse(fuzz::text_of(data, size));
    const std::string prompt = render_chat(chat_template, request, kLimits);
    fuzz::expect(prompt.size() <= kLimits.output_bytes_max, "more output than allowed");
    (void)Value::string(prompt);  // throws if it is not valid UTF-8
  });
}
