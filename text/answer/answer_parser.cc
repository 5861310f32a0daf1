#include "text/answer/answer_parser.h"

#include <algorithm>
#include <utility>

#include "text/answer/call_head.h"
#include "text/answer/format_table.h"
#include "text/answer/white_space.h"
#include "text/tokenizer/unicode.h"

namespace forge::text {
AnswerParser::AnswerParser(const AnswerFormat& format, const ToolTypes& tools, std::string_view prompt)
    : format_(format),
      tools_(tools),
      sink_(!format.has_calls() && format.think_open.empty()),
      markers_({}),
      reasoning_marks_(format.think_close.empty() ? std::vector<std::string>{}
                                                  : std::vector<std::string>{format.think_close, format.think_open}),
      closers_(format.closers),
      channel_ends_(format.channels ? format.closers : std::vector<std::string>{}) {
  std::vector<std::string> markers;
  const auto add = [&](const std::vector<std::string>& list, Role role) {
    for (const auto& marker : list) {
      if (marker.empty() || std::ranges::find(markers, marker) != markers.end()) continue;
      markers.push_back(marker);
      roles_.push_back(role);
    }
  };
  add(format.openers, Role::kOpener);
  add(format.elements, Role::kElement);
  add(format.dropped, Role::kDropped);
  add({format.think_open}, Role::kThinkOpen);
  add({format.think_close}, Role::kThinkClose);
  add(format.closers, Role::kCloser);
  markers_ = MarkerSet(std::move(markers));
  start(prompt);
}

void AnswerParser::start(std::string_view prompt) {
  if (format_.channels) {
    // The header of the message that is generated began in the prompt.
    const std::size_t begin = prompt.rfind(kChannelMarkers.start);
    state_ = State::kChannelHeader;
    if (begin != std::string_view::npos && prompt.size() - begin < 512)
      text_ = prompt.substr(begin + kChannelMarkers.start.size());
    return;
  }
  const std::string_view end = trimmed_end(prompt);
  if (format_.recipients && end.ends_with(kRecipientMark)) state_ = State::kRecipient;
  if (prompt_opens_reasoning(format_, prompt)) state_ = State::kReasoning;
}

std::vector<AnswerDelta> AnswerParser::feed(std::string_view text) {
  text_ += std::exchange(carry_, {});
  text_ += text;
  const std::size_t whole = complete_utf8_prefix(text_);
  carry_ = text_.substr(whole);
  text_.resize(whole);
  run(false, false);
  return sink_.take();
}

std::vector<AnswerDelta> AnswerParser::finish(bool cut) {
  text_ += std::exchange(carry_, {});
  run(true, cut);
  sink_.finish(cut);
  return sink_.take();
}

void AnswerParser::run(bool end, bool cut) {
  if (end && cut && state_ == State::kHead) return;
  while (advance(end)) {
  }
  text_.erase(0, std::exchange(at_, 0));
  if (!end) return;
  if (reader_ && !cut) reader_->end(sink_);
  if (reader_ && !(cut && reader_->certain())) sink_.content(reader_->held());
  if (state_ == State::kChannelHeader && !cut && !text_.starts_with("assistant")) sink_.content(text_);
}

bool AnswerParser::advance(bool end) {
  switch (state_) {
    case State::kText:
    case State::kAfter:
      return read_text(end);
    case State::kReasoning:
      return read_reasoning(end);
    case State::kHead:
      return read_head(end);
    case State::kCall:
      return read_call(end);
    case State::kRaw:
      return read_raw(end);
    case State::kChannelHeader:
      return read_channel_header();
    case State::kChannelText:
      return read_channel_text(end);
    case State::kRecipient:
      return read_recipient(end);
  }
  return false;
}

bool AnswerParser::read_text(bool end) {
  if (rest().empty()) return false;
  bool waits = false;
  if (read_unmarked(end, waits)) return true;
  if (waits) return false;
  const MarkerSet::Found found = markers_.find(rest(), end);
  const std::string_view before = rest().substr(0, found.at);
  sink_.content(before);  // after a call, white space is held back and dropped before another one
  if (before.find_first_not_of(kWhiteSpace) != std::string_view::npos) state_ = State::kText;
  at_ += found.at;
  return found.size > 0 && read_marker(found);
}

bool AnswerParser::read_marker(const MarkerSet::Found& found) {
  const std::string_view marker = rest().substr(0, found.size);
  switch (roles_[found.which]) {
    case Role::kOpener:
      in_list_ = false;
      head_marker_ = found.size;
      state_ = format_.recipients && marker == kRecipientMark ? State::kRecipient : State::kHead;
      if (state_ == State::kRecipient) at_ += found.size;
      return true;
    case Role::kElement:
      open_call(read_element_call({&format_, &tools_}, {}));
      head_marker_ = found.size;
      return true;
    case Role::kThinkOpen:
      if (sink_.at_start() && !thought_) {
        state_ = State::kReasoning;
        break;
      }
      sink_.content(marker);
      break;
    case Role::kThinkClose:
      if (!sink_.at_start()) sink_.content(marker);
      break;
    case Role::kCloser:
      if (state_ != State::kAfter) sink_.content(marker);
      in_list_ = false;
      break;
    case Role::kDropped:
      break;
  }
  at_ += found.size;
  return true;
}

/// A call without a marker before it. `waits`: more text must decide.
bool AnswerParser::read_unmarked(bool end, bool& waits) {
  const bool after = state_ == State::kAfter, in_list = after && in_list_;
  const bool bare = format_.is_bare() && !tools_.empty() && (after || sink_.at_start());
  if (!in_list && !bare) return false;
  const std::size_t begin = rest().find_first_not_of(kWhiteSpace);
  if (begin == std::string_view::npos) return false;
  const std::string_view text = rest().substr(begin);
  const CallContext context{&format_, &tools_};
  std::unique_ptr<CallReader> reader;
  if (in_list && text[0] == '{')
    reader = read_json_calls(context, {}, false);
  else if (bare && ((text[0] == '{' && format_.bare_json) || (text[0] == '[' && format_.bare_json_list)))
    reader = read_json_calls(context, {}, true);
  else if (bare && text[0] == '[' && format_.bare_list)
    reader = read_python_calls(context, {}, true);
  if (!reader) return bare && format_.bare_name && read_bare_name(text, end, waits);
  sink_.content(rest().substr(0, begin));  // held back, and content after all if this is no call
  at_ += begin;
  open_call(std::move(reader));
  return true;
}

/// A tool's name, a newline and JSON.
bool AnswerParser::read_bare_name(std::string_view text, bool end, bool& waits) {
  const std::size_t line = text.find('\n');
  const std::string name(text.substr(0, line));
  const std::size_t brace = line == std::string_view::npos ? line : text.find_first_not_of(kWhiteSpace, line);
  if (brace == std::string_view::npos) {
    waits = !end && (line == std::string_view::npos ? tools_.begins(name) : tools_.has(name));
    return false;
  }
  if (text[brace] != '{' || !tools_.has(name)) return false;
  at_ += rest().size() - text.size() + brace;
  sink_.call(name, {});
  open_call(read_json_arguments());
  return true;
}

bool AnswerParser::read_reasoning(bool end) {
  if (rest().empty()) return false;
  thought_ = true;
  const MarkerSet::Found found = reasoning_marks_.find(rest(), end);
  sink_.reasoning(rest().substr(0, found.at));
  at_ += found.at;
  if (found.size == 0) return false;
  const std::string_view marker = rest().substr(0, found.size);
  if (marker == format_.think_close)
    state_ = State::kText;
  else if (sink_.has_reasoning())  // else the answer repeats what the prompt has opened
    sink_.reasoning(marker);
  at_ += found.size;
  return true;
}

bool AnswerParser::read_head(bool end) {
  CallHead head = read_call_head({&format_, &tools_}, rest(), head_marker_, end, sink_);
  if (head.step == Step::kMore) return false;
  if (head.step == Step::kFail) {
    sink_.content(rest().substr(0, head_marker_));
    at_ += head_marker_;
    state_ = State::kText;
    return true;
  }
  in_list_ = rest().substr(head.used).starts_with('{');
  at_ += head.used;
  if (head.reader)
    open_call(std::move(head.reader));
  else
    after_call();
  return true;
}

void AnswerParser::open_call(std::unique_ptr<CallReader> reader) {
  reader_ = std::move(reader);
  state_ = State::kCall;
}

void AnswerParser::after_call() {
  reader_.reset();
  first_call_ended_ = true;
  state_ = format_.channels ? State::kChannelText : State::kAfter;
}

bool AnswerParser::read_call(bool end) {
  std::size_t used = 0;
  const Step step = reader_->step(rest(), end, used, sink_);
  at_ += used;
  switch (step) {
    case Step::kMore:
      return false;
    case Step::kDone:
      after_call();
      return true;
    case Step::kBad:
      reader_.reset();
      state_ = State::kRaw;
      return true;
    case Step::kFail:
      break;
  }
  std::string held = reader_->held();
  if (held.empty()) {  // an element without a name: its beginning is content
    held = rest().substr(0, std::max<std::size_t>(head_marker_, 1));
    at_ += held.size();
  }
  reader_.reset();
  state_ = State::kText;
  sink_.content(held);
  return true;
}

bool AnswerParser::read_raw(bool end) {
  if (rest().empty()) return false;
  const MarkerSet::Found found = closers_.find(rest(), end);
  sink_.arguments(rest().substr(0, found.at));
  at_ += found.at;
  if (found.size == 0) return false;
  after_call();
  return true;
}

bool AnswerParser::read_channel_header() {
  const std::size_t at = rest().find(kChannelMarkers.message);
  if (at == std::string_view::npos) {
    const std::string_view begin = rest().substr(std::min(rest().find_first_not_of(kWhiteSpace), rest().size()));
    if (begin.size() <= 1024) return false;
    state_ = State::kChannelText;  // no header at all
    channel_is_reasoning_ = false;
    return true;
  }
  const std::string_view header = rest().substr(0, at);
  std::string_view channel, recipient;
  if (const std::size_t mark = header.rfind(kChannelMarkers.channel); mark != std::string_view::npos) {
    channel = header.substr(mark + kChannelMarkers.channel.size());
    channel = channel.substr(0, channel.find_first_of(" <\n"));
  }
  if (const std::size_t to = header.find("to="); to != std::string_view::npos) {
    recipient = header.substr(to + 3);
    recipient = recipient.substr(0, recipient.find_first_of(" <\n"));
    if (recipient.starts_with("functions.")) recipient.remove_prefix(10);
  }
  const std::string name(recipient);
  channel_is_reasoning_ = channel == "analysis";
  at_ += at + kChannelMarkers.message.size();
  state_ = State::kChannelText;
  if (is_tool_name(name) && name != "user" && name != "assistant" && !format_.calls_are_text) {
    sink_.call(name, {});
    open_call(read_json_arguments());
  }
  return true;
}

bool AnswerParser::read_channel_text(bool end) {
  if (rest().empty()) return false;
  const MarkerSet::Found found = channel_ends_.find(rest(), end);
  const std::string_view text = rest().substr(0, found.at);
  if (channel_is_reasoning_)
    sink_.reasoning(text);
  else
    sink_.content(text);
  at_ += found.at + found.size;
  if (found.size == 0) return false;
  if (channel_ends_.markers()[found.which] == kChannelMarkers.start) state_ = State::kChannelHeader;
  return true;
}

bool AnswerParser::read_recipient(bool end) {
  const std::size_t line = rest().find('\n');
  const bool named = line != std::string_view::npos && is_tool_name(rest().substr(0, line));
  if (!named) {
    if (line == std::string_view::npos && !end && (rest().empty() || is_tool_name(rest()))) return false;
    sink_.content(kRecipientMark);
    state_ = State::kText;
    return true;
  }
  const std::string name(rest().substr(0, line));
  at_ += line + 1;
  if (name == "all" || format_.calls_are_text) {
    if (name != "all") sink_.content(name + "\n");
    state_ = State::kText;
  } else {
    sink_.call(name, {});
    open_call(read_json_arguments());
  }
  return true;
}

}  // namespace forge::text
