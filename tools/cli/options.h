#pragma once
// The option tables of all tools: one row per option with its flags, bounds and help. From a table come the parser,
// --help, man page, shell completion (option_pages.h), TOML file and environment (take_layers), and the chat's /set.
// CLI11 does the parsing; it is included by options.cc and option_layers.cc only.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/option_pages.h"

namespace forge::tools {

/// One option of a table.
struct OptionRow {
  std::vector<std::string> flags;  ///< short flags first: "-n", "--predict"; for a positional its name
  std::string value;               ///< placeholder of the value in the help; empty: a flag without a value
  std::string help, group;
  std::vector<std::string> choices;  ///< the allowed values; empty: any
  bool positional = false;
  bool repeats = false;  ///< may be given several times; each use adds a value

  std::function<void(const std::string&)> take;  ///< parses a value ("on" or "off" for a flag) and stores it
  std::function<std::string()> show;             ///< the current value as text; empty: none
  std::function<void()> reset;                   ///< restores the default

  /// Name of the option: its last flag without dashes.
  [[nodiscard]] std::string_view name() const;
};

/// An option table. Each call adds a row, except group(), which starts a group.
class Options {
 public:
  /// `purpose` and `footer` are the first and last lines of --help.
  Options(std::string program, std::string purpose, std::string footer = {});
  ~Options();
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  // Each row stores its value in `into`, which must outlive parse() and holds the default. `flags`: "-n,--predict".
  // Numbers must be within [low, high].
  /// Rows added after this are listed under `title`.
  Options& group(std::string title);
  /// A positional argument. `required` false: it depends on other options, and the tool checks it.
  Options& positional(std::string name, std::string& into, std::string help, bool required = true);
  Options& flag(std::string flags, bool& into, std::string help);
  Options& text(std::string flags, std::string& into, std::string value, std::string help);
  Options& text(std::string flags, std::optional<std::string>& into, std::string value, std::string help);
  Options& texts(std::string flags, std::vector<std::string>& into, std::string value, std::string help);
  /// An option with exactly `count` values.
  Options& texts(std::string flags, std::vector<std::string>& into, int count, std::string value, std::string help);
  /// One of `values`: "f16|q8_0".
  Options& choice(std::string flags, std::string& into, std::string values, std::string help);
  Options& choice(std::string flags, std::optional<std::string>& into, std::string values, std::string help);
  Options& integer(std::string flags, std::int64_t& into, std::int64_t low, std::int64_t high, std::string help);
  Options& integer(std::string flags, std::optional<std::int64_t>& into, std::int64_t low, std::int64_t high,
                   std::string help);
  /// A comma-separated list; giving the option replaces the default.
  Options& integers(std::string flags, std::vector<std::int64_t>& into, std::int64_t low, std::int64_t high,
                    std::string help);
  Options& real(std::string flags, float& into, float low, float high, std::string help);
  Options& real(std::string flags, std::optional<float>& into, float low, float high, std::string help);

  /// Pages of the program's commands, which have tables of their own; --help-as prints them after this table's.
  Options& commands(std::function<std::vector<OptionPage>()> pages);
  /// The table as a page, including --help and --version.
  [[nodiscard]] OptionPage page() const;

  /// Sets options from the TOML file `file` (empty: none; keys are option names), then from the environment
  /// (FORGE_NAME, in capitals with _ for -). Called before parse(), so that the command line wins. Positionals are not
  /// set. A flag is true or false; several values are a TOML array, or separated by commas in a variable. Errors:
  /// kUsage naming the key or variable; kIo for the file.
  void take_layers(const std::string& file);
  /// All options except `but` as a TOML file, each with its help as a comment and its current value.
  [[nodiscard]] std::string toml(const std::vector<std::string>& but) const;

  /// Parses the command line. Returns false after printing for --help, --version or --help-as FORM (option_pages.h);
  /// the tool then exits. Errors: kUsage for unknown flags, missing or repeated values, and invalid or out-of-range
  /// numbers.
  [[nodiscard]] bool parse(int argc, const char* const* argv);

  [[nodiscard]] const std::vector<OptionRow>& rows() const;
  /// Sets one option by its name, or restores its default if `value` is empty. Errors: kUsage for an unknown name, and
  /// as in parse().
  void set(std::string_view name, const std::optional<std::string>& value);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The value of `flag` on a command line that has not been parsed yet; empty if it is not given.
[[nodiscard]] std::string early_value(int argc, const char* const* argv, std::string_view flag);

/// "1,2,3" -> numbers. Errors: kUsage naming `flag` and the bad one.
[[nodiscard]] std::vector<std::int64_t> parse_integers(std::string_view flag, std::string_view text, std::int64_t low,
                                                       std::int64_t high);

}  // namespace forge::tools
