#include "tools/bench/bench_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "support/error.h"
#include "support/os/console.h"
#include "tools/bench/bench.h"
#include "tools/bench/statistics.h"

namespace forge::tools {
namespace {

using nlohmann::json;

constexpr std::size_t kFileBytesMax = std::size_t{4} << 20;

[[noreturn]] void refuse_results(const std::filesystem::path& path, std::string why) {
  throw Error(ErrorCode::kUsage, fmt::format("{} holds no benchmark results", printable(path.native(), 200)),
              std::move(why), "write them with forge-bench -o json, or llama-bench -o json");
}

/// Parses `text` as JSON, or as one JSON value per line into a list. A single object becomes a list of one. nullopt if
/// it is neither.
std::optional<json> parse_values(const std::string& text) {
  auto whole = json::parse(text, nullptr, false);
  if (!whole.is_discarded()) return whole.is_object() ? json::array({std::move(whole)}) : std::move(whole);
  auto lines = json::array();
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    const auto line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    auto value = json::parse(line, nullptr, false);
    if (value.is_discarded()) return std::nullopt;
    lines.push_back(std::move(value));
  }
  return lines;
}

/// The non-negative integer `name` of the row; `fallback` if it is missing, -1 if it is anything else.
std::int64_t count_of(const json& row, const char* name, std::int64_t fallback) {
  const auto found = row.find(name);
  if (found == row.end()) return fallback;
  if (!found->is_number_integer()) return -1;
  if (found->is_number_unsigned() &&
      found->get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return -1;
  return std::max<std::int64_t>(found->get<std::int64_t>(), -1);
}

bool is_rate(const json& value) {
  return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() > 0;
}

/// Tokens/s of a row; 0 if it has no valid rate.
double rate_of(const json& row) {
  if (const auto samples = row.find("samples_ts"); samples != row.end() && samples->is_array() && !samples->empty()) {
    if (!std::ranges::all_of(*samples, is_rate)) return 0;
    return summary_of(samples->get<std::vector<double>>()).median;
  }
  const auto mean = row.find("avg_ts");
  return mean != row.end() && is_rate(*mean) ? mean->get<double>() : 0;
}

std::string model_of(const json& row) {
  const auto found = row.find("model_filename");
  if (found == row.end() || !found->is_string()) return {};
  const auto& path = found->get_ref<const std::string&>();
  return path.substr(path.find_last_of('/') + 1);
}

bool same_test(const MeasuredTest& a, MeasuredTest b) {
  b.rate = a.rate;
  return a == b;
}

bool one_model(const std::vector<MeasuredTest>& tests) {
  return std::ranges::all_of(tests, [&](const auto& test) { return test.model == tests.front().model; });
}

std::string shown_rate(double rate) {
  return rate > 0 ? fmt::format("{:.2f}", rate) : "-";
}

std::string markdown(const std::vector<ComparedTest>& rows, const std::string& a, const std::string& b) {
  const auto width = [](std::string_view title) { return std::max<std::size_t>(title.size(), 10); };
  const std::array columns{MarkdownColumn{"model", 30, true}, MarkdownColumn{"threads", 7}, MarkdownColumn{"batch", 5},
                           MarkdownColumn{"test", 15},        MarkdownColumn{a, width(a)},  MarkdownColumn{b, width(b)},
                           MarkdownColumn{"ratio", 7}};
  auto text = markdown_head(columns);
  for (const auto& row : rows) {
    const auto& test = row.test;
    const std::array<std::string, columns.size()> cells{printable(test.model, 30),
                                                        fmt::format("{}", test.threads),
                                                        fmt::format("{}", test.batch),
                                                        test_name(test.prompt, test.predict, test.depth),
                                                        shown_rate(row.a),
                                                        shown_rate(row.b),
                                                        row.ratio() > 0 ? fmt::format("{:.3f}", row.ratio()) : "-"};
    text += markdown_row(columns, cells);
  }
  return text;
}

}  // namespace

std::vector<MeasuredTest> read_results(const std::filesystem::path& path) {
  std::string text;
  try {
    text = read_text(path.native(), kFileBytesMax);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIo) throw;
    refuse_results(path, fmt::format("it is larger than {}", human_bytes(kFileBytesMax)));
  }
  const auto rows = parse_values(text);
  if (!rows || !rows->is_array()) refuse_results(path, "it is neither a JSON list nor JSON lines");
  if (rows->empty()) refuse_results(path, "its list is empty");
  std::vector<MeasuredTest> tests;
  std::size_t number = 0;
  for (const auto& row : *rows) {
    ++number;
    if (!row.is_object()) refuse_results(path, fmt::format("row {} is not an object", number));
    MeasuredTest test{.model = model_of(row),
                      .prompt = count_of(row, "n_prompt", -1),
                      .predict = count_of(row, "n_gen", -1),
                      .depth = count_of(row, "n_depth", 0),
                      .threads = count_of(row, "n_threads", 0),
                      .batch = count_of(row, "n_parallel", 1),
                      .rate = rate_of(row)};
    if (test.prompt < 0 || test.predict < 0 || (test.prompt == 0 && test.predict == 0))
      refuse_results(path, fmt::format("row {} has no valid n_prompt and n_gen", number));
    if (test.depth < 0 || test.threads < 0 || test.batch < 1)
      refuse_results(path, fmt::format("n_depth, n_threads or n_parallel of row {} is not a valid count", number));
    if (test.rate <= 0) refuse_results(path, fmt::format("row {} has neither samples_ts nor avg_ts above 0", number));
    const auto known = std::ranges::find_if(tests, [&](const auto& other) { return same_test(other, test); });
    if (known == tests.end())
      tests.push_back(std::move(test));
    else
      known->rate = std::max(known->rate, test.rate);
  }
  return tests;
}

