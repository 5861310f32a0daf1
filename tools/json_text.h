#pragma once
// JSON for people and scripts to read: values are written in order, nothing is held in memory.

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace forge::tools {

/// `text` quoted and escaped; bytes that are no UTF-8 come out as U+FFFD.
[[nodiscard]] std::string json_string(std::string_view text);
/// Shortest text that reads back as the same number; null for NaN and infinities, which JSON lacks.
[[nodiscard]] std::string json_number(double value);

/// Builds one JSON text. Two spaces of indentation a level; arrays of numbers stay in one line.
class JsonWriter {
 public:
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
    std::string text = "[";
    for (const auto& value : values) {
      if (text.size() > 1) text += ", ";
      if constexpr (std::floating_point<T>) {
        text += json_number(value);
      } else if constexpr (std::integral<T>) {
        text += fmt::format("{}", value);
      } else {
        text += json_string(value);
      }
    }
    return member(key, text + "]");
  }
  JsonWriter& item(std::string_view text) { return element(json_string(text)); }

  /// Ends the text with a newline. Precondition: everything that was opened is closed.
  [[nodiscard]] std::string take();

 private:
  JsonWriter& member(std::string_view key, std::string_view value);
  JsonWriter& element(std::string_view value);
  void begin_line();

  std::string text_;
  std::string open_;   // closing brackets still owed
  bool first_ = true;  // no element in the innermost bracket yet
};

}  // namespace forge::tools
