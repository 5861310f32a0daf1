#pragma once
// Tokens of a template: text, and what stands between {{ }} and {% %}, with white-space control applied
// (trim_blocks and lstrip_blocks on, as Hugging Face renders chat templates). Reference: Jinja's template designer
// documentation, https://jinja.palletsprojects.com/en/3.1.x/templates/.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace forge::text::jinja {

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

struct Token {
  Tok type;
  std::uint32_t pos;  ///< byte offset into the normalised source
  std::string text;   ///< literal text, name, decoded string or operator
  std::int64_t integer = 0;
  double real = 0;
};

/// A template that does not read; `pos` is a byte offset into the normalised source.
struct SyntaxError {
  std::uint32_t pos;
  std::string message;
};

/// CRLF and CR become LF and one newline at the end goes, as jinja2 does before it reads.
[[nodiscard]] std::string normalise_source(std::string_view source);

/// The tokens of a normalised source, the last of them kEnd. Throws SyntaxError.
[[nodiscard]] std::vector<Token> tokenize(std::string_view source);

}  // namespace forge::text::jinja
