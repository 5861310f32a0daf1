// Calls with one tag for each parameter. The names of the tags are read from the text: `<parameter=x>`,
// `<param name="x">`, `<arg_key>x</arg_key><arg_value>`, or `<x>` itself.

#include <algorithm>
#include <utility>

#include "support/json_text.h"
#include "text/answer/call_reader.h"
#include "text/answer/json_scanner.h"
#include "text/answer/markers.h"
#include "text/answer/white_space.h"

namespace forge::text {
namespace {

constexpr std::size_t kTagBytesMax = 1024;
constexpr std::string_view kCdata = "<![CDATA[", kCdataEnd = "]]>";

/// The opening tag of a function or a parameter.
struct Tag {
  std::string name, value;                 // <name=value>, <name name="value">
  bool is_string = false, closed = false;  // string="true"; ends with '/'
};

std::string_view unquoted(std::string_view text) {
  if (text.size() >= 2 && (text[0] == '"' || text[0] == '\'') && text.back() == text[0])
    return text.substr(1, text.size() - 2);
  return text;
}

/// `text`: what is between '<' and '>'.
Tag parse_tag(std::string_view text) {
  Tag tag;
  if (text.ends_with('/')) {
    tag.closed = true;
    text.remove_suffix(1);
  }
  const std::size_t end = text.find_first_of("= \t\n");
  tag.name = text.substr(0, end);
  if (end == std::string_view::npos) return tag;
  std::string_view rest = text.substr(end);
  if (rest[0] == '=') {
    tag.value = unquoted(rest.substr(1));
    return tag;
  }
  // The attribute "name", or else the first one.
  const std::size_t named = rest.find("name=");
  const std::size_t equals = named == std::string_view::npos ? rest.find('=') : named + 4;
  if (equals != std::string_view::npos && equals + 1 < rest.size()) {
    const char quote = rest[equals + 1];
    const bool quoted = quote == '"' || quote == '\'';
    const std::size_t begin = equals + (quoted ? 2 : 1);
    const std::size_t stop = quoted ? rest.find(quote, begin) : rest.find_first_of(" \t\n", begin);
    tag.value = rest.substr(begin, stop == std::string_view::npos ? stop : stop - begin);
  }
  tag.is_string = rest.find("string=\"true\"") != std::string_view::npos;
  return tag;
}

class TaggedCall final : public CallReader {
 public:
  /// An element that holds the name, or, if `name` is given, the arguments alone.
  TaggedCall(CallContext context, std::string name, std::string held = {}) : context_(context), name_(std::move(name)) {
    state_ = name_.empty() ? State::kHead : State::kBody;
    held_ = std::move(held);
  }

  Step step(std::string_view in, bool end, std::size_t& used, AnswerSink& sink) override {
    used = 0;
    for (;;) {
      const State before = state_;
      const std::size_t used_before = used;
      const Step result = advance(in, end, used, sink);
      if (result != Step::kMore || (state_ == before && used == used_before)) return result;
    }
  }

  void end(AnswerSink& sink) override {
    if (state_ == State::kBody && !json_) sink.arguments(any_ ? "}" : "{}");
  }

 private:
  enum class State : std::uint8_t { kHead, kBody, kValueStart, kValue, kValueEnd, kJson };

  Step advance(std::string_view in, bool end, std::size_t& used, AnswerSink& sink) {
    const std::string_view rest = in.substr(used);
    switch (state_) {
      case State::kHead:
        return head(rest, end, used, sink);
      case State::kBody:
        return body(rest, end, used, sink);
      case State::kValueStart:
        return value_start(rest, end, used);
      case State::kValue:
        return value(rest, used, sink);
      case State::kValueEnd:
        return value_end(rest, used, sink);
      case State::kJson:
        break;
    }
    std::size_t taken = 0;
    const Step result = json_->step(rest, end, taken, sink);
    used += taken;
    if (result == Step::kDone) state_ = State::kBody;
    return result == Step::kDone ? Step::kMore : result;
  }

  Step head(std::string_view rest, bool end, std::size_t& used, AnswerSink& sink) {
    const std::size_t close = rest.substr(0, kTagBytesMax).find_first_of("<>", 1);
    if (close == std::string_view::npos) return end || rest.size() >= kTagBytesMax ? Step::kFail : Step::kMore;
    if (rest[close] == '<') return Step::kFail;
    Tag tag = parse_tag(rest.substr(1, close - 1));
    for (const auto& element : context_.format->elements)  // <fn:NAME>
      if (tag.value.empty() && element.size() < close && rest.starts_with(element))
        tag.value = rest.substr(element.size(), close - element.size());
    if (!is_tool_name(tag.value)) return Step::kFail;
    name_ = tag.value;
    close_ = "</" + tag.name + ">";
    used += close + 1;
    held_.clear();
    sink.call(name_, {});
    state_ = State::kBody;
    return tag.closed ? finish(sink) : Step::kMore;
  }

  Step finish(AnswerSink& sink) {
    if (!json_) sink.arguments(any_ ? "}" : "{}");
    return Step::kDone;
  }

