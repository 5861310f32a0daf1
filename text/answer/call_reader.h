#pragma once
// Readers of the text of tool calls, one for each way of writing arguments. A reader gets what is not read yet, takes
// what it can, and is called again with more.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "text/answer/answer_format.h"
#include "text/answer/answer_sink.h"
#include "text/answer/tool_types.h"

namespace forge::text {

enum class Step : std::uint8_t {
  kMore,  ///< needs more text
  kDone,  ///< the call, or the list of calls, is complete
  kFail,  ///< no call: held() is content
  kBad,   ///< malformed inside a call whose name is out: the rest up to a closer is its arguments as they are
};

class CallReader {
 public:
  virtual ~CallReader() = default;
  /// Reads from `in`; `used` is set to the bytes taken. `end`: nothing follows `in`.
  virtual Step step(std::string_view in, bool end, std::size_t& used, AnswerSink& sink) = 0;
  /// The end of a text that no limit cut, inside the call: completes arguments of which only the end is missing.
  virtual void end(AnswerSink& /*sink*/) {}
  /// Text that was taken but is part of no call yet.
  [[nodiscard]] const std::string& held() const { return held_; }
  /// Whether held() begins a call for certain, so that it is no content if the token limit cut it.
  [[nodiscard]] virtual bool certain() const { return true; }

 protected:
  std::string held_;
};

/// What the readers know about a conversation.
struct CallContext {
  const AnswerFormat* format;
  const ToolTypes* tools;
};

constexpr std::size_t kNameBytesMax = 256;  ///< of a tool, a parameter or an id

/// True if `name` can be a tool's name.
[[nodiscard]] bool is_tool_name(std::string_view name);

/// JSON objects with name and arguments, or lists of them. `held`: the marker before. `bare`: no marker, so a call only
/// if a tool of that name is offered.
std::unique_ptr<CallReader> read_json_calls(CallContext context, std::string held, bool bare);
/// The arguments of a call whose name is out, as JSON.
std::unique_ptr<CallReader> read_json_arguments();
/// The arguments of a call whose name is out, in braces as LiteralReader has them.
std::unique_ptr<CallReader> read_literal_arguments(std::string quote);
/// [f(a=1), g()] or f(a=1). `bare` as above.
std::unique_ptr<CallReader> read_python_calls(CallContext context, std::string held, bool bare);
/// An element that holds the name, <function=NAME> or <invoke name="NAME">, and one element for each parameter.
/// `held`: the marker before; may be empty.
std::unique_ptr<CallReader> read_element_call(CallContext context, std::string held);
/// <arg_key>KEY</arg_key><arg_value>VALUE</arg_value>... of a call whose name is out.
std::unique_ptr<CallReader> read_keyed_arguments(CallContext context, std::string name);

}  // namespace forge::text
