#pragma once
// Writes rows of named values as CSV, JSON, JSON lines or SQL, and tables as Markdown: the output formats of
// forge-bench.

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace forge::tools {

enum class RecordFormat : std::uint8_t { kMarkdown, kCsv, kJson, kJsonLines, kSql };

inline constexpr const char* kRecordFormats = "md|csv|json|jsonl|sql";

/// Errors: kUsage for an unknown name.
[[nodiscard]] RecordFormat record_format(const std::string& name);

/// Lists are written in JSON only. NaN and infinity are null in JSON and SQL, and empty in CSV.
using RecordValue = std::variant<std::string, std::int64_t, double, std::vector<std::int64_t>, std::vector<double>>;
/// Names and values; every record of one output has the same names in the same order.
using Record = std::vector<std::pair<std::string_view, RecordValue>>;

/// One output in CSV (RFC 4180), JSON, JSON lines or SQL (a table and its rows; what SQLite reads).
class RecordWriter {
 public:
  RecordWriter(RecordFormat format, std::string table) : format_(format), table_(std::move(table)) {}
  /// The text before the first row; `names` is any record of the output.
  [[nodiscard]] std::string begin(const Record& names) const;
  [[nodiscard]] std::string row(const Record& record);
  [[nodiscard]] std::string end() const;

 private:
  RecordFormat format_;
  std::string table_;
  bool first_ = true;
};

/// A Markdown table whose columns line up in a terminal, too.
struct MarkdownColumn {
  std::string_view title;
  std::size_t width = 0;
  bool left = false;  ///< else to the right
};
[[nodiscard]] std::string markdown_head(std::span<const MarkdownColumn> columns);
[[nodiscard]] std::string markdown_row(std::span<const MarkdownColumn> columns, std::span<const std::string> texts);

}  // namespace forge::tools
