#include "tools/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <functional>

#include "support/error.h"
#include "support/version.h"
#include "tools/console.h"

namespace forge::tools {
namespace {

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
    throw Error(ErrorCode::kUsage, fmt::format("{} {} is out of bounds: {} to {}", flag, printable(text), low, high),
                {}, "--help lists the options");
  return value;
}

}  // namespace

struct Options::Impl {
  Impl(std::string name, std::string purpose) : program(std::move(name)), app(std::move(purpose), program) {}

  std::string program, group;
  CLI::App app;

  /// A row with one value, handed to `take` as it stands.
  Options& row(Options& self, const std::string& flags, const std::string& value, std::string help,
               std::function<void(const std::string&)> take) {
    auto* option = app.add_option_function<std::string>(flags, take, std::move(help))->type_name(value);
    if (!group.empty()) option->group(group);
    return self;
  }
};

Options::Options(std::string program, std::string purpose, std::string footer)
    : impl_(std::make_unique<Impl>(std::move(program), std::move(purpose))) {
  auto& app = impl_->app;
  app.footer(std::move(footer));
  app.get_formatter()->column_width(34);
  app.set_help_flag("-h,--help", "this text");
  app.set_version_flag("--version", fmt::format("{} {} ({})", impl_->program, kVersion, kBuildId));
}
Options::~Options() = default;

Options& Options::group(std::string title) {
  impl_->group = std::move(title);
  return *this;
}

Options& Options::positional(std::string name, std::string& into, std::string help) {
  impl_->app.add_option(name, into, std::move(help))->required()->type_name("");
  return *this;
}

Options& Options::flag(std::string flags, bool& into, std::string help) {
  auto* option = impl_->app.add_flag(flags, into, std::move(help));
  if (!impl_->group.empty()) option->group(impl_->group);
  return *this;
}

Options& Options::text(std::string flags, std::string& into, std::string value, std::string help) {
  return impl_->row(*this, flags, value, std::move(help), [&into](const std::string& text) { into = text; });
}

Options& Options::text(std::string flags, std::optional<std::string>& into, std::string value, std::string help) {
  return impl_->row(*this, flags, value, std::move(help), [&into](const std::string& text) { into = text; });
}

Options& Options::texts(std::string flags, std::vector<std::string>& into, std::string value, std::string help) {
  auto* option = impl_->app.add_option(flags, into, std::move(help))->type_name(value)->allow_extra_args(false);
  if (!impl_->group.empty()) option->group(impl_->group);
  return *this;
}

Options& Options::integer(std::string flags, std::int64_t& into, std::int64_t low, std::int64_t high,
                          std::string help) {
  return impl_->row(*this, flags, "N", std::move(help), [&into, flags, low, high](const std::string& text) {
    into = parse_number(flags, text, low, high);
  });
}

Options& Options::integer(std::string flags, std::optional<std::int64_t>& into, std::int64_t low, std::int64_t high,
                          std::string help) {
  return impl_->row(*this, flags, "N", std::move(help), [&into, flags, low, high](const std::string& text) {
    into = parse_number(flags, text, low, high);
  });
}

Options& Options::integers(std::string flags, std::vector<std::int64_t>& into, std::int64_t low, std::int64_t high,
                           std::string help) {
  return impl_->row(*this, flags, "N,...", std::move(help), [&into, flags, low, high](const std::string& text) {
    into = parse_integers(flags, text, low, high);
  });
}

Options& Options::real(std::string flags, float& into, float low, float high, std::string help) {
  return impl_->row(*this, flags, "F", std::move(help), [&into, flags, low, high](const std::string& text) {
    into = parse_number(flags, text, low, high);
  });
}

bool Options::parse(int argc, const char* const* argv) {
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
