#pragma once
// What compilation knows of the model file besides the graph: where each tensor lies. Tools fill it from the loader, so
// that codegen does not depend on it.

#include <cstdint>
#include <map>
#include <string>

#include "kernels/quant/dtype.h"

namespace forge::codegen {

struct SourceTensor {
  DType dtype = DType::kF32;
  std::int64_t rows = 0, cols = 0;  ///< a vector is one row
  std::uint64_t offset = 0, bytes = 0;
};

struct ModelFile {
  std::string path, name, family;
  std::string identity;  ///< hash of metadata and tensor table, hex
  std::uint64_t file_bytes = 0;
  std::int64_t vocab = 0;
  std::map<std::string, SourceTensor, std::less<>> tensors;
};

}  // namespace forge::codegen
