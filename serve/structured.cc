#include "serve/structured.h"

#include <fmt/format.h>

#include <utility>

#include "session/constraint/call_rules.h"
#include "support/error.h"

namespace forge::serve {

Read<MakeConstraint> StructuredAnswers::start(const StructuredOutput& output, const text::AnswerFormat& format,
                                              std::optional<std::string_view> prompt) {
  std::optional<session::ConstraintGate> gate;
  if (prompt) gate = session::reasoning_gate(format, *prompt);
  try {
    return [this, compiled = constraints_.compile(output.source), gate = std::move(gate)] {
      return constraints_.start(compiled, gate ? &*gate : nullptr);
    };
  } catch (const Error& error) {
    auto refused = error_of(error);
    if (refused.status == 400) refused.param = output.member;
    return std::unexpected(std::move(refused));
  }
}

Read<MakeConstraint> StructuredAnswers::start_calls(const ChatBody& body, const text::AnswerFormat& format,
                                                    std::span<const std::int32_t> shown, std::string_view prompt) {
  const auto kind = body.tool_choice.kind;
  const bool forced = kind == ToolChoice::Kind::kRequired || kind == ToolChoice::Kind::kNamed;
  const bool offers = kind == ToolChoice::Kind::kAuto && !body.tools.empty();
  const auto* answer = offers && body.params.structured ? &*body.params.structured : nullptr;
  if (!forced && answer == nullptr && (!offers || body.strict_tools.empty())) return MakeConstraint();
  if (answer != nullptr && answer->source.syntax != text::constraint::ConstraintSyntax::kJsonSchema)
    return std::unexpected(bad_request(
        "not_supported", fmt::format("tools that may be called and {} cannot be used together", answer->member),
        answer->member));
  session::OfferedCalls offered{.tools = body.tools,
                                .only = body.tool_choice.name,
                                .several = body.parallel_tool_calls && kind != ToolChoice::Kind::kNamed};
  if (!forced) offered.strict = body.strict_tools;
  if (answer != nullptr) offered.answer = answer->source.text;
  std::vector<std::string> ends;
  for (const auto id : tokenizer_.end_of_generation()) ends.emplace_back(tokenizer_.token_text(id));
  try {
    auto rules = forced || answer != nullptr ? session::required_calls(format, offered, prompt, ends)
                                             : session::optional_calls(format, offered, prompt, ends);
    if (rules.pieces.empty() && answer != nullptr)
      return std::unexpected(bad_request(
          "not_supported",
          fmt::format("this model's calls cannot be told from JSON, so tools and {} cannot be used together",
                      answer->member),
          answer->member));
    if (rules.pieces.empty())
      return std::unexpected(bad_request("not_supported", "the calls of this model cannot be constrained",
                                         forced ? "tool_choice" : "tools"));
    std::call_once(calls_once_, [&] {
      calls_ = std::make_unique<session::Constraints>(tokenizer_, vocab_, session::Constraints::kBytesMax,
                                                      std::vector(shown.begin(), shown.end()));
    });
    return [this,
            compiled = calls_->compile({text::constraint::ConstraintSyntax::kCalls, text::pieces_json(rules.pieces)}),
            gate = std::move(rules.gate)] { return calls_->start(compiled, gate ? &*gate : nullptr); };
  } catch (const Error& error) {
    auto refused = error_of(error);
    if (refused.status == 400) refused.param = answer != nullptr ? answer->member : "tools";
    return std::unexpected(std::move(refused));
  }
}

}  // namespace forge::serve
