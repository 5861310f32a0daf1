#include "tools/cli/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <ranges>

#include "support/error.h"
#include "support/os/console.h"
#include "support/version.h"

namespace forge::tools {
namespace {

constexpr const char* kHelpHelp = "print this help and exit";
constexpr const char* kVersionHelp = "print the version and exit";
constexpr std::size_t kHelpWidth = 100;  ///< width of --help
constexpr std::size_t kHelpColumn = 34;  ///< where the help of an option begins

/// Breaks the lines of `text` at spaces so that none is longer than `width` characters. A word longer than `width`
/// stays whole.
std::string wrapped(std::string text, std::size_t width) {
  std::size_t begin = 0, space = std::string::npos;  // of the line that `i` is in
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') {
      begin = i + 1;
      space = std::string::npos;
      continue;
    }
    if (text[i] == ' ') space = i;
    if (i - begin < width || space == std::string::npos) continue;
    text[space] = '\n';
    begin = space + 1;
    space = std::string::npos;
  }
  return text;
}

/// `help` for CLI11, which indents every line after the first to the help column.
std::string in_help_column(const std::string& help) {
  return wrapped(help, kHelpWidth - kHelpColumn);
}

template <class T>
T parse_number(std::string_view flag, std::string_view text, T low, T high) {
  T value{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool number = failed != std::errc::invalid_argument && end == text.data() + text.size();
  constexpr auto kWanted = std::is_integral_v<T> ? "a whole number" : "a number";
  if (!number)
    throw Error(ErrorCode::kUsage, fmt::format("{} takes {}, not '{}'", flag, kWanted, printable(text)), {},
                "--help lists the options");
  if (failed != std::errc{} || !(value >= low && value <= high))
    throw Error(ErrorCode::kUsage, fmt::format("{} {} is out of range: {} to {}", flag, printable(text), low, high), {},
                "--help lists the options");
  return value;
}

bool parse_switch(std::string_view flag, std::string_view text) {
  if (text != "on" && text != "off")
    throw Error(ErrorCode::kUsage, fmt::format("{} is on or off, not '{}'", flag, printable(text)), {},
                "--help lists the options");
  return text == "on";
}

/// Splits at `separator`: "-n,--predict" -> {"-n", "--predict"}.
std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (const auto part : std::views::split(text, separator)) parts.emplace_back(part.begin(), part.end());
  return parts;
}

std::string parse_choice(std::string_view flag, const std::string& text, const std::vector<std::string>& choices) {
  if (std::ranges::find(choices, text) == choices.end())
    throw Error(ErrorCode::kUsage, fmt::format("{} is {}, not '{}'", flag, fmt::join(choices, " or "), printable(text)),
                {}, "--help lists the options");
  return text;
}

std::string text_of(const std::string& value) {
  return value;
}
template <class T>
  requires std::is_arithmetic_v<T>
std::string text_of(T value) {
  return fmt::format("{}", value);
}
template <class T>
std::string text_of(const std::optional<T>& value) {
  return value ? text_of(*value) : std::string();
}
template <class T>
std::string text_of(const std::vector<T>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}

}  // namespace

struct Options::Impl {
  Impl(std::string name, std::string purpose) : program(std::move(name)), app(std::move(purpose), program) {}

  std::string program, group;
  std::vector<OptionRow> rows;
  std::function<std::vector<OptionPage>()> commands;
  CLI::App app;

  /// Appends `row` to the table and puts its CLI11 counterpart `option` into the current group.
  void add(CLI::Option* option, OptionRow row) {
    if (!group.empty()) option->group(group);
    row.group = group;
    rows.push_back(std::move(row));
  }

  /// Adds an option whose value is a T from `low` to `high`. `into` is a T or an optional of one.
  template <class Into, class T>
  void number(const std::string& flags, Into& into, const std::string& value_name, const std::string& help, T low,
              T high) {
    value(flags, into, value_name, help,
          [flags, low, high](const std::string& text) { return parse_number(flags, text, low, high); });
  }

