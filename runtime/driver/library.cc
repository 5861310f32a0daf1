#include "runtime/driver/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>

#include "runtime/driver/api.h"
#include "support/error.h"

namespace forge::driver {

Library Library::load(std::span<const std::string> names) {
  Library library;
  // RTLD_NODELETE: see Library. RTLD_LOCAL: several versions may be loaded, and their symbols must not mix.
  for (const std::string& name : names) {
    library.handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library.handle_ != nullptr) {
      library.path_ = name;
      link_map* map = nullptr;
      if (dlinfo(library.handle_, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 && map != nullptr) {
        library.path_ = map->l_name;
      }
      library.failure_.clear();
      return library;
    }
    // The linker has no error code for a missing file, only the text "NAME: cannot open shared object file: No such
    // file". The same text with another file's name means that a dependency is missing.
    const char* text = dlerror();
    const std::string failure = text != nullptr ? text : "";
    if (!failure.starts_with(name + ": cannot open shared object file: No such file") && library.failure_.empty()) {
      library.failure_ = failure;
    }
  }
  return library;
}

void* Library::symbol(const char* name) const {
  return handle_ != nullptr ? dlsym(handle_, name) : nullptr;
}

Library LibrarySearch::next() {
  while (at_ < names_.size()) {
    Library library = Library::load(std::span(names_).subspan(at_++, 1));
    if (failure_.empty()) failure_ = library.failure();
    if (!library || std::ranges::find(seen_, library.path()) != seen_.end()) continue;
    seen_.push_back(library.path());
    return library;
  }
  return {};
}

/// An empty `folder` adds no names: the loop ends after the first prefix.
std::vector<std::string> library_names(std::string_view stem, std::span<const int> versions, std::string_view folder) {
  std::vector<std::string> names;
  for (const std::string& prefix : {std::string(), std::string(folder)}) {
    if (prefix.empty() && !names.empty()) break;
    const std::string path = prefix.empty() ? std::string(stem) : fmt::format("{}/{}", prefix, stem);
    for (const int version : versions) names.push_back(fmt::format("{}.{}", path, version));
    names.push_back(path);
  }
  return names;
}

Error not_loaded(std::string_view stem, std::string_view failure, std::string_view package) {
  if (failure.empty()) {
    return {ErrorCode::kDevice,
            fmt::format("there is no {} on this machine", stem),
            {},
            fmt::format("install {}", package)};
  }
  return {ErrorCode::kDevice, fmt::format("{} does not load", stem), printable(failure, 300),
          fmt::format("reinstall {}", package)};
}

void SymbolReader::finish(std::string_view package) const {
  if (missing_.empty()) return;
  std::string names = missing_.front();
  // At most four names, to keep the message short.
  for (std::size_t i = 1; i < missing_.size() && i < 4; ++i) names += ", " + missing_[i];
  if (missing_.size() > 4) names += fmt::format(" and {} more", missing_.size() - 4);
  throw Error(ErrorCode::kDevice, fmt::format("{} cannot be used", printable(library_.path(), 200)),
              "it lacks " + names, fmt::format("install a newer {}", package));
}

LibrarySearch driver_libraries(Vendor vendor) {
  constexpr int kHip[] = {7, 6, 5}, kCuda[] = {1};
  if (vendor == Vendor::kAmd) return LibrarySearch(library_names("libamdhip64.so", kHip, "/opt/rocm/lib"));
  return LibrarySearch(library_names("libcuda.so", kCuda));
}

std::span<const FunctionRow> function_rows() {
  constexpr bool kRequired = true, kOptional = false;
#define FORGE_HIP(name, need) {"hip", #name, need},
#define FORGE_HIP_TYPED(name, need, type) {"hip", #name, need},
#define FORGE_HIPRTC(name, need) {"hiprtc", #name, need},
#define FORGE_CUDA(name, need) {"cuda", #name, need},
#define FORGE_NVRTC(name, need) {"nvrtc", #name, need},
  static constexpr FunctionRow kRows[] = {
#include "runtime/driver/functions.def"
  };
  return kRows;
}

bool has_column(Vendor vendor) {
  if (vendor == Vendor::kAmd) return FORGE_HAS_HIP;
  return vendor != Vendor::kNvidia || FORGE_HAS_CUDA;
}

const char* driver_package(Vendor vendor) {
  return vendor == Vendor::kNvidia ? "libcuda1 (the NVIDIA driver, Debian's non-free)" : "libamdhip64-5";
}

const char* compiler_package(Vendor vendor) {
  return vendor == Vendor::kNvidia ? "cuda-nvrtc-12-9 or later from NVIDIA's own Debian repository" : "libamdhip64-5";
}

#if !FORGE_HAS_HIP
std::unique_ptr<Api> load_hip(LibrarySearch&) {
  throw Error(ErrorCode::kDevice, "this build has no AMD support", "it was configured with -Dhip=disabled");
}
std::unique_ptr<CompilerApi> load_hiprtc() {
  throw Error(ErrorCode::kDevice, "this build has no AMD support", "it was configured with -Dhip=disabled");
}
#endif

#if !FORGE_HAS_CUDA
std::unique_ptr<Api> load_cuda(LibrarySearch&) {
  throw Error(ErrorCode::kDevice, "this build has no NVIDIA support", "cuda.h was not found when forge was built",
              "build with CUDA's headers in /usr/local/cuda/include");
}
std::unique_ptr<CompilerApi> load_nvrtc() {
  throw Error(ErrorCode::kDevice, "this build has no NVIDIA support", "nvrtc.h was not found when forge was built",
              "build with CUDA's headers in /usr/local/cuda/include");
}
#endif

}  // namespace forge::driver
