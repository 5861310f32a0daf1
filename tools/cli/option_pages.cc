#include "tools/cli/option_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <ranges>
#include <utility>

#include "support/error.h"
#include "support/version.h"

namespace forge::tools {
namespace {

/// What a shell completes as an option's value: nothing (the option has none), free text, a choice, a file, a folder.
enum class Value { kNone, kOwn, kChoice, kFile, kFolder };

Value value_of(const PageRow& row) {
  constexpr std::array kFiles{"FILE", "PLAN", "MODEL", "OUT", "A.json B.json"};
  if (!row.choices.empty()) return Value::kChoice;
  if (row.value.empty()) return Value::kNone;
  if (row.value == "DIR") return Value::kFolder;
  return std::ranges::find(kFiles, row.value) != kFiles.end() ? Value::kFile : Value::kOwn;
}

/// The command in a page's program: "trace" in "forge-inspect trace"; empty for the program itself.
std::string_view command_of(const OptionPage& page) {
  const std::string_view program = page.program;
  const auto space = program.find(' ');
  return space == std::string_view::npos ? std::string_view() : program.substr(space + 1);
}

/// Name of the shell function that completes a page.
std::string function_of(const OptionPage& page) {
  std::string name = "_" + page.program;
  std::ranges::replace_if(name, [](char c) { return c == '-' || c == ' '; }, '_');
  return name;
}

/// `text` with `escape` before each character that is in `special`.
std::string escaped(std::string_view text, std::string_view special, std::string_view escape = "\\") {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) out += escape;
    out += c;
  }
  return out;
}

/// `text` in single quotes, for bash and zsh.
std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string words(const auto& list) {
  return fmt::format("{}", fmt::join(list, " "));
}

std::vector<std::string> commands_of(std::span<const OptionPage> pages) {
  std::vector<std::string> names;
  for (const auto& page : pages.subspan(1)) names.emplace_back(command_of(page));
  return names;
}

bool takes_file(const OptionPage& page) {
  return std::ranges::any_of(page.rows, &PageRow::positional);
}

// ---- man ----

/// Escapes text for a man page: no line starts a roff request, and dashes stay the ASCII dashes of options.
std::string roff(std::string_view text) {
  std::string out;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    out += c == '\\' ? std::string("\\e") : c == '-' ? std::string("\\-") : std::string(1, c);
    begins = c == '\n';
  }
  return out;
}

std::string man_synopsis(const OptionPage& page) {
  auto text = fmt::format(".B {}\n[\\fIOPTION\\fR]...", roff(page.program));
  for (const auto& row : page.rows)
    if (row.positional) text += fmt::format(" \\fI{}\\fR", roff(row.flags[0]));
  return text + "\n";
}

std::string man_rows(const OptionPage& page, bool groups) {
  std::string text, group;
  for (const auto& row : page.rows) {
    if (groups && row.group != std::exchange(group, row.group)) text += fmt::format(".SS {}\n", roff(row.group));
    text += ".TP\n";
    if (row.positional) {
      text += fmt::format("\\fI{}\\fR\n", roff(row.flags[0]));
    } else {
      const auto bold = [](const std::string& flag) { return fmt::format("\\fB{}\\fR", roff(flag)); };
      text += fmt::format("{}", fmt::join(row.flags | std::views::transform(bold), ", "));
      if (!row.value.empty()) text += fmt::format(" \\fI{}\\fR", roff(row.value));
      text += '\n';
    }
    text += roff(row.help) + "\n";
  }
  return text;
}

std::string man_page(std::span<const OptionPage> pages) {
  const auto& main = pages[0];
  std::string name = main.program, purpose = main.purpose;
  if (purpose.ends_with('.')) purpose.pop_back();
  if (!purpose.empty()) purpose[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(purpose[0])));
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  auto text = fmt::format(".TH {} 1 \"\" \"forge {}\" \"User Commands\"\n", roff(name), kVersion);
  text += fmt::format(".SH NAME\n{} \\- {}\n.SH SYNOPSIS\n", roff(main.program), roff(purpose));
  for (const auto& page : pages) text += (page.program == main.program ? "" : ".br\n") + man_synopsis(page);
  text += fmt::format(".SH DESCRIPTION\n{}\n.SH OPTIONS\n{}", roff(main.purpose), man_rows(main, true));
  if (pages.size() > 1) {
    text += ".SH COMMANDS\n";
    for (const auto& page : pages.subspan(1)) {
      text += fmt::format(".SS {}\n{}\n{}", roff(command_of(page)), roff(page.purpose), man_rows(page, false));
      if (!page.footer.empty()) text += fmt::format(".PP\n.nf\n{}\n.fi\n", roff(page.footer));
    }
  }
  if (!main.footer.empty()) text += fmt::format(".SH NOTES\n.nf\n{}\n.fi\n", roff(main.footer));
  text +=
      ".SH EXIT STATUS\n0 success, 1 the run failed, 2 wrong usage, 3 bad model or plan, 4 device error, 5 out of "
      "memory.\n"
      ".SH ENVIRONMENT\n.TP\n\\fBFORGE_CACHE_DIR\\fR\nfolder of the cache of plans, kernels and packed weights; "
      "default "
      "\\fI$XDG_CACHE_HOME/forge\\fR, else \\fI~/.cache/forge\\fR\n.TP\n\\fBFORGE_CACHE_MAX_BYTES\\fR\nsize limit of "
      "each of them in bytes; default 4 GiB\n.SH SEE ALSO\n";
  std::string others;
  for (const char* other : {"forge-bench", "forge-compile", "forge-inspect", "forge-run", "forge-serve"})
    if (other != main.program) others += fmt::format("{}\\fB{}\\fR(1)", others.empty() ? "" : ", ", roff(other));
  return text + others + "\n";
}

