#pragma once
// Writes JSON text in the order of the calls, without building a tree. Used for dumps, reports and server replies.

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace forge {

/// `text` quoted and escaped as a JSON string. Each byte that is not part of a well-formed UTF-8 character becomes
/// U+FFFD.
[[nodiscard]] std::string json_string(std::string_view text);
/// True if all of `text` is well-formed UTF-8.
[[nodiscard]] bool is_utf8(std::string_view text);
/// The shortest text that reads back as the same double; "null" for NaN and infinities, which JSON cannot represent.
[[nodiscard]] std::string json_number(double value);

/// Numbers or strings in brackets, `between` them.
template <class T>
std::string json_array(std::span<const T> values, std::string_view between = ", ") {
  std::string text = "[";
  for (const auto& value : values) {
    if (text.size() > 1) text += between;
    if constexpr (std::floating_point<T>) {
      text += json_number(value);
    } else if constexpr (std::integral<T>) {
      text += fmt::format("{}", value);
    } else {
      text += json_string(value);
    }
  }
  return text + "]";
}

enum class JsonLayout : std::uint8_t {
  kLines,    ///< for people: two spaces of indentation a level, arrays of numbers in one line
  kCompact,  ///< for programs: one line without spaces
};

/// Builds one JSON text.
class JsonWriter {
 public:
  explicit JsonWriter(JsonLayout layout = JsonLayout::kLines) : compact_(layout == JsonLayout::kCompact) {}

  JsonWriter& open(char bracket);                        ///< '{' or '['
  JsonWriter& open(std::string_view key, char bracket);  ///< the same as a member
  JsonWriter& close();

  JsonWriter& field(std::string_view key, std::string_view text) { return member(key, json_string(text)); }
  JsonWriter& field(std::string_view key, const char* text) { return member(key, json_string(text)); }
  JsonWriter& field(std::string_view key, bool value) { return member(key, value ? "true" : "false"); }
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  JsonWriter& field(std::string_view key, T value) {
    return member(key, fmt::format("{}", value));
  }
  JsonWriter& field(std::string_view key, double value) { return member(key, json_number(value)); }
  template <class T>
  JsonWriter& field(std::string_view key, std::span<const T> values) {
    return member(key, json_array(values, compact_ ? "," : ", "));
  }
  /// A member whose value is JSON already.
  JsonWriter& raw(std::string_view key, std::string_view json) { return member(key, json); }
  JsonWriter& item(std::string_view text) { return element(json_string(text)); }
  JsonWriter& raw_item(std::string_view json) { return element(json); }

  /// Ends the text, kLines with a newline. Precondition: everything that was opened is closed.
  [[nodiscard]] std::string take();

 private:
  JsonWriter& member(std::string_view key, std::string_view value);
  JsonWriter& element(std::string_view value);
  void begin_line();

  std::string text_;
  std::string open_;  // closing brackets still owed
  bool compact_;
  bool first_ = true;  // no element in the innermost bracket yet
};

}  // namespace forge
