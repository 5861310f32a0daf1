#pragma once

#include <string>

namespace forge::passes {

/// One translation unit with one kernel, for targets that compile kernels. Equal texts are one kernel.
struct KernelSource {
  std::string entry;  ///< the kernel's symbol, a C identifier, and the code object's name
  std::string text;
};

}  // namespace forge::passes