  /// Adds an option with one value: `parse` converts the text and may throw; the result is stored in `into`.
  template <class T, class Parse>
  void value(const std::string& flags, T& into, const std::string& value, const std::string& help, Parse parse) {
    const auto take = [&into, parse](const std::string& text) { into = parse(text); };
    auto* option = app.add_option_function<std::string>(flags, take, in_help_column(help))->type_name(value);
    add(option, {.flags = split(flags, ','),
                 .value = value,
                 .help = help,
                 .take = take,
                 .show = [&into] { return text_of(into); },
                 .reset = [&into, first = into] { into = first; }});
  }

  template <class T>
  void choice(const std::string& flags, T& into, const std::string& values, const std::string& help) {
    const auto choices = split(values, '|');
    value(flags, into, values, help,
          [flags, choices](const std::string& text) { return parse_choice(flags, text, choices); });
    rows.back().choices = choices;
  }
};

Options::Options(std::string program, std::string purpose, std::string footer)
    : impl_(std::make_unique<Impl>(std::move(program), std::move(purpose))) {
  auto& app = impl_->app;
  app.footer(wrapped(std::move(footer), kHelpWidth));
  app.get_formatter()->column_width(kHelpColumn);
  app.set_help_flag("-h,--help", kHelpHelp);
  app.set_version_flag("--version", fmt::format("{} {} ({})", impl_->program, kVersion, kBuildId), kVersionHelp);
}
Options::~Options() = default;

std::string_view OptionRow::name() const {
  std::string_view name = flags.back();
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  return name;
}

Options& Options::group(std::string title) {
  impl_->group = std::move(title);
  return *this;
}

Options& Options::positional(std::string name, std::string& into, std::string help, bool required) {
  impl_->app.add_option(name, into, in_help_column(help))->required(required)->type_name("");
  impl_->rows.push_back({.flags = {name},
                         .value = name,
                         .help = std::move(help),
                         .positional = true,
                         .take = [&into](const std::string& text) { into = text; },
                         .show = [&into] { return into; },
                         .reset = [&into, first = into] { into = first; }});
  return *this;
}

Options& Options::flag(std::string flags, bool& into, std::string help) {
  impl_->add(impl_->app.add_flag(flags, into, in_help_column(help)),
             {.flags = split(flags, ','),
              .help = help,
              .take = [&into, flags](const auto& text) { into = parse_switch(flags, text); },
              .show = [&into] { return std::string(into ? "on" : "off"); },
              .reset = [&into, first = into] { into = first; }});
  return *this;
}

Options& Options::text(std::string flags, std::string& into, std::string value, std::string help) {
  impl_->value(flags, into, value, help, [](const std::string& text) { return text; });
  return *this;
}

Options& Options::text(std::string flags, std::optional<std::string>& into, std::string value, std::string help) {
  impl_->value(flags, into, value, help, [](const std::string& text) { return text; });
  return *this;
}

Options& Options::texts(std::string flags, std::vector<std::string>& into, std::string value, std::string help) {
  auto* option = impl_->app.add_option(flags, into, in_help_column(help))->type_name(value)->allow_extra_args(false);
  impl_->add(option, {.flags = split(flags, ','),
                      .value = value,
                      .help = help,
                      .repeats = true,
                      .take = [&into](const std::string& text) { into.push_back(text); },
                      .show = [&into] { return fmt::format("{}", fmt::join(into, " ")); },
                      .reset = [&into, first = into] { into = first; }});
  return *this;
}

Options& Options::texts(std::string flags, std::vector<std::string>& into, int count, std::string value,
                        std::string help) {
  auto* option = impl_->app.add_option(flags, into, in_help_column(help))->type_name(value)->expected(count);
  impl_->add(option, {.flags = split(flags, ','),
                      .value = value,
                      .help = help,
                      .take = [&into](const std::string& text) { into.push_back(text); },
                      .show = [&into] { return fmt::format("{}", fmt::join(into, " ")); },
                      .reset = [&into, first = into] { into = first; }});
  return *this;
}

