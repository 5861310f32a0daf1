#pragma once
// How a model writes its answers: where reasoning begins and ends, and what begins a tool call. Found from the model's
// chat template, never from its name.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer/call_layout.h"
#include "text/answer/history_form.h"

namespace forge::text {

/// How calls and reasoning look. What follows an opener (JSON, elements, keys and values, literals) is read from the
/// text itself, because one marker is used for several of them.
struct AnswerFormat {
  std::vector<std::string> openers;  ///< each begins a list of calls, or one call
  std::vector<std::string>
      elements;                      ///< beginnings of a tag that holds the tool's name: `<function=`, `<invoke name="`
  std::vector<std::string> closers;  ///< end a call or a list of them; dropped after a call
  std::vector<std::string> dropped;  ///< surround content: `<|START_RESPONSE|>`
  std::string think_open, think_close;  ///< around reasoning; empty if the model has none
  std::string opened_by_prompt;         ///< the turn's header, if it is followed by an open reasoning block
  std::string separator;                ///< between name and arguments, if it is no marker
  std::string name_key, arguments_key;  ///< in calls that are JSON, where the template has words of its own for them
  std::string key_tag;                  ///< around a parameter's name: `<arg_key>`
  std::string id_marker;                ///< between a name and the call's id
  std::string quote;                    ///< around strings of arguments in braces: `<|"|>`
  std::vector<std::string> tokens;      ///< the vocabulary's control tokens that answers are written with
  bool braces = false;                  ///< arguments in braces are literals with unquoted keys, not JSON
  bool bare_json = false;               ///< an answer that is a JSON object with a tool's name is a call
  bool bare_json_list = false;          ///< the same for a list of such objects
  bool bare_list = false;               ///< an answer that is a list of Python calls is a call
  bool bare_name = false;               ///< an answer that is a tool's name, a newline and JSON is a call
  bool name_is_key = false;      ///< {"get_weather": {...}} instead of {"name": "get_weather", "arguments": {...}}
  bool name_is_tag = false;      ///< <get_weather>...</get_weather> inside an opener
  bool strips_newlines = false;  ///< a value between tags has a newline of its own on both sides
  bool cdata = false;            ///< a value may be a CDATA section
  bool channels = false;         ///< harmony: messages with a channel and a recipient
  bool recipients = false;       ///< `>>>NAME` and a newline before arguments, `>>>all` before content
  CallLayout layout;             ///< how calls are written
  HistoryForm history;
  bool calls_are_text = false;  ///< with channels or recipients: a call is content

  /// Whether calls have no marker before them.
  [[nodiscard]] bool is_bare() const { return bare_json || bare_json_list || bare_list || bare_name; }
  [[nodiscard]] bool has_calls() const {
    return !openers.empty() || !elements.empty() || is_bare() || channels || recipients;
  }
  /// The format of answers of a conversation without tools: reasoning, and all else is content.
  [[nodiscard]] AnswerFormat without_calls() const;
  /// For a template that knows no calls: a format of them that the model can be told of.
  [[nodiscard]] AnswerFormat with_described_calls() const;
};

/// Whether an answer to this prompt begins inside a reasoning block, which the end of the prompt has opened. What
/// messages say of the markers does not count.
[[nodiscard]] bool prompt_opens_reasoning(const AnswerFormat& format, std::string_view prompt);

/// The format of a model's answers. `source`: its chat template; `control_tokens`: texts of the vocabulary's control
/// tokens, which tell what a template does not print. A template that cannot be parsed or rendered is searched for
/// markers only. Errors: none; an unknown template without markers gives a format without calls.
[[nodiscard]] AnswerFormat find_answer_format(std::string_view source, std::span<const std::string> control_tokens,
                                              std::string_view bos_token = {}, std::string_view eos_token = {});

}  // namespace forge::text
