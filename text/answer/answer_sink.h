#pragma once
// Collects the deltas of an answer. White space around reasoning, before content and between content and a call is
// dropped; white space whose place is not known yet is held back.

#include <string>
#include <string_view>
#include <vector>

#include "text/answer/answer_delta.h"

namespace forge::text {

class AnswerSink {
 public:
  /// `verbatim`: content keeps its leading white space.
  explicit AnswerSink(bool verbatim) : verbatim_(verbatim) {}

  void content(std::string_view text);
  void reasoning(std::string_view text);
  /// Starts the next call.
  void call(std::string_view name, std::string_view id);
  /// The id of the call that was started last.
  void id(std::string_view id);
  /// A piece of the arguments of the call that was started last.
  void arguments(std::string_view text);
  /// The end of generation. `cut`: the token limit ended it.
  void finish(bool cut);

  /// True until content other than white space, or a call, was added.
  [[nodiscard]] bool at_start() const { return !has_content_ && calls_ == 0; }
  [[nodiscard]] bool has_reasoning() const { return has_reasoning_; }
  [[nodiscard]] std::size_t calls() const { return calls_; }
  /// The deltas since the last take().
  [[nodiscard]] std::vector<AnswerDelta> take();

 private:
  AnswerDelta& last();
  CallDelta& last_call();
  bool verbatim_, has_content_ = false, has_reasoning_ = false;
  std::size_t calls_ = 0;
  std::string content_space_, reasoning_space_;
  std::vector<AnswerDelta> deltas_;
};

}  // namespace forge::text
