// Calls as JSON objects: {"name": ..., "arguments": {...}} in the spellings of several models, alone or in a list.

#include <nlohmann/json.hpp>
#include <utility>

#include "text/answer/call_reader.h"
#include "text/answer/json_scanner.h"
#include "text/answer/white_space.h"

namespace forge::text {
namespace {

constexpr std::size_t kHeldArgumentsMax = 1u << 20;

enum class Key : std::uint8_t { kName, kArguments, kId, kFunction, kOther };

/// The template's own words count first.
Key key_of(std::string_view key, const AnswerFormat& format) {
  if (key == format.name_key) return Key::kName;
  if (key == format.arguments_key) return Key::kArguments;
  if (key == "name" || key == "tool_name" || key == "function_name") return Key::kName;
  if (key == "arguments" || key == "parameters" || key == "args" || key == "input") return Key::kArguments;
  if (key == "id" || key == "tool_call_id" || key == "call_id") return Key::kId;
  return key == "function" ? Key::kFunction : Key::kOther;
}

class JsonCalls final : public CallReader {
 public:
  JsonCalls(CallContext context, std::string held, bool bare) : context_(context), bare_(bare) {
    held_ = std::move(held);
  }

  Step step(std::string_view in, bool /*end*/, std::size_t& used, AnswerSink& sink) override {
    for (used = 0; used < in.size();) {
      const Scan scan = put(in[used], sink);
      if (scan == Scan::kBad) return committed_ ? Step::kBad : Step::kFail;
      if (scan != Scan::kDoneBefore) {
        if (!committed_) held_ += in[used];
        ++used;
      }
      if (ended_) return any_ ? Step::kDone : Step::kFail;
    }
    return Step::kMore;
  }
  [[nodiscard]] bool certain() const override { return !bare_ || context_.tools->has(name_); }

 private:
  enum class State : std::uint8_t {
    kStart,
    kObject,
    kKey,
    kText,
    kColon,
    kValue,
    kSkip,
    kArguments,
    kDecode,
    kNext,
    kNextCall
  };

  Scan put(char c, AnswerSink& sink) {
    switch (state_) {
      case State::kText:
        return text(c, sink);
      case State::kSkip:
        return skip(c);
      case State::kArguments:
        return arguments(c, sink);
      case State::kDecode:
        return decode(c, sink);
      default:
        break;
    }
    if (is_space(c)) return Scan::kMore;
    switch (state_) {
      case State::kStart:
        if (c == '[' && !list_) {
          list_ = true;
          return Scan::kMore;
        }
        if (c != '{') return Scan::kBad;
        begin_call();
        return Scan::kMore;
      case State::kObject:
      case State::kKey:
        if (c == '}' && state_ == State::kObject) return end_object(sink);
        return c == '"' ? begin_text(Key::kOther, true) : Scan::kBad;
      case State::kColon:
        state_ = State::kValue;
        return c == ':' ? Scan::kMore : Scan::kBad;
      case State::kValue:
        return value(c, sink);
      case State::kNext:
        if (c == '}') return end_object(sink);
        state_ = State::kKey;
        return c == ',' ? Scan::kMore : Scan::kBad;
      default:  // kNextCall
        if (c == ']') {
          ended_ = true;
          return Scan::kMore;
        }
        if (c != ',') return Scan::kBad;
        committed_ = false;
        held_.clear();
        state_ = State::kStart;
        return Scan::kMore;
    }
  }

  void begin_call() {
    name_.clear();
    id_.clear();
    waiting_.clear();
    committed_ = has_arguments_ = false;
    nested_ = 0;
    state_ = State::kObject;
  }

  Scan begin_text(Key key, bool is_key) {
    key_ = key;
    text_is_key_ = is_key;
    text_ = "\"";
    escaped_ = false;
    state_ = State::kText;
    return Scan::kMore;
  }

  /// A key, a name or an id: short strings, kept whole.
  Scan text(char c, AnswerSink& sink) {
    text_ += c;
    if (text_.size() > kNameBytesMax * 6) return Scan::kBad;
    if (escaped_ || c == '\\') {
      escaped_ = !escaped_;
      return Scan::kMore;
    }
    if (c != '"') return Scan::kMore;
    const auto json = nlohmann::json::parse(text_, nullptr, false);
    if (!json.is_string()) return Scan::kBad;
    const auto& plain = json.get_ref<const std::string&>();
    state_ = State::kNext;
    if (text_is_key_) {
      key_ = key_of(plain, *context_.format);
      key_text_ = plain;
      state_ = State::kColon;
    } else if (key_ == Key::kName) {
      return set_name(plain, sink);
    } else {
      id_ = plain;
      if (committed_) sink.id(id_);
    }
    return Scan::kMore;
  }

  Scan set_name(const std::string& name, AnswerSink& sink) {
    if (name.empty() || !name_.empty() || (bare_ && !context_.tools->has(name))) return Scan::kBad;
    name_ = name;
    if (!bare_) commit(sink);
    return Scan::kMore;
  }

  void commit(AnswerSink& sink) {
    if (committed_) return;
    committed_ = any_ = true;
    held_.clear();
    sink.call(name_, id_);
    sink.arguments(std::exchange(waiting_, {}));
  }

