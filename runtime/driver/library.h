#pragma once
// Finding and loading vendor libraries at run time. Private to runtime/driver.

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/error.h"

namespace forge::driver {

/// A shared library that stays loaded until the process ends, because GPU drivers own threads and exit handlers.
class Library {
 public:
  Library() = default;
  /// Loads the first of `names` that exists (searched as the dynamic linker does); empty if none loads.
  [[nodiscard]] static Library load(std::span<const std::string> names);
  [[nodiscard]] explicit operator bool() const { return handle_ != nullptr; }
  /// Address of a symbol; null if the library does not have it.
  [[nodiscard]] void* symbol(const char* name) const;
  /// Path of the loaded file.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// The linker's message if a library exists but did not load (damaged, or a dependency is missing); empty if none
  /// exists.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  void* handle_ = nullptr;
  std::string path_, failure_;
};

/// Iterates over the libraries of a list of names, best first. A machine can have several versions, e.g. a
/// distribution's and the vendor's own, of which only one supports the device or has a compiler.
class LibrarySearch {
 public:
  explicit LibrarySearch(std::vector<std::string> names) : names_(std::move(names)) {}
  /// Returns the next library that loads and was not returned before; empty if there is none left.
  [[nodiscard]] Library next();
  /// The linker's first message about a library that exists but did not load.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  std::vector<std::string> names_, seen_;
  std::size_t at_ = 0;
  std::string failure_;
};

/// Returns `stem` with each version appended, then `stem` alone, then the same in `folder` if given. Example:
/// ("libcuda.so", {1}) gives libcuda.so.1, libcuda.so.
[[nodiscard]] std::vector<std::string> library_names(std::string_view stem, std::span<const int> versions,
                                                     std::string_view folder = {});

/// The error for a library that is absent or did not load (`failure`: the linker's message). `package` provides it.
[[nodiscard]] Error not_loaded(std::string_view stem, std::string_view failure, std::string_view package);

/// Reads a library's functions into a table and collects the required ones that are missing.
class SymbolReader {
 public:
  explicit SymbolReader(const Library& library) : library_(library) {}
  template <typename Function>
  void read(Function*& function, const char* name, bool required) {
    function = reinterpret_cast<Function*>(library_.symbol(name));
    if (function == nullptr && required) missing_.emplace_back(name);
  }
  /// Throws Error(kDevice) naming the missing required functions, if there are any.
  void finish(std::string_view package) const;

 private:
  const Library& library_;
  std::vector<std::string> missing_;
};

}  // namespace forge::driver
