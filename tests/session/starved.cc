// Checks that running out of memory or threads is a reported error (error[memory], status 5) and not a crash. usage:
// starved memory | starved threads.
// Memory is allocated with the tools' heap. The link order matters: in another order the heap's own `operator new`
// would be used, which was compiled as C and cannot throw, so the program would abort.

#include <sys/resource.h>

#include <cstdint>
#include <fstream>
#include <new>
#include <string_view>

#include "serve/http/workers.h"
#include "tools/cli/entry.h"

namespace {

/// Lowers the address space limit to leave room for a few thread stacks only.
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
