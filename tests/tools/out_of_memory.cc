// With the tools' heap: memory that is not there is an error that is told, and no abort. Linked in another order the
// heap's own `operator new`, which was compiled as C and cannot throw, would be called. Ends with status 5,
// error[memory], when all is well.

#include <cstdint>
#include <new>

#include "tools/entry.h"

int main() {
  return forge::tools::run_tool([] {
    volatile std::size_t bytes = PTRDIFF_MAX / 2;
    ::operator delete(::operator new(bytes));
    return 0;
  });
}
