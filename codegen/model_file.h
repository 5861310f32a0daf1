#pragma once
// What compilation knows of the model file besides the graph: where each tensor lies. Tools fill it from the loader, so
// that codegen does not depend on it.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/quant/dtype.h"

namespace forge::codegen {

struct SourceTensor {
  DType dtype = DType::kF32;
  std::int64_t rows = 0, cols = 0;  ///< a vector is one row
  std::uint64_t offset = 0, bytes = 0;
  std::uint32_t file = 0;  ///< of ModelFile::files
};

struct SourceFile {
  std::string name;  ///< without its folder
  std::uint64_t bytes = 0;
  std::string identity;  ///< hash of its metadata and tensor table, hex
};

struct ModelFile {
  std::string path, name, family;  ///< path: of the first file
  std::string identity;            ///< of all files together, hex; of one file its own
  std::vector<SourceFile> files;
  std::int64_t vocab = 0;
  std::map<std::string, SourceTensor, std::less<>> tensors;
};

}  // namespace forge::codegen
