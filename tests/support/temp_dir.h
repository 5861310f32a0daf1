#pragma once
// A new temporary directory for one test. The destructor removes it with its contents.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace forge::tests {

class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "forge-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    path_ = name;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path file(std::string_view name) const { return path_ / name; }
  /// Writes `bytes` to the file `name` in the directory and returns its path.
  [[nodiscard]] std::filesystem::path write(std::string_view name, std::string_view bytes) const {
    const auto at = file(name);
    std::ofstream out(at, std::ios::binary);
    if (!out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()))) throw std::runtime_error("cannot write");
    return at;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace forge::tests
