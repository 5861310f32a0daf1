#pragma once
// Renders a tool's option table as a man page or as shell completion. The build runs `TOOL --help-as FORM` for each
// form, so pages and completion come from the same table that parses the command line.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace forge::tools {

/// A row of a page: an option, or a positional, which has its name as its only flag.
struct PageRow {
  std::vector<std::string> flags;
  std::string value, help, group;
  std::vector<std::string> choices;
  bool positional = false, repeats = false;
};

/// The options of a program ("forge-inspect") or of one of its commands ("forge-inspect trace").
struct OptionPage {
  std::string program, purpose, footer;
  std::vector<PageRow> rows;
};

inline constexpr const char* kPageForms = "man|bash|zsh|fish";

/// Renders the pages of one program, first its own, then those of its commands. `form` is one of kPageForms; kUsage for
/// another. Sources: man(7), the manuals of bash ("Programmable Completion"), zsh (zshcompsys) and fish (complete).
[[nodiscard]] std::string option_pages(std::string_view form, std::span<const OptionPage> pages);

}  // namespace forge::tools
