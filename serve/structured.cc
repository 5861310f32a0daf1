#include "serve/structured.h"

#include <utility>

#include "support/error.h"

namespace forge::serve {

Read<MakeConstraint> StructuredAnswers::start(const StructuredOutput& output, std::optional<std::string_view> prompt) {
  std::optional<session::ConstraintGate> gate;
  if (prompt && !chat_template_.empty()) {
    std::call_once(once_, [&] { format_ = session::answer_format_of(tokenizer_, chat_template_); });
    gate = session::reasoning_gate(format_, *prompt);
  }
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

}  // namespace forge::serve
