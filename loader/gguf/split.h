#pragma once
// Models that are split into several GGUF files, the parts (source: llama.cpp, tools/gguf-split/README.md):
//
//   PREFIX-00001-of-00003.gguf   metadata of the model; split.no 0, split.count 3, split.tensors.count; tensors
//   PREFIX-00002-of-00003.gguf   split.no 1, split.count 3, split.tensors.count; further tensors
//   PREFIX-00003-of-00003.gguf   split.no 2, ...
//
// A part has a tensor table of its own, whose offsets count from its own data, and may have an alignment of its own.
// split.tensors.count counts the tensors of all parts. A whole model may have the keys too: with a split.count of 1, or
// of 0, which programs write that join parts again.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loader/gguf/gguf.h"
#include "support/error.h"

namespace forge::loader {

/// The name of a part, "PREFIX-00002-of-00003.gguf".
struct PartName {
  std::string prefix;
  std::uint32_t number = 1;  ///< from 1
  std::uint32_t count = 1;
  /// nullopt if `file_name` is not of that form.
  static std::optional<PartName> parse(std::string_view file_name);
  [[nodiscard]] std::string text() const;
};

/// The paths of all files of the model that `opened`, one file, belongs to; in order, `opened` under its own path.
/// Errors: kModelFormat if it is a part under another name, or if a part is missing; the message names it.
std::vector<std::filesystem::path> paths_of_parts(const Gguf& opened);

/// Checks that `parts`, files read each by itself, are one model in this order. Errors: kModelFormat, naming the part
/// that is another part, or of another model: its number, the number of parts or of tensors differs, metadata differ
/// from the first file's, a tensor occurs twice, tensors are missing, or none of its weights has a type of the others'.
void check_parts(std::span<const Gguf> parts);

/// Runs `body`; errors say that it happened while `file` was read, if the file has a path or a name.
template <class Body>
auto within_file(const GgufFile& file, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const Error& error) {
    const auto& name = file.path.empty() ? file.name : file.path.native();
    if (name.empty()) throw;
    throw error.within("reading " + printable(name, 200));
  }
}

}  // namespace forge::loader
