// Options from a TOML file and from the environment (forge-serve). CLI11 parses the file; the option table says which
// keys exist. Priority: command line, then environment, then file.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <ranges>

#include "support/error.h"
#include "support/json_text.h"
#include "tools/cli/options.h"

namespace forge::tools {
namespace {

std::string variable_of(const OptionRow& row) {
  std::string name = "FORGE_" + std::string(row.name());
  std::ranges::transform(name, name.begin(), [](char c) {
    return c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  });
  return name;
}

/// Replaces the values of a row. `where`: file and key, or the variable, for errors.
void give(const OptionRow& row, const std::vector<std::string>& values, const std::string& where) {
  row.reset();
  try {
    for (const auto& value : values) {
      const bool on = value == "true" || value == "1", off = value == "false" || value == "0";
      row.take(row.value.empty() && on ? "on" : row.value.empty() && off ? "off" : value);
    }
  } catch (const Error& error) {
    throw error.within(where);
  }
  if (values.size() > 1 && !row.repeats)
    throw Error(ErrorCode::kUsage, fmt::format("{}: {} takes one value", where, row.name()));
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  for (const auto part : std::views::split(text, ',')) parts.emplace_back(part.begin(), part.end());
  return parts;
}

}  // namespace

std::string early_value(int argc, const char* const* argv, std::string_view flag) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == flag && i + 1 < argc) return argv[i + 1];
    if (word.starts_with(flag) && word.substr(flag.size()).starts_with('='))
      return std::string(word.substr(flag.size() + 1));
  }
  return {};
}

void Options::take_layers(const std::string& file) {
  if (!file.empty()) {
    std::ifstream in(file);
    if (!in)
      throw Error(ErrorCode::kIo, fmt::format("cannot read {}", printable(file, 200)), {},
                  "give the path of a TOML file");
    std::vector<CLI::ConfigItem> items;
    try {
      items = CLI::ConfigTOML().from_config(in);
    } catch (const CLI::Error& error) {
      throw Error(ErrorCode::kUsage, fmt::format("{} is not valid TOML", printable(file, 200)), error.what());
    }
    for (const auto& item : items) {
      const auto where = fmt::format("{}, {}", printable(file, 200), printable(item.fullname()));
      const auto row =
          std::ranges::find_if(rows(), [&](const auto& r) { return !r.positional && r.name() == item.name; });
      if (row == rows().end() || !item.parents.empty())
        throw Error(ErrorCode::kUsage, fmt::format("{}: there is no such option", where), {},
                    "--print-config shows all options as such a file");
      give(*row, item.inputs, where);
    }
  }
  for (const auto& row : rows()) {
    if (row.positional) continue;
    const auto name = variable_of(row);
    if (const char* value = std::getenv(name.c_str()); value != nullptr && *value != '\0')
      give(row, row.repeats ? split(value) : std::vector<std::string>{value}, name);
  }
}

std::string Options::toml(const std::vector<std::string>& but) const {
  std::string text;
  for (const auto& row : rows()) {
    const auto key = row.name();
    if (row.positional || std::ranges::find(but, key) != but.end()) continue;
    const auto value = row.show();
    text += fmt::format("# {} ({})\n", row.help, variable_of(row));
    if (value.empty())
      text += fmt::format("# {} =\n", key);
    else if (row.value.empty())
      text += fmt::format("{} = {}\n", key, value == "on" ? "true" : "false");
    else
      text += fmt::format("{} = {}\n", key, row.value == "N" || row.value == "F" ? value : json_string(value));
  }
  return text;
}

}  // namespace forge::tools
