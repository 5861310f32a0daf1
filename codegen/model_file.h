#pragma once
// What the compiler needs to know about the model's files besides the graph: where each tensor lies. The tools fill it
// in from the loader, so that codegen does not depend on the loader.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/quant/dtype.h"

namespace forge::codegen {

/// A tensor of the model. `offset` and `bytes` are within its file.
struct SourceTensor {
  DType dtype = DType::kF32;
  std::int64_t rows = 0, cols = 0;  ///< a vector is one row
  std::uint64_t offset = 0, bytes = 0;
  std::uint32_t file = 0;  ///< index in ModelFile::files
};

struct SourceFile {
  std::string name;         ///< without its folder
  std::uint64_t bytes = 0;  ///< size of the file
  std::string identity;     ///< hash of its metadata and tensor table, hex
};

struct ModelFile {
  std::string path, name, family;  ///< path of the first file; the model's name; its architecture
  std::string identity;            ///< hash over all files' identities, hex; a single file's own
  std::vector<SourceFile> files;
  std::int64_t vocab = 0;
  std::map<std::string, SourceTensor, std::less<>> tensors;
};

}  // namespace forge::codegen