// ---- bash ----

std::string bash_case(const PageRow& row) {
  const auto label = fmt::format("{}", fmt::join(row.flags, "|"));
  switch (value_of(row)) {
    case Value::kNone:
      return {};
    case Value::kChoice:
      return fmt::format("    {}) _forge_words {} ;;\n", label, shell_quoted(words(row.choices)));
    case Value::kFile:
      return fmt::format("    {}) _forge_files -f ;;\n", label);
    case Value::kFolder:
      return fmt::format("    {}) _forge_files -d ;;\n", label);
    case Value::kOwn:
      return fmt::format("    {}) ;;  # free text: nothing to complete\n", label);
  }
  return {};
}

std::string bash_function(const OptionPage& page, const std::vector<std::string>& commands) {
  std::string cases;
  std::vector<std::string> flags;
  for (const auto& row : page.rows) {
    if (row.positional) continue;
    cases += bash_case(row);
    flags.insert(flags.end(), row.flags.begin(), row.flags.end());
  }
  auto text = fmt::format("{}() {{\n", function_of(page));
  if (!commands.empty()) {
    text += "  if [[ $COMP_CWORD -gt 1 ]]; then\n    case ${COMP_WORDS[1]} in\n";
    for (const auto& command : commands) {
      const OptionPage other{.program = page.program + " " + command, .purpose = {}, .footer = {}, .rows = {}};
      text += fmt::format("      {}) {}; return ;;\n", command, function_of(other));
    }
    text += "    esac\n  fi\n";
  }
  text += "  _forge_split\n  case $_forge_before in\n" + cases;
  text += fmt::format("    *)\n      if [[ $_forge_word == -* ]]; then\n        _forge_words {}\n",
                      shell_quoted(words(flags)));
  text += "      else\n";
  if (takes_file(page)) text += "        _forge_files -f\n";
  if (!commands.empty())
    text += fmt::format("        [[ $COMP_CWORD -ne 1 ]] || _forge_words {}\n", shell_quoted(words(commands)));
  if (!takes_file(page) && commands.empty()) text += "        :\n";
  return text + "      fi ;;\n  esac\n}\n";
}

std::string bash_page(std::span<const OptionPage> pages) {
  auto text = fmt::format(
      "# bash completion for {0}, written by the build from the tool's option table.\n\n"
      "# Sets the word to complete and the word before it, also for --option=value, which bash splits at '='.\n"
      "_forge_split() {{\n"
      "  COMPREPLY=()\n"
      "  _forge_word=${{COMP_WORDS[COMP_CWORD]}}\n"
      "  _forge_before=${{COMP_WORDS[COMP_CWORD - 1]}}\n"
      "  if [[ $_forge_word == = ]]; then\n"
      "    _forge_word=\n"
      "  elif [[ $_forge_before == = && $COMP_CWORD -ge 2 ]]; then\n"
      "    _forge_before=${{COMP_WORDS[COMP_CWORD - 2]}}\n"
      "  fi\n"
      "}}\n\n"
      "_forge_words() {{\n"
      "  local found\n"
      "  mapfile -t found < <(compgen -W \"$1\" -- \"$_forge_word\")\n"
      "  COMPREPLY+=(\"${{found[@]}}\")\n"
      "}}\n\n"
      "_forge_files() {{\n"
      "  local found\n"
      "  mapfile -t found < <(compgen \"$1\" -- \"$_forge_word\")\n"
      "  COMPREPLY+=(\"${{found[@]}}\")\n"
      "  compopt -o filenames 2>/dev/null\n"
      "}}\n",
      pages[0].program);
  for (const auto& page : pages.subspan(1)) text += "\n" + bash_function(page, {});
  text += "\n" + bash_function(pages[0], commands_of(pages));
  return text + fmt::format("\ncomplete -F {} {}\n", function_of(pages[0]), pages[0].program);
}

