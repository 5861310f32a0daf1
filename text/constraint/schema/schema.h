#pragma once
// JSON Schema as a language of a RegularPool. See docs/rooms/text.md for what is taken.

#include <string>
#include <string_view>
#include <vector>

#include "text/constraint/compile.h"

namespace forge::text::constraint {

/// The JSON texts that satisfy a schema, in a fixed style of white space. Errors: kUsage, one line that names the
/// keyword and its path, for malformed schemas and what is not supported; kMemory. `at`: JSON pointer of the schema in
/// this text; empty: all of it.
[[nodiscard]] Language compile_schema(RegularPool& pool, std::string_view schema, std::string_view at = {});

/// A value as calls have it whose arguments stand between tags: strings as they are, other values as JSON.
struct TaggedValue {
  std::string_view schema;
  std::string_view at;             ///< JSON pointer of the value's schema in it; empty: all of it
  std::string_view until;          ///< what ends the value; strings do not have it in them
  std::vector<std::string> types;  ///< JSON types that the reader looks for ("number" for all numbers); empty: any
};
/// The texts that the reader (text::json_of_value) takes for a value that the schema allows. It takes a text for a
/// string that is no value of the other types; where that is hard to tell, some strings are left out. Errors: the same.
[[nodiscard]] Language compile_tagged_value(RegularPool& pool, const TaggedValue& value);

}  // namespace forge::text::constraint
