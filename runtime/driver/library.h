#pragma once
// Vendor libraries found at run time. Private to runtime/driver.

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/error.h"

namespace forge::driver {

/// A shared library that stays loaded until the process ends: GPU drivers own threads and exit handlers.
class Library {
 public:
  Library() = default;
  /// The first of `names` that loads (file names are looked up as the dynamic linker does), or nothing.
  [[nodiscard]] static Library load(std::span<const std::string> names);
  [[nodiscard]] explicit operator bool() const { return handle_ != nullptr; }
  /// Null when the library has no such symbol.
  [[nodiscard]] void* symbol(const char* name) const;
  /// Path of the file that was loaded.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// The linker's reason why a library that exists did not load (a damaged file, a dependency of its own that is
  /// missing); empty when none was there.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  void* handle_ = nullptr;
  std::string path_, failure_;
};

/// The libraries of one list of names, best first. A machine can have several (a distribution's beside the vendor's
/// own, of another version) of which only one knows the card or has a compiler.
class LibrarySearch {
 public:
  explicit LibrarySearch(std::vector<std::string> names) : names_(std::move(names)) {}
  /// The next one that loads and was not among those before; empty when there is none left.
  [[nodiscard]] Library next();
  /// The linker's first reason why a library that exists did not load.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  std::vector<std::string> names_, seen_;
  std::size_t at_ = 0;
  std::string failure_;
};

/// `stem` with each version appended, then `stem`, then the same in `folder` (a vendor's own place) when given:
/// ("libcuda.so", {1}) gives libcuda.so.1, libcuda.so.
[[nodiscard]] std::vector<std::string> library_names(std::string_view stem, std::span<const int> versions,
                                                     std::string_view folder = {});

/// The error of a library that is absent or did not load, with the linker's reason for the latter. `package` brings it.
[[nodiscard]] Error not_loaded(std::string_view stem, std::string_view failure, std::string_view package);

/// Collects required functions that a library lacks.
class SymbolReader {
 public:
  explicit SymbolReader(const Library& library) : library_(library) {}
  template <typename Function>
  void read(Function*& function, const char* name, bool required) {
    function = reinterpret_cast<Function*>(library_.symbol(name));
    if (function == nullptr && required) missing_.emplace_back(name);
  }
  /// Throws Error(kDevice) naming the required functions that were missing, if any were.
  void finish(std::string_view package) const;

 private:
  const Library& library_;
  std::vector<std::string> missing_;
};

}  // namespace forge::driver
