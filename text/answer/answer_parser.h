#pragma once
// Parses the text that a model generates into content, reasoning and tool calls, as it comes.
//
//    pieces of text --feed--> markers (MarkerSet), calls (call_reader.h) --> AnswerSink --> deltas
//
// No marker that is acted on gets into content, and nothing that was given out is taken back: text that may still
// become a marker waits. Malformed calls are not repaired: before the name is known their text is content, after it the
// rest is the call's arguments as it is. Time is linear in the text; memory is what is held back and not given out yet.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer/answer_delta.h"
#include "text/answer/answer_format.h"
#include "text/answer/answer_sink.h"
#include "text/answer/call_reader.h"
#include "text/answer/markers.h"
#include "text/answer/tool_types.h"

namespace forge::text {

class AnswerParser {
 public:
  /// `format` and `tools` must outlive the parser. `prompt`: the rendered prompt; its end says whether it has opened a
  /// reasoning block or the header of a message already.
  AnswerParser(const AnswerFormat& format, const ToolTypes& tools, std::string_view prompt);

  /// Reads the next piece of text, which may end inside a character, and returns what is certain.
  [[nodiscard]] std::vector<AnswerDelta> feed(std::string_view text);
  /// The end of generation, once. `cut`: something else than the model ended it; what was held back of a call is
  /// dropped then.
  [[nodiscard]] std::vector<AnswerDelta> finish(bool cut);
  /// Whether the first call is complete; in a list of calls, at the latest when the second one begins.
  [[nodiscard]] bool first_call_ended() const { return first_call_ended_ || sink_.calls() > 1; }
  [[nodiscard]] bool in_reasoning() const {
    return state_ == State::kReasoning || (state_ == State::kChannelText && channel_is_reasoning_);
  }
  /// Whether a call has begun and is not complete.
  [[nodiscard]] bool in_call() const {
    return state_ == State::kHead || state_ == State::kCall || state_ == State::kRaw;
  }

 private:
  enum class State : std::uint8_t {
    kText,
    kReasoning,
    kHead,
    kCall,
    kRaw,
    kAfter,
    kChannelHeader,
    kChannelText,
    kRecipient
  };
  enum class Role : std::uint8_t { kOpener, kElement, kCloser, kDropped, kThinkOpen, kThinkClose };

  void start(std::string_view prompt);
  void run(bool end, bool cut);
  bool advance(bool end);
  bool read_text(bool end);
  bool read_marker(const MarkerSet::Found& found);
  bool read_unmarked(bool end, bool& waits);
  bool read_bare_name(std::string_view text, bool end, bool& waits);
  bool read_reasoning(bool end);
  bool read_head(bool end);
  bool read_call(bool end);
  bool read_raw(bool end);
  bool read_channel_header();
  bool read_channel_text(bool end);
  bool read_recipient(bool end);
  void open_call(std::unique_ptr<CallReader> reader);
  void after_call();
  [[nodiscard]] std::string_view rest() const { return std::string_view(text_).substr(at_); }

  const AnswerFormat& format_;
  const ToolTypes& tools_;
  AnswerSink sink_;
  State state_ = State::kText;
  MarkerSet markers_, reasoning_marks_, closers_, channel_ends_;
  std::vector<Role> roles_;
  std::string text_;   // not read yet, from at_
  std::string carry_;  // the beginning of a character
  std::size_t at_ = 0;
  std::size_t head_marker_ = 0;
  bool in_list_ = false;  // the marker before the last call has not been closed, and the call was JSON
  bool channel_is_reasoning_ = false, thought_ = false, first_call_ended_ = false;
  std::unique_ptr<CallReader> reader_;
};

}  // namespace forge::text