// ---- zsh ----

std::string zsh_action(const PageRow& row) {
  const auto value = value_of(row);
  if (value == Value::kNone) return {};
  const std::string action = value == Value::kChoice   ? "(" + words(row.choices) + ")"
                             : value == Value::kFile   ? "_files"
                             : value == Value::kFolder ? "_files -/"
                                                       : " ";
  return ":" + escaped(row.value, ":") + ":" + action;
}

/// The option specifications of a page for zsh's _arguments, one per line.
std::string zsh_specs(const OptionPage& page, std::string_view indent) {
  std::string text;
  for (const auto& row : page.rows) {
    if (row.positional) continue;
    for (const auto& flag : row.flags) {
      const auto front = row.repeats ? std::string("*") : fmt::format("({})", words(row.flags));
      const char* behind =
          flag.starts_with("--") && value_of(row) != Value::kNone ? "=" : "";  // also completes --option=value
      text += fmt::format(
          " \\\n{}{}", indent,
          shell_quoted(fmt::format("{}{}{}[{}]{}", front, flag, behind, escaped(row.help, "[]:\\"), zsh_action(row))));
    }
  }
  return text;
}

std::string zsh_page(std::span<const OptionPage> pages) {
  const auto& main = pages[0];
  auto text = fmt::format("#compdef {}\n# Written by the build from the tool's option table.\n\n", main.program);
  std::string first = "_files";
  if (pages.size() > 1) {
    text += "if (( CURRENT > 2 )); then\n  case $words[2] in\n";
    for (const auto& page : pages.subspan(1)) {
      text += fmt::format("    {})\n      shift words; (( CURRENT-- ))\n      _arguments{}", command_of(page),
                          zsh_specs(page, "        "));
      text += fmt::format("{}\n      return ;;\n", takes_file(page) ? " \\\n        '*:file:_files'" : "");
    }
    text += "  esac\nfi\n";
    text += "_forge_commands=(";
    for (const auto& page : pages.subspan(1))
      text += fmt::format("\n  {}", shell_quoted(fmt::format("{}:{}", command_of(page), escaped(page.purpose, ":\\"))));
    text += "\n)\n";
    first = "{ _describe command _forge_commands; _files }";
  }
  text += fmt::format("_arguments{}", zsh_specs(main, "  "));
  return text + fmt::format(" \\\n  {} \\\n  '*:file:_files'\n", shell_quoted("1:MODEL:" + first));
}

// ---- fish ----

std::string fish_rows(const OptionPage& page, std::string_view program, std::string_view condition) {
  const auto quote = [](std::string_view text) { return "'" + escaped(text, "\\'") + "'"; };
  std::string text;
  for (const auto& row : page.rows) {
    if (row.positional) continue;
    text += fmt::format("complete -c {}", program);
    if (!condition.empty()) text += fmt::format(" -n {}", quote(condition));
    for (const auto& flag : row.flags)
      text += flag.starts_with("--") ? " -l " + flag.substr(2) : " -s " + flag.substr(1);
    switch (value_of(row)) {
      case Value::kNone:
        break;
      case Value::kChoice:
        text += fmt::format(" -x -a {}", quote(words(row.choices)));
        break;
      case Value::kFile:
        text += " -r -F";
        break;
      case Value::kFolder:
        text += " -x -a '(__fish_complete_directories)'";
        break;
      case Value::kOwn:
        text += " -x";
        break;
    }
    text += fmt::format(" -d {}\n", quote(row.help));
  }
  return text;
}

std::string fish_page(std::span<const OptionPage> pages) {
  const auto& main = pages[0];
  auto text =
      fmt::format("# fish completion for {}, written by the build from the tool's option table.\n", main.program);
  if (pages.size() == 1) return text + fish_rows(main, main.program, {});
  const auto commands = words(commands_of(pages));
  for (const auto& page : pages.subspan(1))
    text += fmt::format("complete -c {} -n __fish_use_subcommand -a {} -d '{}'\n", main.program, command_of(page),
                        escaped(page.purpose, "\\'"));
  text += fish_rows(main, main.program, "not __fish_seen_subcommand_from " + commands);
  for (const auto& page : pages.subspan(1))
    text += fish_rows(page, main.program, fmt::format("__fish_seen_subcommand_from {}", command_of(page)));
  return text;
}

}  // namespace

std::string option_pages(std::string_view form, std::span<const OptionPage> pages) {
  if (form == "man") return man_page(pages);
  if (form == "bash") return bash_page(pages);
  if (form == "zsh") return zsh_page(pages);
  if (form == "fish") return fish_page(pages);
  throw Error(ErrorCode::kUsage, fmt::format("--help-as knows {}, not '{}'", kPageForms, printable(form)));
}

}  // namespace forge::tools
