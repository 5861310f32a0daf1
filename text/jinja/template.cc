#include "text/jinja/template.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "support/error.h"
#include "text/jinja/ast.h"
#include "text/jinja/interp.h"
#include "text/jinja/lexer.h"
#include "text/jinja/pytext.h"

namespace forge::text::jinja {
namespace {

/// "chat template, line 3, column 14". Both count from 1; columns count code points.
std::string place(std::string_view source, std::uint32_t pos) {
  const std::string_view before = source.substr(0, std::min<std::size_t>(pos, source.size()));
  const auto line = std::ranges::count(before, '\n') + 1;
  const std::string_view start = before.substr(before.rfind('\n') + 1);  // npos + 1 is 0
  return fmt::format("chat template, line {}, column {}", line, utf8_length(start).value_or(start.size()) + 1);
}

/// Reads exactly `count` digits of `text` at `at` into `out`; false if they are not all there.
bool read_digits(std::string_view text, std::size_t at, std::size_t count, int& out) {
  if (text.size() < at + count) return false;
  const auto result = std::from_chars(text.data() + at, text.data() + at + count, out);
  return result.ec == std::errc() && result.ptr == text.data() + at + count && text[at] != '-';
}

}  // namespace

Clock Clock::local_now() {
  const auto moment = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(moment);
  Clock clock;
  localtime_r(&seconds, &clock.fields);
  const auto rest = moment - std::chrono::system_clock::from_time_t(seconds);
  clock.microseconds = static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(rest).count());
  // to_time_t may round up instead of down.
  clock.microseconds = std::max(clock.microseconds, 0);
  return clock;
}

Clock Clock::parse(std::string_view iso) {
  Clock clock;
  int year = 0, month = 0, day = 0;
  bool good = read_digits(iso, 0, 4, year) && read_digits(iso, 5, 2, month) && read_digits(iso, 8, 2, day) &&
              iso[4] == '-' && iso[7] == '-';
  std::tm& fields = clock.fields;
  if (good && iso.size() > 10) {
    good = (iso[10] == 'T' || iso[10] == ' ') && read_digits(iso, 11, 2, fields.tm_hour) && iso.size() > 13 &&
           iso[13] == ':' && read_digits(iso, 14, 2, fields.tm_min);
    if (good && iso.size() > 16) good = iso[16] == ':' && read_digits(iso, 17, 2, fields.tm_sec);
    if (good && iso.size() > 19) {
      std::string digits(iso.substr(20, 6));
      good = iso[19] == '.' && !digits.empty() && iso.size() <= 26;
      digits.resize(6, '0');
      good = good && read_digits(digits, 0, 6, clock.microseconds);
    }
  }
  using namespace std::chrono;
  const year_month_day date(std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                            std::chrono::day(static_cast<unsigned>(day)));
  if (!good || !date.ok() || fields.tm_hour > 23 || fields.tm_min > 59 || fields.tm_sec > 59)
    throw Error(ErrorCode::kUsage, fmt::format("'{}' is not a time", printable(iso)), "", "write 2026-01-15T12:30:00");
  const sys_days days = date;
  fields.tm_year = year - 1900;
  fields.tm_mon = month - 1;
  fields.tm_mday = day;
  fields.tm_wday = static_cast<int>(weekday(days).c_encoding());
  fields.tm_yday = static_cast<int>((days - sys_days(date.year() / January / 1)).count());
  fields.tm_isdst = -1;
  return clock;
}

ChatTemplate::ChatTemplate(std::unique_ptr<const Program> program) : program_(std::move(program)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

ChatTemplate ChatTemplate::parse(std::string_view source) {
  if (source.size() > kSourceBytesMax)
    throw Error(ErrorCode::kTemplate, fmt::format("the chat template has {} bytes", source.size()),
                fmt::format("at most {} are read", kSourceBytesMax));
  if (!utf8_length(source)) throw Error(ErrorCode::kTemplate, "the chat template is not valid UTF-8");
  std::string normal = normalise_source(source);
  const std::string kept = normal;
  try {
    return ChatTemplate(parse_program(std::move(normal)));
  } catch (const SyntaxError& error) {
    throw Error(ErrorCode::kTemplate, place(kept, error.pos), error.message);
  } catch (const EvalError& error) {
    throw Error(ErrorCode::kTemplate, "chat template", error.what());
  }
}

std::string ChatTemplate::render(const Dict& context, const Clock& now, const RenderLimits& limits) const {
  Interp interp(*program_, context, now, limits);
  try {
    return interp.run();
  } catch (const EvalError& error) {
    throw Error(ErrorCode::kTemplate, place(program_->source, interp.position()), error.what());
  } catch (const RaisedException& refusal) {
    throw Error(ErrorCode::kTemplate, place(program_->source, interp.position()),
                fmt::format("the template refuses this conversation: {}", refusal.message),
                "change the messages to what the model was trained for");
  }
}

}  // namespace forge::text::jinja
