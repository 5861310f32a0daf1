#pragma once
// A tool's options in the forms that shells and man read. The build writes them with `TOOL --help-as FORM`, from the
// same rows that parse the command line.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace forge::tools {

/// A row of a page: an option, or with one flag and no dashes a positional.
struct PageRow {
  std::vector<std::string> flags;
  std::string value, help, group;
  std::vector<std::string> choices;
  bool positional = false, repeats = false;
};

/// A command line: that of a program ("forge-inspect") or of one of its commands ("forge-inspect trace").
struct OptionPage {
  std::string program, purpose, footer;
  std::vector<PageRow> rows;
};

inline constexpr const char* kPageForms = "man|bash|zsh|fish";

/// `pages` are of one program: first its own, then its commands'. `form` is one of kPageForms. Sources: man(7), the
/// manuals of bash ("Programmable Completion"), zsh (zshcompsys) and fish (complete).
[[nodiscard]] std::string option_pages(std::string_view form, std::span<const OptionPage> pages);

}  // namespace forge::tools
