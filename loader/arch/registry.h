#pragma once
// One declaration a family file; the rows stand in registry.cc.

#include "loader/arch/family.h"

namespace forge::loader {

PortableModel build_llama(const Gguf& file);

}  // namespace forge::loader
