#include "text/answer/format_probe.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "support/error.h"
#include "support/json_text.h"
#include "text/answer/markers.h"
#include "text/chat/chat.h"

namespace forge::text {
namespace {

constexpr std::string_view kUser = "forge-probe-question", kContent = "Zebra forge content",
                           kThought = "Quiet forge thought", kResult = "forge-probe-result",
                           kSystem = "forge-probe-system";
constexpr std::string_view kTools =
    R"([{"type": "function", "function": {"name": "forge_probe_tool", "description": "A tool.", "parameters": {)"
    R"("type": "object", "properties": {"forge_probe_key": {"type": "string", "description": "A text."}, )"
    R"("forge_probe_next": {"type": "string", "description": "Another text."}}, )"
    R"("required": []}}}])";
constexpr RenderLimits kLimits{
    .steps_max = 1'000'000, .depth_max = 1000, .output_bytes_max = 1U << 20, .memory_bytes_max = 64U << 20};

class Prober {
 public:
  Prober(const ChatTemplate& chat_template, std::string_view bos, std::string_view eos)
      : template_(chat_template), bos_(bos), eos_(eos) {}

  /// The rendering after the user's message, which is the first; `answer`: further messages, JSON, or empty.
  [[nodiscard]] std::string after_user(const std::string& answer, bool prompt, bool tools) const {
    std::string messages = R"({"role": "user", "content": ")" + std::string(kUser) + "\"}";
    if (!answer.empty()) messages += ", " + answer;
    const std::string text = render(messages, prompt, tools);
    const std::size_t at = text.find(kUser);
    return at == std::string::npos ? std::string() : text.substr(at + kUser.size());
  }