std::vector<ComparedTest> compare(std::vector<MeasuredTest> a, std::vector<MeasuredTest> b) {
  if (!a.empty() && !b.empty() && one_model(a) && one_model(b))
    for (auto& test : b) test.model = a.front().model;
  std::vector<ComparedTest> rows;
  for (const auto& test : a) rows.push_back({.test = test, .a = test.rate});
  for (const auto& test : b) {
    const auto known = std::ranges::find_if(rows, [&](const auto& row) { return same_test(row.test, test); });
    if (known == rows.end())
      rows.push_back({.test = test, .b = test.rate});
    else
      known->b = test.rate;
  }
  return rows;
}

std::string compare_files(const std::filesystem::path& a, const std::filesystem::path& b, RecordFormat format) {
  const auto rows = compare(read_results(a), read_results(b));
  if (std::ranges::none_of(rows, [](const auto& row) { return row.ratio() > 0; }))
    throw Error(ErrorCode::kUsage,
                fmt::format("{} and {} have no test in common", printable(a.native(), 100), printable(b.native(), 100)),
                "the same model, prompt, tokens, depth, threads and batch", "measure the same tests with both");
  auto name_a = printable(a.stem().native(), 30), name_b = printable(b.stem().native(), 30);
  if (format == RecordFormat::kMarkdown) return markdown(rows, name_a, name_b);
  RecordWriter writer(format, "forge_bench_compare");
  const auto number = [](double value) { return value > 0 ? value : std::numeric_limits<double>::quiet_NaN(); };
  std::string text;
  for (const auto& row : rows) {
    const auto& test = row.test;
    const Record record{{"model", test.model},
                        {"n_threads", test.threads},
                        {"n_parallel", test.batch},
                        {"n_prompt", test.prompt},
                        {"n_gen", test.predict},
                        {"n_depth", test.depth},
                        {"a", name_a},
                        {"b", name_b},
                        {"a_ts", number(row.a)},
                        {"b_ts", number(row.b)},
                        {"ratio", number(row.ratio())}};
    if (text.empty()) text = writer.begin(record);
    text += writer.row(record);
  }
  return text + writer.end();
}

}  // namespace forge::tools
