#pragma once
// The formats of JSON Schema as languages.

#include <optional>
#include <string_view>

#include "text/constraint/regular.h"

namespace forge::text::constraint {

enum class SchemaFormat : std::uint8_t { kKnown, kUnknown, kUnsupported };

/// The texts of a format. kUnknown formats mean nothing (JSON Schema 2020-12, 7.2.3), kUnsupported ones are not
/// regular.
[[nodiscard]] SchemaFormat format_texts(RegularPool& pool, std::string_view format, Expr& texts);

}  // namespace forge::text::constraint
