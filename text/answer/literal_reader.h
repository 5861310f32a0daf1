#pragma once
// Turns arguments written as literals of Python, f(city='Kyoto', days=3), or in braces with unquoted keys,
// {city:<|"|>Kyoto<|"|>,days:3}, into the text of a JSON object, byte by byte.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer/json_scanner.h"

namespace forge::text {

class LiteralReader {
 public:
  static constexpr std::size_t kDepthMax = 256;

  /// `quote`: the marker around strings besides ' and "; empty if there is none. Begins with '<' and has no other one.
  explicit LiteralReader(std::string quote) : quote_(std::move(quote)) {}

  /// Reads a byte of the arguments, whose first is '(' , '{' or, for a value alone, any. JSON text is added to `out`.
  [[nodiscard]] Scan put(char c, std::string& out);
  /// A value alone may be any literal, not only an object.
  [[nodiscard]] bool at_top() const { return open_.empty(); }

 private:
  enum class State : std::uint8_t {
    kValue,
    kValueOrEnd,
    kKey,
    kKeyOrEnd,
    kBareKey,
    kColon,
    kNext,
    kString,
    kEscape,
    kCode,
    kQuote,
    kWord
  };
  Scan begin_value(char c, std::string& out);
  void separate(std::string& out);
  [[nodiscard]] bool begins_string(char c) const;
  Scan begin_string(char c, std::string& out);
  Scan end_string(std::string& out);
  Scan end_word(std::string& out);
  Scan close(std::string& out);
  Scan text(char c, std::string& out);
  Scan escape(char c, std::string& out);
  Scan code(char c, std::string& out);
  std::string quote_;
  State state_ = State::kValue;
  std::vector<char> open_;
  bool in_key_ = false, comma_ = false, marked_ = false;  // marked_: the string is between quote_ markers
  char string_end_ = '\0';
  std::size_t matched_ = 0;  // bytes of quote_ seen
  int code_digits_ = 0;
  std::string word_;
};

/// The JSON text of `text`, one Python literal; empty if it is none.
[[nodiscard]] std::string json_of_literal(std::string_view text);

}  // namespace forge::text
