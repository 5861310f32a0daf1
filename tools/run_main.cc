// forge-run: text, tokens or logits from a model.

#include "tools/entry.h"
#include "tools/run_command.h"

int main(int argc, char** argv) {
  forge::tools::Stages stages;
  return forge::tools::run_tool([&] {
    forge::tools::RunRequest request;
    if (!forge::tools::parse_run_options(argc, argv, request)) return 0;
    return forge::tools::run_command(request, stages);
  });
}
