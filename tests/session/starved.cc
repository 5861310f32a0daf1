// What a machine may refuse is an error that is told, with status 5, error[memory]: `starved memory`, `starved
// threads`. Memory is asked for with the tools' heap: linked in another order its own `operator new`, which was
// compiled as C and cannot throw, would be called and abort.

#include <sys/resource.h>

#include <cstdint>
#include <fstream>
#include <new>
#include <string_view>

#include "serve/http/workers.h"
#include "tools/cli/entry.h"

namespace {

/// Leaves room for a few threads' stacks.
void lower_memory_limit() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t bytes = pages * 4096 + (rlim_t{64} << 20);
  const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
  (void)setrlimit(RLIMIT_AS, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  return forge::tools::run_tool([what = std::string_view(argc > 1 ? argv[1] : "")] {
    if (what == "memory") {
      volatile std::size_t bytes = PTRDIFF_MAX / 2;
      ::operator delete(::operator new(bytes));
    } else if (what == "threads") {
      lower_memory_limit();
      const forge::serve::Workers workers(1000);
    }
    return 0;
  });
}
