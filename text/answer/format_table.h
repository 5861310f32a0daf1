#pragma once
// The table of what chat templates call things: the words in markers, by which a marker's role is known, and the
// formats whose templates do not print calls. Everything else is read off what the template renders.

#include <array>
#include <string_view>

namespace forge::text {

/// Words (see word_of) in the markers around reasoning.
inline constexpr std::array<std::string_view, 5> kThinkWords{"think", "thought", "reason", "innerprefix",
                                                             "innersuffix"};
/// Words in the markers that begin or end calls.
inline constexpr std::array<std::string_view, 7> kCallWords{"toolcall",    "functioncall", "toolsprefix", "toolssuffix",
                                                            "startaction", "endaction",    "toolinvo"};
/// Words that show that a marker with one of the above begins something else.
inline constexpr std::array<std::string_view, 6> kOtherWords{"result", "response", "output", "list", "arg", "name"};

/// Beginnings of tags that hold a tool's name, in templates that cannot be rendered.
inline constexpr std::array<std::string_view, 3> kElements{"<function=", "<function name=\"", "<invoke name=\""};

/// A format that the template only describes, or does not mention: if its text has `sign`, calls begin with `opener`.
struct UnprintedFormat {
  std::string_view sign, opener, closer;
};
inline constexpr std::array<UnprintedFormat, 3> kUnprintedFormats{{
    {"<|tool_list_start|>", "<|tool_call_start|>", "<|tool_call_end|>"},
    {"Action:", "Action:", "```"},
    {"<TOOLCALL>", "<TOOLCALL>", "</TOOLCALL>"},
}};

/// Harmony: messages with a channel and a recipient (source: https://cookbook.openai.com/articles/openai-harmony).
struct ChannelMarkers {
  std::string_view start = "<|start|>", channel = "<|channel|>", message = "<|message|>", constrain = "<|constrain|>";
  std::array<std::string_view, 3> ends{"<|end|>", "<|call|>", "<|return|>"};
};
inline constexpr ChannelMarkers kChannelMarkers;
/// A recipient's name and a newline follow; "all" is the user.
inline constexpr std::string_view kRecipientMark = ">>>";
/// Before calls of the built-in tools of Llama 3.
inline constexpr std::string_view kPythonTag = "<|python_tag|>";

}  // namespace forge::text
