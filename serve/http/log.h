#pragma once
// Structured lines on stderr: one an event, as text for people or as JSON for collectors.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

namespace forge::serve {

enum class LogLevel : std::uint8_t { kError, kWarning, kInfo };

class Log {
 public:
  enum class Format : std::uint8_t { kText, kJson };
  using Value = std::variant<std::string_view, double, std::int64_t, bool>;
  struct Field {
    std::string_view name;
    Value value;
  };

  Log(Format format, LogLevel most) : format_(format), most_(most) {}
  /// From any thread; a line is written with one call. Control characters come out as escapes.
  void write(LogLevel level, std::string_view event, std::initializer_list<Field> fields) const;
  /// The line without the newline; `time` as it is shown. For tests.
  [[nodiscard]] std::string line(LogLevel level, std::string_view event, std::initializer_list<Field> fields,
                                 std::string_view time) const;

 private:
  Format format_;
  LogLevel most_;
};

}  // namespace forge::serve
