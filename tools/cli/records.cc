#include "tools/cli/records.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <span>

#include "support/error.h"
#include "support/json_text.h"

namespace forge::tools {
namespace {

constexpr std::array kFormats{std::pair{"md", RecordFormat::kMarkdown}, std::pair{"csv", RecordFormat::kCsv},
                              std::pair{"json", RecordFormat::kJson}, std::pair{"jsonl", RecordFormat::kJsonLines},
                              std::pair{"sql", RecordFormat::kSql}};

/// `text` between two `quote`s, each of its own doubled.
std::string quoted_value(std::string_view text, char quote) {
  std::string out(1, quote);
  for (const char c : text) out += c == quote ? std::string(2, quote) : std::string(1, c);
  return out + quote;
}

std::string json_value(const RecordValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return json_string(*text);
  if (const auto* number = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *number);
  if (const auto* real = std::get_if<double>(&value)) return json_number(*real);
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value)) return json_array(std::span(*list));
  return json_array(std::span(std::get<std::vector<double>>(value)));
}

std::string json_object(const Record& record, std::string_view begin, std::string_view between, std::string_view end) {
  std::string text(begin);
  for (const auto& [name, value] : record)
    text += fmt::format("{}{}: {}", text.size() > begin.size() ? between : "", json_string(name), json_value(value));
  return text.append(end);
}

bool is_list(const RecordValue& value) {
  return std::holds_alternative<std::vector<std::int64_t>>(value) || std::holds_alternative<std::vector<double>>(value);
}

/// Scalars of a record as `shown` makes them, with ", " between.
template <class Shown>
std::string joined(const Record& record, std::string_view between, Shown&& shown) {
  std::string text;
  bool first = true;
  for (const auto& [name, value] : record) {
    if (is_list(value)) continue;
    if (!first) text += between;
    text += shown(name, value);
    first = false;
  }
  return text;
}

/// A number as CSV and SQL have it; empty for one that is not finite.
std::string plain_number(const RecordValue& value) {
  if (const auto* real = std::get_if<double>(&value))
    return std::isfinite(*real) ? fmt::format("{:.6f}", *real) : std::string();
  return fmt::format("{}", std::get<std::int64_t>(value));
}

std::string csv_value(std::string_view, const RecordValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return quoted_value(*text, '"');
  return plain_number(value);
}

std::string sql_value(std::string_view, const RecordValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return quoted_value(*text, '\'');
  const auto number = plain_number(value);
  return number.empty() ? "NULL" : number;
}

std::string name_alone(std::string_view name, const RecordValue&) {
  return std::string(name);
}

std::string sql_column(std::string_view name, const RecordValue& value) {
  constexpr std::array kTypes{"TEXT", "INTEGER", "REAL"};  // in the order of RecordValue's
  return fmt::format("{} {}", name, kTypes.at(value.index()));
}

}  // namespace

RecordFormat record_format(const std::string& name) {
  for (const auto& [known, format] : kFormats)
    if (name == known) return format;
  throw Error(ErrorCode::kUsage, fmt::format("output format '{}' is unknown", printable(name)), {},
              fmt::format("formats are {}", kRecordFormats));
}

std::string RecordWriter::begin(const Record& names) const {
  switch (format_) {
    case RecordFormat::kJson:
      return "[\n";
    case RecordFormat::kCsv:
      return joined(names, ",", name_alone) + "\n";
    case RecordFormat::kSql:
      return fmt::format("CREATE TABLE IF NOT EXISTS {} (\n  {}\n);\n\n", table_, joined(names, ",\n  ", sql_column));
    default:
      return {};
  }
}

std::string RecordWriter::row(const Record& record) {
  const bool first = std::exchange(first_, false);
  switch (format_) {
    case RecordFormat::kJson:
      return json_object(record, first ? "  {\n    " : ",\n  {\n    ", ",\n    ", "\n  }");
    case RecordFormat::kJsonLines:
      return json_object(record, "{", ", ", "}\n");
    case RecordFormat::kSql:
      return fmt::format("INSERT INTO {} ({}) VALUES ({});\n", table_, joined(record, ", ", name_alone),
                         joined(record, ", ", sql_value));
    default:
      return joined(record, ",", csv_value) + "\n";
  }
}

std::string RecordWriter::end() const {
  return format_ == RecordFormat::kJson ? "\n]\n" : "";
}

/// A bar within a cell would end it.
std::string without_bars(std::string_view cell) {
  std::string text;
  for (const char c : cell) text += c == '|' ? std::string("\\|") : std::string(1, c);
  return text;
}

std::string markdown_head(std::span<const MarkdownColumn> columns) {
  std::string titles = "|", rule = "|";
  for (const auto& column : columns) {
    const auto title = without_bars(column.title);
    titles +=
        column.left ? fmt::format(" {:<{}} |", title, column.width) : fmt::format(" {:>{}} |", title, column.width);
    rule +=
        column.left ? fmt::format(" {:-<{}} |", "", column.width) : fmt::format(" {:->{}}: |", "", column.width - 1);
  }
  return titles + "\n" + rule + "\n";
}

std::string markdown_row(std::span<const MarkdownColumn> columns, std::span<const std::string> texts) {
  invariant(columns.size() == texts.size(), "REC-001", "a text a column");
  std::string line = "|";
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto text = without_bars(texts[i]);
    line += columns[i].left ? fmt::format(" {:<{}} |", text, columns[i].width)
                            : fmt::format(" {:>{}} |", text, columns[i].width);
  }
  return line + "\n";
}

}  // namespace forge::tools