Options& Options::choice(std::string flags, std::string& into, std::string values, std::string help) {
  impl_->choice(flags, into, values, help);
  return *this;
}

Options& Options::choice(std::string flags, std::optional<std::string>& into, std::string values, std::string help) {
  impl_->choice(flags, into, values, help);
  return *this;
}

Options& Options::integer(std::string flags, std::int64_t& into, std::int64_t low, std::int64_t high,
                          std::string help) {
  impl_->number(flags, into, "N", help, low, high);
  return *this;
}

Options& Options::integer(std::string flags, std::optional<std::int64_t>& into, std::int64_t low, std::int64_t high,
                          std::string help) {
  impl_->number(flags, into, "N", help, low, high);
  return *this;
}

Options& Options::integers(std::string flags, std::vector<std::int64_t>& into, std::int64_t low, std::int64_t high,
                           std::string help) {
  impl_->value(flags, into, "N,...", help,
               [flags, low, high](const std::string& text) { return parse_integers(flags, text, low, high); });
  return *this;
}

Options& Options::real(std::string flags, float& into, float low, float high, std::string help) {
  impl_->number(flags, into, "F", help, low, high);
  return *this;
}

Options& Options::real(std::string flags, std::optional<float>& into, float low, float high, std::string help) {
  impl_->number(flags, into, "F", help, low, high);
  return *this;
}

const std::vector<OptionRow>& Options::rows() const {
  return impl_->rows;
}

void Options::set(std::string_view name, const std::optional<std::string>& value) {
  const auto row = std::ranges::find(impl_->rows, name, &OptionRow::name);
  if (row == impl_->rows.end())
    throw Error(ErrorCode::kUsage, fmt::format("there is no option '{}'", printable(name)), {},
                fmt::format("{}", fmt::join(impl_->rows | std::views::transform(&OptionRow::name), ", ")));
  if (value)
    row->take(*value);
  else
    row->reset();
}

Options& Options::commands(std::function<std::vector<OptionPage>()> pages) {
  impl_->commands = std::move(pages);
  return *this;
}

OptionPage Options::page() const {
  OptionPage page{.program = impl_->program,
                  .purpose = impl_->app.get_description(),
                  .footer = impl_->app.get_footer(),
                  .rows = {{.flags = {"-h", "--help"}, .value = {}, .help = kHelpHelp, .group = {}, .choices = {}},
                           {.flags = {"--version"}, .value = {}, .help = kVersionHelp, .group = {}, .choices = {}}}};
  while (page.footer.ends_with('\n')) page.footer.pop_back();
  for (const auto& row : impl_->rows)
    page.rows.push_back({.flags = row.flags,
                         .value = row.value,
                         .help = row.help,
                         .group = row.group,
                         .choices = row.choices,
                         .positional = row.positional,
                         .repeats = row.repeats});
  return page;
}

bool Options::parse(int argc, const char* const* argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--help-as") {
    std::vector<OptionPage> pages{page()};
    if (impl_->commands)
      for (auto& other : impl_->commands()) pages.push_back(std::move(other));
    Output().write(option_pages(argv[2], pages));
    return false;
  }
  try {
    impl_->app.parse(argc, argv);
    return true;
  } catch (const CLI::CallForHelp&) {
    Output().write(impl_->app.help());
  } catch (const CLI::CallForVersion& version) {
    Output().write(fmt::format("{}\n", version.what()));
  } catch (const CLI::ParseError& error) {
    std::string text = error.what();
    while (text.ends_with('\n')) text.pop_back();
    throw Error(ErrorCode::kUsage, text, {}, fmt::format("{} --help lists the options", impl_->program));
  }
  return false;
}

std::vector<std::int64_t> parse_integers(std::string_view flag, std::string_view text, std::int64_t low,
                                         std::int64_t high) {
  std::vector<std::int64_t> numbers;
  while (true) {
    const auto comma = text.find(',');
    numbers.push_back(parse_number(flag, text.substr(0, comma), low, high));
    if (comma == std::string_view::npos) return numbers;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace forge::tools
