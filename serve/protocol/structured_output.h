#pragma once
// The members of a request body that constrain its text: OpenAI's response_format, and vLLM's and llama.cpp's own.

#include <optional>
#include <string>

#include "text/constraint/compile.h"

namespace forge::serve {

class Fields;

/// What a request's text must be.
struct StructuredOutput {
  text::constraint::ConstraintSource source;
  std::string member;  ///< that gave it, for errors
};

/// Reads response_format, structured_outputs, guided_json, guided_regex, guided_choice, guided_grammar, json_schema and
/// grammar. Throws Refused for a wrong value, and for a second one of them. The source itself is not checked here.
[[nodiscard]] std::optional<StructuredOutput> read_structured_output(Fields& fields);

}  // namespace forge::serve
