#include "loader/arch/registry.h"

#include <array>

#include "support/error.h"

namespace forge::loader {
namespace {

constexpr std::array kFamilies{
    Family{"llama", build_llama},
};

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

PortableModel build_model(const Gguf& file) {
  const auto name = file.require<std::string>("general.architecture");
  std::string known;
  for (const auto& family : kFamilies) {
    if (family.name == name) return family.build(file);
    known += (known.empty() ? "" : ", ") + std::string(family.name);
  }
  throw Error(ErrorCode::kModelUnsupported, "model family '" + printable(name) + "' is not supported", {},
              "supported families: " + known);
}

}  // namespace forge::loader
