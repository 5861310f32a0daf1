#pragma once
// Command lines: one row an option, with its flags, help and bounds. CLI11 does the work and stays in options.cc.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace forge::tools {

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
  Options& positional(std::string name, std::string& into, std::string help);
  Options& flag(std::string flags, bool& into, std::string help);
  Options& text(std::string flags, std::string& into, std::string value, std::string help);
  Options& text(std::string flags, std::optional<std::string>& into, std::string value, std::string help);
  Options& texts(std::string flags, std::vector<std::string>& into, std::string value, std::string help);
  Options& integer(std::string flags, std::int64_t& into, std::int64_t low, std::int64_t high, std::string help);
  Options& integer(std::string flags, std::optional<std::int64_t>& into, std::int64_t low, std::int64_t high,
                   std::string help);
  /// A comma list; giving the option replaces the default.
  Options& integers(std::string flags, std::vector<std::int64_t>& into, std::int64_t low, std::int64_t high,
                    std::string help);
  Options& real(std::string flags, float& into, float low, float high, std::string help);

  /// False when --help or --version was asked for: it has been printed and there is nothing more to do.
  /// Errors: kUsage for unknown flags, missing or repeated values, values that are no number or out of bounds.
  [[nodiscard]] bool parse(int argc, const char* const* argv);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// "1,2,3" -> numbers. Errors: kUsage naming `flag` and the bad one.
[[nodiscard]] std::vector<std::int64_t> parse_integers(std::string_view flag, std::string_view text, std::int64_t low,
                                                       std::int64_t high);

}  // namespace forge::tools
