// Calls as Python writes them, [f(a=1), g()], and arguments in braces with unquoted keys.

#include <utility>

#include "text/answer/call_reader.h"
#include "text/answer/literal_reader.h"
#include "text/answer/white_space.h"

namespace forge::text {
namespace {

class LiteralArguments final : public CallReader {
 public:
  explicit LiteralArguments(std::string quote) : reader_(std::move(quote)) {}
  Step step(std::string_view in, bool /*end*/, std::size_t& used, AnswerSink& sink) override {
    std::string out;
    Scan scan = Scan::kMore;
    for (used = 0; used < in.size() && scan == Scan::kMore;) {
      scan = reader_.put(in[used], out);
      if (scan == Scan::kMore || scan == Scan::kDone) ++used;
    }
    sink.arguments(out);
    return scan == Scan::kMore ? Step::kMore : scan == Scan::kBad ? Step::kBad : Step::kDone;
  }

 private:
  LiteralReader reader_;
};

class PythonCalls final : public CallReader {
 public:
  PythonCalls(CallContext context, std::string held, bool bare) : context_(context), bare_(bare) {
    held_ = std::move(held);
  }

  Step step(std::string_view in, bool end, std::size_t& used, AnswerSink& sink) override {
    std::string out;
    Step result = Step::kMore;
    for (used = 0; used < in.size() && result == Step::kMore;) result = put(in[used], used, out, sink);
    sink.arguments(out);
    if (result == Step::kMore && end && state_ == State::kNext && !list_) return Step::kDone;
    return result;
  }
  [[nodiscard]] bool certain() const override { return !bare_; }

 private:
  enum class State : std::uint8_t { kStart, kName, kFirst, kArguments, kNext };

  Step put(char c, std::size_t& used, std::string& out, AnswerSink& sink) {
    switch (state_) {
      case State::kStart:
        take(c, used);
        if (is_space(c)) return Step::kMore;
        if (c == '[' && !list_ && !any_) {
          list_ = true;
          return Step::kMore;
        }
        name_ = c;
        state_ = State::kName;
        return is_tool_name(name_) ? Step::kMore : Step::kFail;
      case State::kName:
        if (c != '(') {
          take(c, used);
          name_ += c;
          return is_tool_name(name_) ? Step::kMore : Step::kFail;
        }
        take(c, used);
        if (name_.ends_with(".call")) name_.resize(name_.size() - 5);
        if (name_.empty() || (bare_ && !context_.tools->has(name_))) return Step::kFail;
        first_.clear();
        state_ = State::kFirst;
        return Step::kMore;
      case State::kFirst: {
        // A call has arguments by name, or none; anything else is an expression.
        take(c, used);
        first_ += c;
        if (c != '=' && c != ')') return is_space(c) || is_tool_name({&c, 1}) ? bounded() : Step::kFail;
        const std::string_view word = trimmed(std::string_view(first_).substr(0, first_.size() - 1));
        if (c == ')' ? !word.empty() : !is_tool_name(word)) return Step::kFail;
        return start_call(out, sink);
      }
      case State::kArguments: {
        const Scan scan = reader_.put(c, out);
        if (scan == Scan::kBad) return Step::kBad;
        if (scan != Scan::kDoneBefore) ++used;
        if (scan != Scan::kMore) state_ = State::kNext;
        return Step::kMore;
      }
      case State::kNext:
        break;
    }
    if (is_space(c) || c == ';') {
      ++used;
      return Step::kMore;
    }
    if (c == ']' && list_) {
      ++used;
      return Step::kDone;
    }
    if (c == ',') {
      take(c, used);
    } else if (list_ || !is_tool_name({&c, 1})) {
      return Step::kDone;
    }
    state_ = State::kStart;
    return Step::kMore;
  }

  [[nodiscard]] Step bounded() const { return first_.size() > kNameBytesMax ? Step::kFail : Step::kMore; }

  Step start_call(std::string& out, AnswerSink& sink) {
    sink.arguments(std::exchange(out, {}));
    sink.call(name_, {});
    held_.clear();
    any_ = true;
    reader_ = LiteralReader({});
    state_ = State::kArguments;
    for (const char c : "(" + first_) {
      const Scan scan = reader_.put(c, out);
      if (scan == Scan::kBad) return Step::kBad;
      if (scan == Scan::kDone) state_ = State::kNext;
    }
    return Step::kMore;
  }

  void take(char c, std::size_t& used) {
    held_ += c;
    ++used;
  }

  CallContext context_;
  bool bare_, list_ = false, any_ = false;
  State state_ = State::kStart;
  std::string name_, first_;  // first_: from the bracket to '=' or ')'
  LiteralReader reader_{{}};
};

}  // namespace

bool is_tool_name(std::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax) return false;
  for (const char c : name) {
    const bool fits = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
                      c == '-' || c == '.' || c == ':' || c == '/';
    if (!fits) return false;
  }
  return true;
}

std::unique_ptr<CallReader> read_literal_arguments(std::string quote) {
  return std::make_unique<LiteralArguments>(std::move(quote));
}

std::unique_ptr<CallReader> read_python_calls(CallContext context, std::string held, bool bare) {
  return std::make_unique<PythonCalls>(context, std::move(held), bare);
}

}  // namespace forge::text
