#pragma once
// Output files that appear completely or not at all, so a crash or a full disk never leaves a truncated file behind.

#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string_view>

#include "support/os/unique_fd.h"
#include "support/os/write_all.h"

namespace forge {

/// Writes to a hidden temporary file in the target's directory. commit() renames it over the target, which is atomic
/// within a file system; without commit() the destructor deletes it.
class AtomicFile {
 public:
  /// Opens the temporary file with permissions `mode`, as open(2) takes it. Errors: kIo; kUsage if `target` exists but
  /// is not a regular file, because a rename would replace a device or directory.
  explicit AtomicFile(std::filesystem::path target, unsigned mode = 0666);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);  ///< Errors: kIo
  void commit();                                 ///< Errors: kIo

 private:
  std::filesystem::path target_, temporary_;
  UniqueFd fd_;
  bool pending_ = false;
};

/// Writes `text` to `target` through an AtomicFile. Errors: those of AtomicFile.
void write_file(const std::filesystem::path& target, std::string_view text);

/// Checks, before long work starts, that `target` can be written. Errors: those of AtomicFile's constructor; kUsage if
/// `target` is the same file as one of `others`, the files that the same command also reads or writes. Empty paths in
/// `others` are ignored.
void check_output_path(const std::filesystem::path& target, std::initializer_list<std::filesystem::path> others = {});

}  // namespace forge
