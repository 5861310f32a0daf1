#include "loader/arch/registry.h"

#include <fmt/format.h>

#include <array>

#include "support/error.h"

namespace forge::loader {
namespace {

constexpr std::array kFamilies{
#define FORGE_FAMILY(folder, source, name, models, features) Family{name, models, features, build_##source},
#include "loader/arch/families.def"
#undef FORGE_FAMILY
};

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

PortableModel build_model(const Gguf& file) {
  const auto name = file.require<std::string>("general.architecture");
  for (const auto& family : kFamilies)
    if (family.name == name) return family.build(file);
  throw Error(ErrorCode::kModelUnsupported, "model family '" + printable(name) + "' is not supported", {},
              fmt::format("'forge-inspect families' lists the {} supported ones", std::size(kFamilies)));
}

}  // namespace forge::loader
