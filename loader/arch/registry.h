#pragma once
// Declares build_<source>() for each row of families.def, for the families' files and registry.cc. A function that
// several rows name is declared several times, which C++ allows.

#include "loader/arch/family.h"

namespace forge::loader {

#define FORGE_FAMILY(folder, source, name, models, features) PortableModel build_##source(const Gguf& file);
#include "loader/arch/families.def"
#undef FORGE_FAMILY

}  // namespace forge::loader
