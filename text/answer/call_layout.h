#pragma once
// The text around names and arguments when a model calls tools, as its template prints it.
//
//   open NAME name_end ARGUMENTS close [between NAME name_end ARGUMENTS close]... end

#include <string>
#include <string_view>

#include "text/answer/format_probe.h"

namespace forge::text {

/// Letters that stand for something else in a layout's texts.
inline constexpr char kNameMark = '\x01';   ///< the tool's name
inline constexpr char kIdMark = '\x02';     ///< an id of nine letters or digits
inline constexpr char kIndexMark = '\x03';  ///< the call's number, from 0
inline constexpr char kKeyMark = '\x04';    ///< in value_end: the parameter's name

struct CallLayout {
  enum class Arguments : std::uint8_t {
    kUnknown,   ///< calls of this format cannot be written
    kJson,      ///< one JSON object
    kTagged,    ///< key_begin KEY value_begin VALUE value_end for each; strings as they are, other values as JSON
    kLiterals,  ///< the same with key_between between them; values are JSON, strings between `quote` if there is one
  };
  Arguments arguments = Arguments::kUnknown;
  std::string open, name_end, close, between, end;
  bool several = false;  ///< `between` is known
  std::string key_begin, value_begin, value_end, key_between, quote;
};

/// The layout of the calls that `probe` has; kUnknown if it has none, or calls of an unknown form. `think_close`: what
/// ends reasoning, which is no part of the layout.
[[nodiscard]] CallLayout find_call_layout(const FormatProbe& probe, std::string_view think_close);

}  // namespace forge::text