  Step body(std::string_view rest, bool end, std::size_t& used, AnswerSink& sink) {
    const std::size_t space = std::min(rest.find_first_not_of(kWhiteSpace), rest.size());
    rest.remove_prefix(space);
    used += space;
    if (rest.empty()) return Step::kMore;
    if (rest[0] == '{' && !any_ && !json_) {
      json_ = read_json_arguments();
      state_ = State::kJson;
      return Step::kMore;
    }
    if (rest[0] != '<') return Step::kBad;
    const std::size_t close = rest.substr(0, kTagBytesMax).find_first_of("<>", 1);
    if (close == std::string_view::npos) return end || rest.size() >= kTagBytesMax ? Step::kBad : Step::kMore;
    if (rest[close] == '<') return Step::kBad;
    const std::string_view inside = rest.substr(1, close - 1);
    if (inside.starts_with('/')) {
      used += close + 1;
      return finish(sink);
    }
    if (json_) return Step::kBad;
    const Tag tag = parse_tag(inside);
    const std::string& key_tag = context_.format->key_tag;
    const bool is_key = key_tag.empty() ? tag.name.contains("key") : key_tag == "<" + tag.name + ">";
    if (tag.value.empty() && is_key) return keyed(rest, end, tag.name, used, sink);
    used += close + 1;
    begin_value(tag.value.empty() ? tag.name : tag.value, "</" + tag.name + ">", tag.is_string, sink);
    return Step::kMore;
  }

  /// <arg_key>KEY</arg_key> and the tag of the value.
  Step keyed(std::string_view rest, bool end, const std::string& tag, std::size_t& used, AnswerSink& sink) {
    const std::string_view near = rest.substr(0, 2 * kTagBytesMax);
    const Step more = end || rest.size() > near.size() ? Step::kBad : Step::kMore;
    const std::size_t key_begin = tag.size() + 2;
    const std::size_t key_end = near.find("</" + tag + ">", key_begin);
    if (key_end == std::string_view::npos) return more;
    const std::size_t open = near.find_first_not_of(kWhiteSpace, key_end + tag.size() + 3);
    if (open == std::string_view::npos) return more;
    if (near[open] != '<') return Step::kBad;
    const std::size_t open_end = near.find('>', open);
    if (open_end == std::string_view::npos) return more;
    used += open_end + 1;
    begin_value(near.substr(key_begin, key_end - key_begin),
                "</" + std::string(near.substr(open + 1, open_end - open - 1)) + ">", false, sink);
    return Step::kMore;
  }

  void begin_value(std::string_view key, std::string close, bool is_string, AnswerSink& sink) {
    sink.arguments(std::exchange(any_, true) ? ", " : "{");
    sink.arguments(json_string(key) + ": ");
    value_close_ = std::move(close);
    types_ = context_.tools->types(name_, key);
    if (types_ == 0 && is_string) types_ = kStringType;
    if (types_ == kStringType) sink.arguments("\"");
    value_.clear();
    cdata_ = false;
    state_ = State::kValueStart;
  }

  Step value_start(std::string_view rest, bool end, std::size_t& used) {
    if (rest.empty()) return Step::kMore;
    if (context_.format->cdata) {
      const std::size_t at = rest.find_first_not_of(kWhiteSpace);
      if (at == std::string_view::npos && !end) return Step::kMore;
      const std::string_view text = at == std::string_view::npos ? std::string_view{} : rest.substr(at);
      cdata_ = text.starts_with(kCdata);
      if (!cdata_ && !end && kCdata.starts_with(text)) return Step::kMore;
      if (cdata_) used += at + kCdata.size();
    }
    if (!cdata_ && context_.format->strips_newlines && rest[0] == '\n') ++used;
    state_ = State::kValue;
    return Step::kMore;
  }

  Step value(std::string_view rest, std::size_t& used, AnswerSink& sink) {
    const std::string_view marker = cdata_ ? kCdataEnd : std::string_view(value_close_);
    const bool strips = !cdata_ && context_.format->strips_newlines;
    const std::size_t found = rest.find(marker);
    if (found != std::string_view::npos) {
      std::string_view last = rest.substr(0, found);
      if (strips && last.ends_with('\n')) last.remove_suffix(1);
      give(last, sink);
      used += found + marker.size();
      state_ = cdata_ ? State::kValueEnd : State::kBody;
      if (!cdata_) end_value(sink);
      return Step::kMore;
    }
    std::size_t safe = rest.size() - begun_marker(rest, marker);
    if (strips && safe > 0 && rest[safe - 1] == '\n') --safe;
    give(rest.substr(0, safe), sink);
    used += safe;
    return Step::kMore;
  }

  /// After a CDATA section: another one, or the closing tag.
  Step value_end(std::string_view rest, std::size_t& used, AnswerSink& sink) {
    const std::size_t space = std::min(rest.find_first_not_of(kWhiteSpace), rest.size());
    const std::string_view text = rest.substr(space);
    if (text.starts_with(kCdata)) {
      used += space + kCdata.size();
      state_ = State::kValue;
    } else if (text.starts_with(value_close_)) {
      used += space + value_close_.size();
      end_value(sink);
      state_ = State::kBody;
    } else if (!kCdata.starts_with(text) && !value_close_.starts_with(text)) {
      return Step::kBad;
    }
    return Step::kMore;
  }

  void give(std::string_view text, AnswerSink& sink) {
    if (types_ != kStringType) {
      value_ += text;
      return;
    }
    std::string escaped;
    append_json_escaped(escaped, text);
    sink.arguments(escaped);
  }

  void end_value(AnswerSink& sink) { sink.arguments(types_ == kStringType ? "\"" : json_of_value(value_, types_)); }

  CallContext context_;
  std::string name_, close_, value_close_, value_;
  State state_;
  ValueTypes types_ = 0;
  bool any_ = false, cdata_ = false;
  std::unique_ptr<CallReader> json_;
};

}  // namespace

std::unique_ptr<CallReader> read_element_call(CallContext context, std::string held) {
  return std::make_unique<TaggedCall>(context, std::string(), std::move(held));
}

std::unique_ptr<CallReader> read_keyed_arguments(CallContext context, std::string name) {
  return std::make_unique<TaggedCall>(context, std::move(name));
}

}  // namespace forge::text
