#pragma once
// JSON Schema as a language of a RegularPool. See docs/rooms/text.md for what is taken.

#include <string_view>

#include "text/constraint/compile.h"

namespace forge::text::constraint {

/// The JSON texts that satisfy a schema, in a fixed style of white space. Errors: kUsage, one line that names the
/// keyword and its path, for malformed schemas and what is not supported; kMemory.
[[nodiscard]] Language compile_schema(RegularPool& pool, std::string_view schema);

}  // namespace forge::text::constraint
