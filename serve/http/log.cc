#include "serve/http/log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "support/error.h"
#include "support/json_text.h"

namespace forge::serve {
namespace {

constexpr std::size_t kTextMax = 500;

std::string_view level_name(LogLevel level) {
  return level == LogLevel::kError ? "error" : level == LogLevel::kWarning ? "warning" : "info";
}

std::string utc_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(now);
  const auto part = std::chrono::duration_cast<std::chrono::milliseconds>(now - whole);
  return fmt::format("{:%FT%T}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(whole.count())), part.count());
}

/// A value as text: quoted where it has anything but plain characters.
std::string shown(std::string_view text) {
  const auto plain = printable(text, kTextMax);
  return plain.empty() || plain.find_first_of(" =\"") != std::string::npos ? json_string(plain) : plain;
}

}  // namespace

std::string Log::line(LogLevel level, std::string_view event, std::initializer_list<Field> fields,
                      std::string_view time) const {
  if (format_ == Format::kJson) {
    JsonWriter json(JsonLayout::kCompact);
    json.open('{').field("time", time).field("level", level_name(level)).field("event", event);
    for (const auto& field : fields) {
      if (const auto* text = std::get_if<std::string_view>(&field.value))
        json.field(field.name, printable(*text, kTextMax));
      else if (const auto* real = std::get_if<double>(&field.value))
        json.field(field.name, *real);
      else if (const auto* whole = std::get_if<std::int64_t>(&field.value))
        json.field(field.name, *whole);
      else
        json.field(field.name, std::get<bool>(field.value));
    }
    return json.close().take();
  }
  auto text = fmt::format("{} {} {}", time, level_name(level), event);
  for (const auto& field : fields) {
    text += fmt::format(" {}=", field.name);
    if (const auto* words = std::get_if<std::string_view>(&field.value))
      text += shown(*words);
    else
      text += std::visit(
          [](const auto& value) {
            if constexpr (std::is_same_v<std::decay_t<decltype(value)>, double>)
              return fmt::format("{:.3f}", value);
            else
              return fmt::format("{}", value);
          },
          field.value);
  }
  return text;
}

void Log::write(LogLevel level, std::string_view event, std::initializer_list<Field> fields) const {
  if (level > most_) return;
  const auto text = line(level, event, fields, utc_now()) + "\n";
  (void)!::write(STDERR_FILENO, text.data(), text.size());  // a log that cannot be written is no reason to stop
}

}  // namespace forge::serve
