#pragma once
// Shows a chat's answer: reasoning apart from the answer, tool calls as JSON.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/os/console.h"
#include "text/answer/answer_parser.h"

namespace forge::tools {

/// Reasoning is dim on a terminal, else between lines that say so. A call is a line of JSON with name and arguments.
class AnswerView {
 public:
  /// `format` must outlive this. `prompt`: the text of the prompt. `output` null: nothing is printed. `dim`: stdout is
  /// a terminal with styles.
  AnswerView(const text::AnswerFormat& format, std::string_view prompt, Output* output, bool dim);

  void push(std::string_view text) { show(parser_.feed(text)); }
  /// The rest, and a newline if the text does not end with one.
  void finish();
  [[nodiscard]] const text::AnswerMessage& message() const { return message_; }

 private:
  enum class Part : std::uint8_t { kNone, kReasoning, kContent, kCall };
  void show(const std::vector<text::AnswerDelta>& deltas);
  void begin(Part part);
  void write(std::string_view text);

  text::ToolTypes no_tools_;
  text::AnswerParser parser_;
  text::AnswerMessage message_;
  Output* output_;
  bool dim_, line_open_ = false;
  Part part_ = Part::kNone;
};

}  // namespace forge::tools
