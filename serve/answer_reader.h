#pragma once
// Reads a chat's answer as it is generated: reasoning, content and tool calls (text/answer). The reply and the engine's
// thread have a reader each, as they have a stop-string matcher each (generation.h).

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer/answer_parser.h"

namespace forge::serve {

/// What the readers of a request share.
struct AnswerRules {
  text::AnswerFormat format;
  text::ToolTypes tools;
  std::string prompt;                                ///< as rendered
  const std::vector<std::int32_t>* shown = nullptr;  ///< sorted ids of control tokens that are part of the text
  bool one_call = false;                             ///< parallel_tool_calls is false: nothing follows the first call
  bool calls_bound = false;                          ///< a constraint says what calls look like
  bool calls_forced = false;                         ///< and the answer has nothing else, but for reasoning
};

/// A new id for a tool call, unique.
[[nodiscard]] std::string new_call_id();

class AnswerReader {
 public:
  explicit AnswerReader(std::shared_ptr<const AnswerRules> rules);

  /// True for a control token whose spelling the reader needs.
  [[nodiscard]] bool shows(std::int32_t token) const;
  /// What is certain after this text. A call that the model gave no id has one when its name comes.
  [[nodiscard]] std::vector<text::AnswerDelta> feed(std::string_view text);
  /// The rest, at the end of generation. `cut`: not by the model.
  [[nodiscard]] std::vector<text::AnswerDelta> finish(bool cut);
  [[nodiscard]] bool in_call() const { return parser_.in_call(); }
  [[nodiscard]] bool in_reasoning() const { return parser_.in_reasoning(); }
  /// Whether stop strings are looked for in what comes next: not in calls whose text a constraint decides.
  [[nodiscard]] bool heeds_stops() const {
    return !rules_->calls_forced && !(rules_->calls_bound && parser_.in_call());
  }
  /// Whether generation should end here.
  [[nodiscard]] bool complete() const { return rules_->one_call && parser_.first_call_ended(); }

 private:
  [[nodiscard]] std::vector<text::AnswerDelta> settled(std::vector<text::AnswerDelta> deltas) const;

  std::shared_ptr<const AnswerRules> rules_;
  text::AnswerParser parser_;
};

}  // namespace forge::serve
