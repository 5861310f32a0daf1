#pragma once
// Follows one JSON value byte by byte (source: RFC 8259), without keeping it.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace forge::text {

/// What a reader made of a byte.
enum class Scan : std::uint8_t {
  kMore,        ///< taken; the value goes on
  kDone,        ///< taken; the value is complete
  kDoneBefore,  ///< not taken: the value ended before this byte
  kBad,         ///< not taken: it cannot be here
};

class JsonScanner {
 public:
  static constexpr std::size_t kDepthMax = 512;

  [[nodiscard]] Scan put(char c);

 private:
  enum class State : std::uint8_t {
    kValue,
    kValueOrEnd,
    kKey,
    kKeyOrEnd,
    kColon,
    kNext,
    kString,
    kEscape,
    kHex,
    kWord,
    kNumber
  };
  Scan ended();
  Scan begin_value(char c);
  Scan number(char c);
  State state_ = State::kValue;
  std::vector<char> open_;  // '{' or '[' of each open container
  bool in_key_ = false;
  int hex_left_ = 0;
  std::string_view word_;  // what is left of true, false or null
  enum class Part : std::uint8_t { kMinus, kZero, kInt, kPoint, kFraction, kE, kESign, kExponent } part_ = Part::kMinus;
};

/// True if `text` is one JSON value, perhaps with white space around it.
[[nodiscard]] bool is_json(std::string_view text);
/// A piece of a JSON string, without the quotes. Bytes above 0x7f stay, so a piece may end within a character; for a
/// whole string see json_string.
void append_json_escaped(std::string& out, std::string_view text);

}  // namespace forge::text
