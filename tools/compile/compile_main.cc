// Entry point of forge-compile.

#include "tools/cli/entry.h"
#include "tools/compile/compile_command.h"

int main(int argc, char** argv) {
  return forge::tools::run_tool([&] { return forge::tools::compile_command(argc, argv); });
}
