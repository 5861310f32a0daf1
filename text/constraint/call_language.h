#pragma once
// The language of tool calls' texts: literals, JSON by schemas, free text up to a tag, choices.

#include <functional>
#include <string_view>

#include "text/constraint/compile.h"
#include "text/constraint/regular.h"

namespace forge::text::constraint {

/// `pieces`: JSON as text::pieces_json (text/answer/call_grammar.h) writes it. `schema`: the language of the JSON texts
/// that a schema, given as JSON, allows; its errors are passed on. Errors: kUsage if `pieces` has another form;
/// kMemory.
[[nodiscard]] Expr call_language(RegularPool& pool, std::string_view pieces,
                                 const std::function<Expr(std::string_view schema)>& schema);

/// The same with schemas as compile_schema takes them. Errors: its errors, too.
[[nodiscard]] Language compile_calls(RegularPool& pool, std::string_view pieces);

}  // namespace forge::text::constraint
