// forge-inspect: what is in a model, and what forge makes of it. Subcommands: tokenize, render-chat.

#include <fmt/core.h>

#include <cstdlib>
#include <iostream>
#include <span>
#include <string_view>

#include "support/error.h"
#include "tools/inspect_chat.h"
#include "tools/inspect_tokenize.h"

namespace {

constexpr std::string_view kUsage =
    "usage: forge-inspect tokenize MODEL [--special] < TEXT, or forge-inspect render-chat --template FILE < JSON";

int tokenize(std::span<char*> args) {
  std::string_view model;
  bool parse_special = false;
  for (const std::string_view arg : args) {
    if (arg == "--special") {
      parse_special = true;
    } else if (arg.starts_with("-") || !model.empty()) {
      throw forge::Error(forge::ErrorCode::kUsage, fmt::format("unexpected argument '{}'", arg), "",
                         std::string(kUsage));
    } else {
      model = arg;
    }
  }
  if (model.empty()) throw forge::Error(forge::ErrorCode::kUsage, "no model is named", "", std::string(kUsage));
  forge::tools::inspect_tokenize(model, parse_special, std::cin, std::cout, std::cerr);
  std::cout.flush();
  if (!std::cout) throw forge::Error(forge::ErrorCode::kIo, "cannot write to standard output");
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::ios::sync_with_stdio(false);
    const std::span<char*> args(argv, static_cast<std::size_t>(argc));
    const std::string_view command = args.size() > 1 ? args[1] : "";
    if (command == "tokenize") return tokenize(args.subspan(2));
    if (command == "render-chat") {
      const std::span<char*> rest = args.subspan(2);
      return forge::tools::inspect_render_chat({rest.begin(), rest.end()});
    }
    if (command == "--help" || command == "-h") {
      std::cout << kUsage << '\n';
      return EXIT_SUCCESS;
    }
    throw forge::Error(forge::ErrorCode::kUsage,
                       command.empty() ? "no command is given" : fmt::format("unknown command '{}'", command), "",
                       std::string(kUsage));
  } catch (const forge::Error& error) {
    std::cerr << error.line() << '\n';
    return error.exit_status();
  } catch (const std::exception& error) {
    std::cerr << forge::Error(forge::ErrorCode::kInternal, error.what()).line() << '\n';
    return EXIT_FAILURE;
  }
}