  /// The whole rendering; empty if the template refuses such a conversation.
  [[nodiscard]] std::string render(const std::string& messages, bool prompt, bool tools) const {
    std::string json = "{\"messages\": [" + messages + "], \"add_generation_prompt\": ";
    json += prompt ? "true" : "false";
    if (tools) json += ", \"tools\": " + std::string(kTools);
    json += ", \"bos_token\": " + json_string(bos_) + ", \"eos_token\": " + json_string(eos_);
    if (prompt) json += ", \"enable_thinking\": true";
    json += R"(, "now": "2026-01-15T12:30:00", "functions": "[]", "datetime": "2026-01-15"})";
    try {
      return render_chat(template_, parse_chat_request(json), kLimits);
    } catch (const Error&) {
      return {};
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
  bool long_id = false;    ///< an id that has the tool's name in it
  bool common_id = false;  ///< an id as OpenAI makes them
};

enum class CallKind : std::uint8_t { kOne, kTwo, kTwoKeys };

std::string call_item(CallForm form, bool second, bool two_keys) {
  std::string arguments = "{\"forge_probe_key\": \"" + std::string(second ? kProbeValue2 : kProbeValue) + "\"";
  if (two_keys) arguments += ", \"forge_probe_next\": \"" + std::string(kProbeValue2) + "\"";
  arguments += '}';
  if (form.as_text) arguments = json_string(arguments);
  std::string id(second ? kProbeId2 : kProbeId);
  if (form.long_id) id = second ? "functions.forge_probe_tool:1" : "functions.forge_probe_tool:0";
  if (form.common_id) id = "call_0AbCdEfGhIjKlMnOpQrStUvW";
  return R"({"id": ")" + id + R"(", "type": "function", "function": {"name": "forge_probe_tool", "arguments": )" +
         arguments + "}}";
}

std::string call_message(CallForm form, CallKind kind = CallKind::kOne) {
  std::string calls = call_item(form, false, kind == CallKind::kTwoKeys);
  if (kind == CallKind::kTwo) calls += ", " + call_item(form, true, false);
  return std::string(R"({"role": "assistant", "content": )") + (form.null_content ? "null" : R"("")") +
         R"(, "tool_calls": [)" + calls + "]}";
}

std::optional<FormatProbe::Call> split_call(std::string_view text, std::size_t begin) {
  const std::size_t name = text.find(kProbeName, begin);
  if (name == std::string_view::npos) return std::nullopt;
  const std::size_t key = text.find(kProbeKey, name);
  const std::size_t value = key == std::string_view::npos ? key : text.find(kProbeValue, key);
  if (value == std::string_view::npos) return std::nullopt;
  const std::size_t name_end = name + kProbeName.size(), key_end = key + kProbeKey.size();
  return FormatProbe::Call{.before = std::string(text.substr(begin, name - begin)),
                           .middle = std::string(text.substr(name_end, key - name_end)),
                           .between = std::string(text.substr(key_end, value - key_end)),
                           .after = std::string(text.substr(value + kProbeValue.size()))};
}

/// `without`: the same without reasoning.
std::optional<FormatProbe::Reasoning> split_reasoning(const std::string& text, const std::string& without,
                                                      std::string_view next) {
  const std::size_t thought = text.find(kThought);
  if (thought == std::string::npos) return std::nullopt;
  const std::size_t end = thought + kThought.size(), after = text.find(next, end);
  if (after == std::string::npos) return std::nullopt;
  return FormatProbe::Reasoning{.before = text.substr(0, thought),
                                .between = text.substr(end, after - end),
                                .common = std::min(common_size(text, without), thought)};
}

/// Whether a call's arguments were printed as Python prints a dict: the template wants them as text.
bool is_repr(const FormatProbe::Call& call) {
  return call.middle.ends_with("{'") && call.between.starts_with("':");
}

/// What the template prints of history. `form`: of the call that it prints, if any.
HistoryForm probe_history(const Prober& prober, const std::optional<CallForm>& form, std::string_view source) {
  HistoryForm history;
  const std::string user = R"({"role": "user", "content": "forge-probe-question"})";
  history.shows_tools = prober.render(user, true, true).contains(kProbeName);
  history.shows_system =
      prober.render(R"({"role": "system", "content": "forge-probe-system"}, )" + user, true, false).contains(kSystem);
  history.knows_developer = source.contains("developer");
  history.shows_calls = form.has_value();
  const CallForm used = form.value_or(CallForm{});
  history.arguments_as_text = used.as_text;
  history.null_content = used.null_content;
  std::string with_content = call_message(used);
  const std::string_view none = used.null_content ? "null" : "\"\"";
  with_content.replace(with_content.find(none), none.size(), "\"Zebra forge content\"");
  const auto shown = prober.after_user(with_content, false, true);
  history.content_beside_calls = !form || (shown.contains(kProbeName) && shown.contains(kContent));
  CallForm common = used;
  common.common_id = true;
  history.short_ids = form && !prober.after_user(call_message(common), false, true).contains(kProbeName);
  const std::string id = used.long_id ? "functions.forge_probe_tool:0" : std::string(kProbeId);
  history.shows_results =
      form &&
      prober
          .after_user(call_message(used) + R"(, {"role": "tool", "name": "forge_probe_tool", "tool_call_id": ")" + id +
                          R"(", "content": ")" + std::string(kResult) + "\"}",
                      true, true)
          .contains(kResult);
  for (const char* const member : {"reasoning_content", "reasoning", "thinking"}) {
    const std::string thought = std::string("\"") + member + "\": \"" + std::string(kThought) + "\", ";
    std::string beside_call = call_message(used);
    beside_call.insert(1, thought);
    const std::string alone = "{" + thought + R"("role": "assistant", "content": "Zebra forge content"})";
    if (!prober.after_user(alone, false, false).contains(kThought) &&
        !prober.after_user(beside_call, false, true).contains(kThought))
      continue;
    history.reasoning = member;
    break;
  }
  return history;
}

}  // namespace

std::size_t common_size(std::string_view a, std::string_view b) {
  std::size_t size = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  const std::size_t open = a.substr(0, size).find_last_of("<[");
  if (open != std::string_view::npos && a.substr(open, size - open).find_first_of(">]") == std::string_view::npos)
    size = open;
  return size;
}

namespace {

/// The forms that templates insist on, the usual one first.
constexpr CallForm kCallForms[] = {{},
                                   {.as_text = true},
                                   {.null_content = true},
                                   {.as_text = true, .null_content = true},
                                   {.long_id = true},
                                   {.as_text = true, .long_id = true}};

/// Fills in what is printed for calls; returns the form of a message that was printed.
std::optional<CallForm> probe_calls(const Prober& prober, FormatProbe& out) {
  const std::string plain =
      prober.after_user(R"({"role": "assistant", "content": "Zebra forge content"})", false, true);
  const std::size_t content = plain.find(kContent);
  std::optional<CallForm> used;
  for (const CallForm form : kCallForms) {
    const std::string text = prober.after_user(call_message(form), false, true);
    const std::size_t header = common_size(text, plain);
    const auto call = split_call(text, header);
    if (!call || (out.call && is_repr(*call))) continue;
    out.call = call;
    used = form;
    const auto rest = [&](CallKind kind) {
      const std::string more = prober.after_user(call_message(form, kind), false, true);
      return more.size() > header ? more.substr(header) : std::string();
    };
    out.two_calls = rest(CallKind::kTwo);
    out.two_keys = rest(CallKind::kTwoKeys);
    if (content != std::string::npos && content >= header) {
      out.before_content = plain.substr(header, content - header);
      out.after_content = plain.substr(content + kContent.size());
    }
    if (!is_repr(*call)) break;
  }
  return used;
}

/// A marker at which the template splits an answer's content, so that the content is not printed as it is.
std::string probe_thought_end(const Prober& prober, std::string_view source) {
  for (const std::string_view split : {"split('", "split(\""}) {
    for (std::size_t at = source.find(split); at != std::string_view::npos; at = source.find(split, at + 1)) {
      const std::string_view rest = source.substr(at + split.size());
      const std::string_view marker = rest.substr(0, marker_size(rest));
      if (marker.empty()) continue;
      const std::string content = std::string(kThought) + std::string(marker) + std::string(kContent);
      // Some templates do so only in earlier turns.
      const std::string answer = R"({"role": "assistant", "content": )" + json_string(content) + "}";
      for (const char* const next : {"", R"(, {"role": "user", "content": "forge-probe-more"})"}) {
        const std::string text = prober.after_user(answer + next, false, false);
        if (text.contains(kContent) && !text.contains(content)) return std::string(marker);
      }
    }
  }
  return {};
}

/// `source` without the statements that change lists and dictionaries in place, which the sandbox refuses: their values
/// are dropped anyway. Empty if there are none.
std::string without_changes(std::string_view source) {
  std::string out(source);
  bool changed = false;
  for (std::size_t at = out.find("{%"); at != std::string::npos; at = out.find("{%", at + 2)) {
    const std::size_t end = out.find("%}", at);
    if (end == std::string::npos) break;
    const std::string_view statement = std::string_view(out).substr(at, end - at);
    const std::size_t equals = statement.find('=');
    const bool changes =
        std::ranges::any_of(std::array<std::string_view, 5>{".append(", ".extend(", ".insert(", ".update(", ".pop("},
                            [&](std::string_view call) { return statement.contains(call); });
    if (!changes || equals == std::string_view::npos || !statement.contains("set ")) continue;
    const std::size_t tail = statement.ends_with('-') ? 1 : 0;
    out.replace(at + equals + 1, end - tail - (at + equals + 1), " 0 ");
    changed = true;
  }
  return changed ? out : std::string();
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
  const std::string user = R"({"role": "user", "content": "forge-probe-question"})";
  out.asked_with_tools = prober.render(user, true, true);
  out.asked = prober.render(user, true, false);
  const std::optional<CallForm> used = probe_calls(prober, out);
  if (const std::string lenient = used ? std::string() : without_changes(source); !lenient.empty()) {
    try {
      const auto other = ChatTemplate::parse(lenient);
      (void)probe_calls(Prober(other, bos_token, eos_token), out);
    } catch (const Error& error) {
      (void)error;  // what is left is no template: then nothing is found
    }
  }
  out.history = probe_history(prober, used, source);
  // Some templates print reasoning next to calls only.
  std::string beside_call = call_message({});
  beside_call.insert(1, std::string(kThoughtMembers) + ", ");
  const std::string alone =
      R"({"role": "assistant", "content": "Zebra forge content", )" + std::string(kThoughtMembers) + "}";
  const std::string content = R"({"role": "assistant", "content": "Zebra forge content"})";
  out.reasoning =
      split_reasoning(prober.after_user(alone, false, false), prober.after_user(content, false, false), kContent);
  out.reasoning_beside_call = !out.reasoning;
  if (!out.reasoning)
    out.reasoning = split_reasoning(prober.after_user(beside_call, false, true),
                                    prober.after_user(call_message({}), false, true), kProbeName);
  if (!out.reasoning) out.thought_end = probe_thought_end(prober, source);
  return out;
}

}  // namespace forge::text
