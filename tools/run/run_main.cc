// Entry point of forge-run.

#include "tools/cli/entry.h"
#include "tools/run/run_command.h"

int main(int argc, char** argv) {
  forge::session::Stages stages;
  return forge::tools::run_tool([&] {
    forge::tools::RunRequest request;
    if (!forge::tools::parse_run_options(argc, argv, request)) return 0;
    return forge::tools::run_command(request, stages);
  });
}
