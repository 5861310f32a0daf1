#pragma once
// Source text of a generated kernel, which targets return with a step (Choice) and the code generator compiles.

#include <string>

namespace forge::passes {

/// One translation unit with one kernel, for targets that compile kernels (GPUs). Sources with equal text are compiled
/// once.
struct KernelSource {
  std::string entry;  ///< symbol of the kernel, a C identifier; also the name of the code object
  std::string text;   ///< the source; empty for steps without a generated kernel
};

}  // namespace forge::passes
