#pragma once
// Vendor libraries found at run time. Private to runtime/driver.

#include <span>
#include <string>
#include <string_view>
#include <vector>

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

/// `stem` with each version appended, then `stem`, then the same in `folder` (a vendor's own place) when given:
/// ("libcuda.so", {1}) gives libcuda.so.1, libcuda.so.
[[nodiscard]] std::vector<std::string> library_names(std::string_view stem, std::span<const int> versions,
                                                     std::string_view folder = {});

/// Throws the error of a library that is absent or did not load. `package` brings it.
[[noreturn]] void throw_not_loaded(std::string_view stem, const Library& library, std::string_view package);

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
