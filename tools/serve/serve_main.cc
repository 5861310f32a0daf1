// Entry point of forge-serve.

#include "tools/cli/entry.h"
#include "tools/serve/serve_command.h"

int main(int argc, char** argv) {
  forge::session::Stages stages;
  return forge::tools::run_tool([&] {
    forge::tools::ServeRequest request;
    if (!forge::tools::parse_serve_options(argc, argv, request)) return 0;
    return forge::tools::serve_command(request, stages);
  });
}
