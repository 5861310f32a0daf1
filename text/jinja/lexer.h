#pragma once
// Splits a template into tokens: literal text, and the contents of {{ }} and {% %}. White space around tags is already
// removed as trim_blocks and lstrip_blocks demand, both of which are on, as in Hugging Face's chat templates.
// Reference: Jinja's template designer documentation, https://jinja.palletsprojects.com/en/3.1.x/templates/.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace forge::text::jinja {

/// The kinds of token. Comments and raw blocks leave no token of their own.
enum class Tok : std::uint8_t {
  kText,           ///< literal text outside tags
  kVariableBegin,  ///< {{
  kVariableEnd,
  kBlockBegin,  ///< {%
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

/// One token; `integer` or `real` is set for numbers.
struct Token {
  Tok type;
  std::uint32_t pos;  ///< byte offset into the normalised source
  std::string text;   ///< literal text, name, decoded string or operator
  std::int64_t integer = 0;
  double real = 0;
};

/// Thrown for a template that cannot be parsed. `pos` is a byte offset into the normalised source.
struct SyntaxError {
  std::uint32_t pos;
  std::string message;
};

/// The source as jinja2 reads it: CRLF and CR become LF, and one newline at the end is dropped.
[[nodiscard]] std::string normalise_source(std::string_view source);

/// The tokens of a normalised source; the last one is kEnd. Throws SyntaxError.
[[nodiscard]] std::vector<Token> tokenize(std::string_view source);

}  // namespace forge::text::jinja
