#include "text/answer/call_head.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/answer/markers.h"
#include "text/answer/white_space.h"

namespace forge::text {
namespace {

constexpr std::size_t kHeadBytesMax = 1024;
/// The name and id among the words of a head and the markers between them.
struct Identity {
  std::string name, id;
};

/// words[i] is followed by markers[i], the lower-case letters of a marker, "" if there is none.
Identity identity_of(const std::vector<std::string>& words, const std::vector<std::string>& markers) {
  Identity out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view before = i > 0 ? std::string_view(markers[i - 1]) : std::string_view();
    // After a marker for ids the word is an id; after any other one it is the name, and what stood before was an id, or
    // only the word "function".
    if (i > 0 && before.ends_with("id")) {
      out.id = words[i];
    } else {
      if (i > 0 && out.name != "function") out.id = std::exchange(out.name, {});
      out.name = words[i];
    }
  }
  // functions.NAME:INDEX is the id as a whole.
  if (const std::size_t colon = out.name.rfind(':'); out.name.starts_with("functions.") && colon != std::string::npos) {
    out.id = out.name;
    out.name = out.name.substr(10, colon - 10);
  } else if (out.name.starts_with("functions.")) {
    out.name = out.name.substr(10);
  }
  return out;
}

class HeadParser {
 public:
  HeadParser(CallContext context, std::string_view text, std::size_t at, bool end, AnswerSink& sink)
      : context_(context), all_(text), text_(text.substr(0, kHeadBytesMax)), at_(at), sink_(sink) {
    more_ = end || all_.size() > text_.size() ? Step::kFail : Step::kMore;
  }

  CallHead parse() {
    for (;;) {
      const std::size_t next = text_.find_first_not_of(kWhiteSpace, at_);
      if (next == std::string_view::npos) return {.step = more_, .used = 0, .reader = nullptr};
      spaced_ = next > at_;
      at_ = next;
      if (std::optional<CallHead> head = item()) return std::move(*head);
    }
  }

 private:
  static CallHead fail() { return {.step = Step::kFail, .used = 0, .reader = nullptr}; }
  [[nodiscard]] CallHead wait() const { return {.step = more_, .used = 0, .reader = nullptr}; }
  static CallHead decided(std::size_t used, std::unique_ptr<CallReader> reader) {
    return {.step = Step::kDone, .used = used, .reader = std::move(reader)};
  }

  std::optional<CallHead> item() {
    const char c = text_[at_];
    if (c == '{') return brace();
    if (c == '[') return bracket();
    if (c == '<') return tag();
    if (c == '`') return fence();
    if (c == '(' && words_.size() == 1 && markers_.empty() && !spaced_) {
      return decided(word_at_, read_python_calls(context_, std::string(all_.substr(0, word_at_)), false));
    }
    if (const std::string& separator = context_.format->separator; !separator.empty() && !words_.empty()) {
      if (text_.substr(at_).starts_with(separator)) {
        at_ += separator.size();
        return std::nullopt;
      }
      if (separator.starts_with(text_.substr(at_))) return wait();
    }
    return word();
  }

  std::optional<CallHead> brace() {
    if (words_.empty()) return decided(at_, read_json_calls(context_, std::string(all_.substr(0, at_)), false));
    if (!start_call()) return fail();
    if (context_.format->braces) return decided(at_, read_literal_arguments(context_.format->quote));
    return decided(at_, read_json_arguments());
  }

  std::optional<CallHead> bracket() {
    const std::string_view rest = text_.substr(at_);
    if (const std::size_t size = marker_size(rest); size > 0) return marker(size);
    if (may_become_marker(rest)) return wait();
    if (!words_.empty()) return fail();
    const std::size_t inner = rest.find_first_not_of(kWhiteSpace, 1);
    if (inner == std::string_view::npos) return wait();
    std::string held(all_.substr(0, at_));
    const bool python = is_tool_name(rest.substr(inner, 1));
    return decided(at_, python ? read_python_calls(context_, std::move(held), false)
                               : read_json_calls(context_, std::move(held), false));
  }

