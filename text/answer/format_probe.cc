#include "text/answer/format_probe.h"

#include <algorithm>

#include "support/error.h"
#include "support/json_text.h"
#include "text/chat/chat.h"

namespace forge::text {
namespace {

constexpr std::string_view kUser = "forge-probe-question", kContent = "Zebra forge content",
                           kThought = "Quiet forge thought", kName = "forge_probe_tool", kKey = "forge_probe_key",
                           kValue = "forge-probe-value";
constexpr std::string_view kTools =
    R"([{"type": "function", "function": {"name": "forge_probe_tool", "description": "A tool.", "parameters": {)"
    R"("type": "object", "properties": {"forge_probe_key": {"type": "string", "description": "A text."}}, )"
    R"("required": []}}}])";
constexpr RenderLimits kLimits{
    .steps_max = 1'000'000, .depth_max = 1000, .output_bytes_max = 1U << 20, .memory_bytes_max = 64U << 20};

class Prober {
 public:
  Prober(const ChatTemplate& chat_template, std::string_view bos, std::string_view eos)
      : template_(chat_template), bos_(bos), eos_(eos) {}

  /// The rendering after the user's message, which is the first of two; `answer` is JSON, or empty.
  [[nodiscard]] std::string after_user(const std::string& answer, bool prompt, bool tools) const {
    std::string json = R"({"messages": [{"role": "user", "content": ")" + std::string(kUser) + "\"}";
    if (!answer.empty()) json += ", " + answer;
    json += "], \"add_generation_prompt\": ";
    json += prompt ? "true" : "false";
    if (tools) json += ", \"tools\": " + std::string(kTools);
    json += ", \"bos_token\": " + json_string(bos_) + ", \"eos_token\": " + json_string(eos_);
    if (prompt) json += ", \"enable_thinking\": true";
    json += R"(, "now": "2026-01-15T12:30:00", "functions": "[]", "datetime": "2026-01-15"})";
    try {
      const std::string text = render_chat(template_, parse_chat_request(json), kLimits);
      const std::size_t at = text.find(kUser);
      return at == std::string::npos ? std::string() : text.substr(at + kUser.size());
    } catch (const Error&) {
      return {};  // it refuses such a conversation
    }
  }

 private:
  const ChatTemplate& template_;
  std::string_view bos_, eos_;
};

/// Members of a message that some template prints as reasoning.
constexpr std::string_view kThoughtMembers =
    R"("reasoning_content": "Quiet forge thought", "reasoning": "Quiet forge thought", )"
    R"("thinking": "Quiet forge thought")";

/// The forms of a message with a call that templates insist on.
struct CallForm {
  bool as_text = false;  ///< arguments as a JSON string
  bool null_content = false;
  bool long_id = false;  ///< an id that has the tool's name in it
};

std::string call_message(CallForm form) {
  const std::string arguments = form.as_text ? R"("{\"forge_probe_key\": \"forge-probe-value\"}")"
                                             : R"({"forge_probe_key": "forge-probe-value"})";
  return std::string(R"({"role": "assistant", "content": )") + (form.null_content ? "null" : R"("")") +
         R"(, "tool_calls": [{"id": ")" + (form.long_id ? "functions.forge_probe_tool:0" : "probe0id1") +
         R"(", "type": "function", "function": {"name": "forge_probe_tool", "arguments": )" + arguments + "}}]}";
}

/// The size of what both texts begin with, without a marker that they share in part.
std::size_t common_size(std::string_view a, std::string_view b) {
  std::size_t size = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  const std::size_t open = a.substr(0, size).find_last_of("<[");
  if (open != std::string_view::npos && a.substr(open, size - open).find_first_of(">]") == std::string_view::npos)
    size = open;
  return size;
}

std::optional<FormatProbe::Call> split_call(std::string_view text, std::size_t begin) {
  const std::size_t name = text.find(kName, begin);
  if (name == std::string_view::npos) return std::nullopt;
  const std::size_t key = text.find(kKey, name);
  const std::size_t value = key == std::string_view::npos ? key : text.find(kValue, key);
  if (value == std::string_view::npos) return std::nullopt;
  const std::size_t name_end = name + kName.size(), key_end = key + kKey.size();
  return FormatProbe::Call{.before = std::string(text.substr(begin, name - begin)),
                           .middle = std::string(text.substr(name_end, key - name_end)),
                           .between = std::string(text.substr(key_end, value - key_end)),
                           .after = std::string(text.substr(value + kValue.size()))};
}

std::optional<FormatProbe::Reasoning> split_reasoning(const std::string& text, std::string_view next) {
  const std::size_t thought = text.find(kThought);
  if (thought == std::string::npos) return std::nullopt;
  const std::size_t end = thought + kThought.size(), after = text.find(next, end);
  if (after == std::string::npos) return std::nullopt;
  return FormatProbe::Reasoning{.before = text.substr(0, thought), .between = text.substr(end, after - end)};
}

}  // namespace

FormatProbe probe_format(std::string_view source, std::string_view bos_token, std::string_view eos_token) {
  FormatProbe out;
  std::optional<ChatTemplate> chat_template;
  try {
    chat_template = ChatTemplate::parse(source);
  } catch (const Error&) {
    return out;  // its markers may still be known
  }
  const Prober prober(*chat_template, bos_token, eos_token);
  const std::string asked = prober.after_user({}, false, false);
  if (const std::string prompt = prober.after_user({}, true, false); prompt.size() > asked.size())
    out.prompt_end = prompt.substr(common_size(prompt, asked));

  const std::string plain =
      prober.after_user(R"({"role": "assistant", "content": "Zebra forge content"})", false, true);
  const std::size_t content = plain.find(kContent);
  for (const CallForm form : {CallForm{},
                              {.as_text = true},
                              {.null_content = true},
                              {.as_text = true, .null_content = true},
                              {.long_id = true},
                              {.as_text = true, .long_id = true}}) {
    const std::string text = prober.after_user(call_message(form), false, true);
    const std::size_t header = common_size(text, plain);
    out.call = split_call(text, header);
    if (!out.call) continue;
    if (content != std::string::npos && content >= header) {
      out.before_content = plain.substr(header, content - header);
      out.after_content = plain.substr(content + kContent.size());
    }
    break;
  }
  // Some templates print reasoning next to calls only.
  std::string beside_call = call_message({});
  beside_call.insert(1, std::string(kThoughtMembers) + ", ");
  const std::string alone =
      R"({"role": "assistant", "content": "Zebra forge content", )" + std::string(kThoughtMembers) + "}";
  out.reasoning = split_reasoning(prober.after_user(alone, false, false), kContent);
  out.reasoning_beside_call = !out.reasoning;
  if (!out.reasoning) out.reasoning = split_reasoning(prober.after_user(beside_call, false, true), kName);
  return out;
}

}  // namespace forge::text
