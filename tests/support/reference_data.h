#pragma once
// Where the reference data is.

#include <cstdlib>
#include <filesystem>

namespace forge::tests {

#ifdef FORGE_SHARED_DIR
/// Path of a file of the reference data, in $FORGE_SHARED or else in the folder known at build time. It may not exist.
inline std::filesystem::path reference_path(const char* name) {
  const char* folder = std::getenv("FORGE_SHARED");  // NOLINT(concurrency-mt-unsafe): no thread writes it
  return std::filesystem::path(folder != nullptr ? folder : FORGE_SHARED_DIR) / name;
}
#endif

}  // namespace forge::tests
