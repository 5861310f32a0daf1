// forge-compile: a model into a plan.

#include "tools/compile_command.h"
#include "tools/entry.h"

int main(int argc, char** argv) {
  return forge::tools::run_tool([&] { return forge::tools::compile_command(argc, argv); });
}
