#pragma once
// The function of each family's file; the rows stand in families.def.

#include "loader/arch/family.h"

namespace forge::loader {

#define FORGE_FAMILY(folder, source, name, models, features) PortableModel build_##source(const Gguf& file);
#include "loader/arch/families.def"
#undef FORGE_FAMILY

}  // namespace forge::loader
