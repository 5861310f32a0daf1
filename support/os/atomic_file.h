#pragma once
// A file that appears whole or not at all.

#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string_view>

#include "support/os/unique_fd.h"
#include "support/os/write_all.h"

namespace forge {

/// Written beside its target under another name; `commit` renames it into place, and without one it goes away.
class AtomicFile {
 public:
  /// Errors: kIo; kUsage when `target` exists and is no regular file (a rename would replace a device or folder).
  /// `mode` as open takes it.
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

/// `text` as an AtomicFile. Errors: those of AtomicFile.
void write_file(const std::filesystem::path& target, std::string_view text);

/// Refuses (kUsage) what AtomicFile would refuse, and a file that is one of `others`, which are read or written too
/// (empty ones do not count): to be asked before long work.
void check_output_path(const std::filesystem::path& target, std::initializer_list<std::filesystem::path> others = {});

}  // namespace forge