  std::optional<CallHead> tag() {
    const std::string_view rest = text_.substr(at_);
    for (const auto& element : context_.format->elements) {
      if (rest.starts_with(element)) return element_call();
      if (element.starts_with(rest)) return wait();
    }
    if (const std::size_t size = marker_size(rest); size > 0) return marker(size);
    const std::size_t close = rest.find_first_of("<>", 1);
    if (close == std::string_view::npos) return wait();
    const std::size_t equals = rest[close] == '>' ? rest.substr(0, close).find('=') : std::string_view::npos;
    return equals != std::string_view::npos ? element_call() : fail();
  }
  CallHead element_call() const {
    return words_.empty() ? decided(at_, read_element_call(context_, std::string(all_.substr(0, at_)))) : fail();
  }

  std::optional<CallHead> marker(std::size_t size) {
    const std::string_view marker = text_.substr(at_, size);
    if (context_.format->name_is_tag && words_.empty() && context_.tools->has(marker.substr(1, size - 2))) {
      name_ = marker.substr(1, size - 2);
      sink_.call(name_, {});
      return decided(at_ + size, read_keyed_arguments(context_, name_));
    }
    const std::string word = word_of(marker);
    const std::string_view name_end = trimmed(context_.format->layout.name_end);
    if (words_.size() == 1 && markers_.empty() && context_.format->layout.key_begin == "<") {
      // Parameters are elements of their own names.
      if (text_.substr(at_).starts_with(name_end))
        return start_call() ? decided(at_ + name_end.size(), read_keyed_arguments(context_, name_)) : fail();
      if (name_end.starts_with(text_.substr(at_))) return wait();
    }
    const bool ends_name = word == last_tag_ && (word.contains("name") || name_end.starts_with(marker));
    if (!words_.empty() && marker.starts_with("</") && ends_name) {
      at_ += size;  // </name>
      return std::nullopt;
    }
    if (std::ranges::find(context_.format->closers, marker) != context_.format->closers.end() ||
        marker.starts_with("</")) {
      // The end of a call that has a name and nothing else.
      if (words_.empty() || !start_call()) return fail();
      sink_.arguments("{}");
      return decided(at_, nullptr);
    }
    if (context_.format->key_tag.empty() ? word.contains("key") : marker == context_.format->key_tag) {
      if (words_.empty() || !start_call()) return fail();
      return decided(at_, read_keyed_arguments(context_, name_));
    }
    if (words_.empty() && all_.starts_with(marker)) return fail();  // the same marker again: no call between
    if (markers_.size() < words_.size()) markers_.push_back(marker == context_.format->id_marker ? "id" : word);
    last_tag_ = word;
    at_ += size;
    return std::nullopt;
  }

  /// A code fence around JSON, with or without the name of the language.
  std::optional<CallHead> fence() {
    const std::string_view rest = text_.substr(at_);
    if (rest.size() < kFence.size() && kFence.starts_with(rest)) return wait();
    if (!rest.starts_with(kFence)) return fail();
    const std::size_t line = rest.find_first_of("\n{[");
    if (line == std::string_view::npos) return wait();
    if (line > 16) return fail();
    at_ += line;
    return std::nullopt;
  }

  std::optional<CallHead> word() {
    if (words_.size() > markers_.size() || words_.size() == 3) return fail();  // two words, as in prose
    std::size_t end = at_;
    while (end < text_.size() && is_tool_name(text_.substr(end, 1))) ++end;
    if (end == at_ || end - at_ > kNameBytesMax) return fail();
    if (end == text_.size()) return wait();
    word_at_ = at_;
    words_.emplace_back(text_.substr(at_, end - at_));
    at_ = end;
    return std::nullopt;
  }

  bool start_call() {
    Identity identity = identity_of(words_, markers_);
    if (context_.format->braces && identity.name.starts_with("call:")) identity.name.erase(0, 5);
    if (!is_tool_name(identity.name)) return false;
    name_ = identity.name;
    sink_.call(identity.name, identity.id);
    return true;
  }

  CallContext context_;
  std::string_view all_, text_;
  std::size_t at_, word_at_ = 0;
  AnswerSink& sink_;
  Step more_;
  bool spaced_ = false;
  std::string name_, last_tag_;
  std::vector<std::string> words_, markers_;
};

}  // namespace

CallHead read_call_head(CallContext context, std::string_view text, std::size_t marker_size, bool end,
                        AnswerSink& sink) {
  return HeadParser(context, text, marker_size, end, sink).parse();
}

}  // namespace forge::text
