#pragma once
// What the calls of an answer must look like, and where in the answer they begin.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "session/constraint/constraints.h"
#include "text/answer/answer_format.h"
#include "text/answer/call_grammar.h"

namespace forge::session {

struct CallRules {
  std::vector<text::CallPiece> pieces;  ///< empty: the calls of this format cannot be constrained
  std::optional<ConstraintGate> gate;
};

/// What is offered and asked for.
struct OfferedCalls {
  std::string_view tools;  ///< OpenAI's list, as JSON
  std::string_view only;   ///< the tool that must be called; empty: any
  bool several = false;    ///< one call or more, else exactly one
  /// Names of the tools whose arguments must obey their schemas, if not those of all.
  std::optional<std::span<const std::string>> strict = std::nullopt;
  std::string_view answer = {};  ///< JSON schema of the answer that may come instead of calls; empty: calls must come
};

/// The rules of an answer that must be calls, or what `offered.answer` says. Empty pieces also where calls are JSON
/// without a marker, which could not be told from such an answer. Reasoning may come before, if the model reasons.
/// `prompt`: its text with control tokens; `turn_ends`: the tokens that end a generation, which are no part of calls.
/// Errors: kUsage if `tools` is no list of tools.
[[nodiscard]] CallRules required_calls(const text::AnswerFormat& format, const OfferedCalls& offered,
                                       std::string_view prompt, std::span<const std::string> turn_ends);
/// The rules of calls that a model may make: any text, and once a call begins, a call of an offered tool. What looks
/// like a call within reasoning is none.
[[nodiscard]] CallRules optional_calls(const text::AnswerFormat& format, const OfferedCalls& offered,
                                       std::string_view prompt, std::span<const std::string> turn_ends);

}  // namespace forge::session
