#pragma once
// What the text of tool calls must look like, for a constraint on generation, and the text of one call.
//
// The grammar has the calls only. What may come before (reasoning, and content if calls are optional) and the tokens
// that end a turn are up to the caller; a piece at either end that repeats what the prompt ends with, or that spells
// such a token, is dropped by him with trim_literals.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer/call_layout.h"

namespace forge::text {

/// A part of a text. A list of pieces is their sequence.
struct CallPiece {
  enum class Kind : std::uint8_t {
    kLiteral,   ///< `text`
    kSchema,    ///< JSON that the schema `text` allows, or the one in it that `at` points to
    kTagged,    ///< the same as its reader takes it between tags: strings as they are; ends before `until`
    kText,      ///< any text without `text` in it
    kId,        ///< nine letters or digits
    kIndex,     ///< a whole number
    kKey,       ///< a parameter's name, any
    kChoice,    ///< one of `parts`
    kOptional,  ///< parts[0] or nothing
    kRepeat,    ///< parts[0] any number of times, or not at all
  };
  Kind kind = Kind::kLiteral;
  std::string text = {};
  std::string at = {}, until = {};
  std::vector<std::string> types = {};  ///< kTagged: the JSON types that its reader looks for; empty: unknown
  std::string key = {};                 ///< the parameter whose value this is; empty: of all of them, or no value
  std::vector<std::vector<CallPiece>> parts = {};
};

/// The calls of the tools in `tools`, OpenAI's list as JSON; `only`: of the tool of this name, empty: of any.
/// `several`: one call or more, else exactly one. `strict`: names of the tools whose arguments must obey their
/// schemas, if not those of all; arguments of others are any object. Empty if the layout is unknown or no tool is left.
/// Error: kUsage if `tools` is no list of tools.
[[nodiscard]] std::vector<CallPiece> call_grammar(const CallLayout& layout, std::string_view tools,
                                                  std::string_view only, bool several,
                                                  std::optional<std::span<const std::string>> strict = std::nullopt);
/// The tools' names. Error: as above.
[[nodiscard]] std::vector<std::string> tool_names(std::string_view tools);

/// Shortens the literals at both ends: at the beginning by what `prompt` ends with, at the end by one of `turn_ends`.
void trim_literals(std::vector<CallPiece>& pieces, std::string_view prompt, std::span<const std::string> turn_ends);

/// The pieces as JSON, for text::constraint::call_language: a string is a literal; {"schema": TEXT},
/// {"schema": TEXT, "at": POINTER}, {"value": TEXT, "at": POINTER, "until": TEXT, "types": [...]}, {"until": TEXT},
/// {"id": 9}, {"index": true}, {"key": true}, {"choice": [PIECES, ...]}, {"optional": PIECES}, {"repeat": PIECES}.
[[nodiscard]] std::string pieces_json(std::span<const CallPiece> pieces);

/// The text of an answer's calls. Arguments are objects as JSON, or a JSON string that is printed as it is. Empty if
/// the layout is unknown.
struct WrittenCall {
  std::string name, arguments;
  std::string id;  ///< nine letters or digits, where the layout has one; empty: zeros
};
[[nodiscard]] std::string calls_text(const CallLayout& layout, std::span<const WrittenCall> calls);

/// JSON with spaces after ',' and ':', as templates print it. `json` must be valid.
[[nodiscard]] std::string spaced_json(std::string_view json);

}  // namespace forge::text
