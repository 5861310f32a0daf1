#pragma once
// Command lines: one row an option, with its flags, help and bounds. CLI11 does the work and stays in options.cc.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/option_pages.h"

namespace forge::tools {

/// An option as the readers of the table see it.
struct OptionRow {
  std::vector<std::string> flags;  ///< as typed, short ones first: "-n", "--predict"; of a positional its name
  std::string value;               ///< what stands for its value in the help; empty: it has none
  std::string help, group;
  std::vector<std::string> choices;  ///< the values that there are; empty: not a list
  bool positional = false;
  bool repeats = false;  ///< each use adds a value

  std::function<void(const std::string&)> take;  ///< parses a value ("on" or "off" without one) and keeps it
  std::function<std::string()> show;             ///< the value that it has; empty: none
  std::function<void()> reset;                   ///< back to what it was when the row was made

  /// The last flag without its dashes: what the option is called.
  [[nodiscard]] std::string_view name() const;
};

class Options {
 public:
  /// `purpose` and `footer` frame the help text.
  Options(std::string program, std::string purpose, std::string footer = {});
  ~Options();
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  // Each row writes to `into`, which outlives parse and holds the default. `flags` as "-n,--predict".
  /// Rows after this are listed under `title`.
  Options& group(std::string title);
  /// `required` false: whether it must be given depends on other rows, and the tool checks.
  Options& positional(std::string name, std::string& into, std::string help, bool required = true);
  Options& flag(std::string flags, bool& into, std::string help);
  Options& text(std::string flags, std::string& into, std::string value, std::string help);
  Options& text(std::string flags, std::optional<std::string>& into, std::string value, std::string help);
  Options& texts(std::string flags, std::vector<std::string>& into, std::string value, std::string help);
  /// Exactly `count` values behind one flag.
  Options& texts(std::string flags, std::vector<std::string>& into, int count, std::string value, std::string help);
  /// One of `values`: "f16|q8_0".
  Options& choice(std::string flags, std::string& into, std::string values, std::string help);
  Options& choice(std::string flags, std::optional<std::string>& into, std::string values, std::string help);
  Options& integer(std::string flags, std::int64_t& into, std::int64_t low, std::int64_t high, std::string help);
  Options& integer(std::string flags, std::optional<std::int64_t>& into, std::int64_t low, std::int64_t high,
                   std::string help);
  /// A comma list; giving the option replaces the default.
  Options& integers(std::string flags, std::vector<std::int64_t>& into, std::int64_t low, std::int64_t high,
                    std::string help);
  Options& real(std::string flags, float& into, float low, float high, std::string help);
  Options& real(std::string flags, std::optional<float>& into, float low, float high, std::string help);

  /// The pages of the program's commands, which have tables of their own: --help-as shows them behind this one.
  Options& commands(std::function<std::vector<OptionPage>()> pages);
  /// What the table says, with --help and --version.
  [[nodiscard]] OptionPage page() const;

  /// Gives rows, but positional ones, values from below the command line, before parse: first those of the TOML file
  /// `file` (empty: none), by the options' names; then those of the environment, FORGE_NAME with _ for -. A flag is
  /// true or false, several values are an array, or have commas between them. Errors: kUsage naming the key or the
  /// variable; kIo for the file.
  void take_layers(const std::string& file);
  /// All rows but `but` as such a file, with what each is for and the value that it has.
  [[nodiscard]] std::string toml(const std::vector<std::string>& but) const;

  /// False when --help, --version or --help-as FORM (option_pages.h) was asked for: it has been printed and there is
  /// nothing more to do. Errors: kUsage for unknown flags, missing or repeated values, values that are no number or out
  /// of bounds.
  [[nodiscard]] bool parse(int argc, const char* const* argv);

  [[nodiscard]] const std::vector<OptionRow>& rows() const;
  /// One option by its name, outside a command line: to `value`, or without one back to what it was when its row was
  /// made. Errors: kUsage for an unknown name and as parse.
  void set(std::string_view name, const std::optional<std::string>& value);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The value of `flag` on a command line that is not parsed yet; empty: it is not there.
[[nodiscard]] std::string early_value(int argc, const char* const* argv, std::string_view flag);

/// "1,2,3" -> numbers. Errors: kUsage naming `flag` and the bad one.
[[nodiscard]] std::vector<std::int64_t> parse_integers(std::string_view flag, std::string_view text, std::int64_t low,
                                                       std::int64_t high);

}  // namespace forge::tools