  Scan value(char c, AnswerSink& sink) {
    const bool by_key =
        context_.format->name_is_key && name_.empty() && nested_ == 0 && key_ == Key::kOther && c == '{';
    if (by_key) {
      if (const Scan scan = set_name(key_text_, sink); scan == Scan::kBad) return scan;
      key_ = Key::kArguments;
    }
    if ((key_ == Key::kName || key_ == Key::kId) && c == '"') return begin_text(key_, false);
    // "function" is the call itself in the nested form, or its name.
    if (key_ == Key::kFunction && c == '{' && nested_ == 0) {
      ++nested_;
      state_ = State::kObject;
      return Scan::kMore;
    }
    if (key_ == Key::kFunction && c == '"') return begin_text(Key::kName, false);
    if (key_ == Key::kName) return Scan::kBad;
    // Without a marker, a call begins with its name.
    if (bare_ && name_.empty() && !(key_ == Key::kOther && key_text_ == "type")) return Scan::kBad;
    if (key_ == Key::kArguments && !has_arguments_) {
      has_arguments_ = true;
      if (bare_) commit(sink);
      if (c == '"') {
        escape_.clear();
        state_ = State::kDecode;
        return Scan::kMore;
      }
      scanner_ = JsonScanner();
      state_ = State::kArguments;
      return arguments(c, sink);
    }
    scanner_ = JsonScanner();
    state_ = State::kSkip;
    return skip(c);
  }

  Scan skip(char c) {
    const Scan scan = scanner_.put(c);
    if (scan == Scan::kDone || scan == Scan::kDoneBefore) state_ = State::kNext;
    return scan == Scan::kDone ? Scan::kMore : scan;
  }

  Scan arguments(char c, AnswerSink& sink) {
    const Scan scan = scanner_.put(c);
    if (scan == Scan::kMore || scan == Scan::kDone)
      if (!give({&c, 1}, sink)) return Scan::kBad;
    if (scan == Scan::kDone || scan == Scan::kDoneBefore) state_ = State::kNext;
    return scan == Scan::kDone ? Scan::kMore : scan;
  }

  /// Arguments as a string that holds JSON.
  Scan decode(char c, AnswerSink& sink) {
    if (escape_.empty() && c == '"') {
      state_ = State::kNext;
      return Scan::kMore;
    }
    if (escape_.empty() && c != '\\')
      return static_cast<unsigned char>(c) >= 0x20 && give({&c, 1}, sink) ? Scan::kMore : Scan::kBad;
    escape_ += c;
    const bool unicode = escape_.size() >= 2 && escape_[1] == 'u';
    if (escape_.size() < (unicode ? 6u : 2u)) return Scan::kMore;
    const bool high = unicode && (escape_[2] == 'd' || escape_[2] == 'D') &&
                      std::string_view("89abAB").find(escape_[3]) != std::string_view::npos;
    if (high && escape_.size() < 12) return Scan::kMore;
    const auto json = nlohmann::json::parse('"' + std::exchange(escape_, {}) + '"', nullptr, false);
    return json.is_string() && give(json.get_ref<const std::string&>(), sink) ? Scan::kMore : Scan::kBad;
  }

  /// Arguments that come before the name wait for it.
  bool give(std::string_view text, AnswerSink& sink) {
    if (committed_)
      sink.arguments(text);
    else
      waiting_ += text;
    return waiting_.size() <= kHeldArgumentsMax;
  }

  Scan end_object(AnswerSink& sink) {
    if (nested_ > 0) {
      --nested_;
      state_ = State::kNext;
      return Scan::kMore;
    }
    if (name_.empty() || (bare_ && !has_arguments_)) return Scan::kBad;
    commit(sink);
    if (!has_arguments_) sink.arguments("{}");
    ended_ = !list_;
    state_ = State::kNextCall;
    return Scan::kMore;
  }

  CallContext context_;
  bool bare_, list_ = false, committed_ = false, any_ = false, ended_ = false, has_arguments_ = false;
  bool text_is_key_ = false, escaped_ = false;
  int nested_ = 0;
  State state_ = State::kStart;
  Key key_ = Key::kOther;
  std::string name_, id_, key_text_, text_, escape_, waiting_;
  JsonScanner scanner_;
};

class JsonArguments final : public CallReader {
 public:
  Step step(std::string_view in, bool /*end*/, std::size_t& used, AnswerSink& sink) override {
    for (used = 0; used < in.size(); ++used) {
      const Scan scan = scanner_.put(in[used]);
      if (scan == Scan::kMore) continue;
      if (scan == Scan::kDone) ++used;
      sink.arguments(in.substr(0, used));
      return scan == Scan::kBad ? Step::kBad : Step::kDone;
    }
    sink.arguments(in);
    return Step::kMore;
  }

 private:
  JsonScanner scanner_;
};

}  // namespace

std::unique_ptr<CallReader> read_json_calls(CallContext context, std::string held, bool bare) {
  return std::make_unique<JsonCalls>(context, std::move(held), bare);
}

std::unique_ptr<CallReader> read_json_arguments() {
  return std::make_unique<JsonArguments>();
}

}  // namespace forge::text
