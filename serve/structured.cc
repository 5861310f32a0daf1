#include "serve/structured.h"

#include <utility>

#include "support/error.h"
#include "text/answer/call_grammar.h"

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

namespace {

/// Drops the marker of so many bytes from the beginning of the first call.
void drop_marker(std::vector<text::CallPiece>& pieces, std::size_t size) {
  if (pieces.empty()) return;
  if (pieces[0].kind != text::CallPiece::Kind::kChoice) {
    pieces[0].text.erase(0, size);
    return;
  }
  for (auto& part : pieces[0].parts) part[0].text.erase(0, size);
}

}  // namespace

Read<MakeConstraint> StructuredAnswers::start_calls(const ChatBody& body, const text::AnswerFormat& format,
                                                    std::span<const std::int32_t> shown, std::string_view prompt) {
  const auto kind = body.tool_choice.kind;
  const bool forced = kind == ToolChoice::Kind::kRequired || kind == ToolChoice::Kind::kNamed;
  if (!forced && !(kind == ToolChoice::Kind::kAuto && body.strict_tools)) return MakeConstraint();
  const bool several = body.parallel_tool_calls && kind != ToolChoice::Kind::kNamed;
  try {
    auto pieces = text::call_grammar(format.layout, body.tools, body.tool_choice.name, several);
    std::optional<session::ConstraintGate> gate;
    if (forced) {
      gate = session::reasoning_gate(format, prompt);
      if (format.channels) gate.reset();
    } else {
      // The first call begins with a marker; what comes before it is free.
      for (const auto& opener : format.openers)
        if (!gate && format.layout.open.starts_with(opener))
          gate = session::ConstraintGate{.markers = {opener}, .opener = {}, .may_end = true};
      if (!gate) return MakeConstraint();
      drop_marker(pieces, gate->markers[0].size());
    }
    if (pieces.empty())
      return std::unexpected(
          bad_request("not_supported", "the calls of this model cannot be constrained", "tool_choice"));
    std::vector<std::string> ends;
    for (const auto id : tokenizer_.end_of_generation()) ends.emplace_back(tokenizer_.token_text(id));
    text::trim_literals(pieces, gate ? std::string_view() : prompt, ends);
    std::call_once(calls_once_, [&] {
      calls_ = std::make_unique<session::Constraints>(tokenizer_, vocab_, session::Constraints::kBytesMax,
                                                      std::vector(shown.begin(), shown.end()));
    });
    return [this, compiled = calls_->compile({text::constraint::ConstraintSyntax::kCalls, text::pieces_json(pieces)}),
            gate = std::move(gate)] { return calls_->start(compiled, gate ? &*gate : nullptr); };
  } catch (const Error& error) {
    auto refused = error_of(error);
    if (refused.status == 400) refused.param = "tools";
    return std::unexpected(std::move(refused));
  }
}

}  // namespace forge::serve
