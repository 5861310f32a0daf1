#pragma once
// The language of tool calls' texts: literals, JSON by schemas, free text up to a tag, choices.

#include <functional>
#include <string_view>

#include "text/constraint/compile.h"
#include "text/constraint/regular.h"
#include "text/constraint/schema/schema.h"

namespace forge::text::constraint {

/// The languages of the values in calls, by what pieces say of them; their errors are passed on.
struct ValueLanguages {
  /// The JSON texts that the schema at a JSON pointer in `schema` allows.
  std::function<Expr(std::string_view schema, std::string_view at)> json;
  std::function<Expr(const TaggedValue& value)> tagged;
};

/// `pieces`: JSON as text::pieces_json (text/answer/call_grammar.h) writes it. Errors: kUsage if `pieces` has another
/// form; kMemory.
[[nodiscard]] Expr call_language(RegularPool& pool, std::string_view pieces, const ValueLanguages& values);

/// The same with schemas as compile_schema takes them. Errors: its errors, too.
[[nodiscard]] Language compile_calls(RegularPool& pool, std::string_view pieces);

}  // namespace forge::text::constraint
