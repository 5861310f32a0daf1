#pragma once
// Model families: GGUF metadata and tensors -> the portable graph. One file a family, one row in families.def.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ir/graph.h"
#include "loader/gguf/gguf.h"

namespace forge::loader {

/// What tools and the runtime need to know of a model besides its graph.
struct ModelInfo {
  std::string family, name;
  std::int64_t context = 0;  ///< positions the model was trained for
  std::int64_t vocab = 0, layers = 0, width = 0, heads = 0, kv_heads = 0, head_dim = 0;
};

struct PortableModel {
  ir::Graph graph;  ///< output "logits" [R, vocab] and one state a KV group
  ModelInfo info;
};

struct Family {
  std::string_view name;      ///< general.architecture
  std::string_view models;    ///< that are published under the name
  std::string_view features;  ///< what its graph has beyond a pre-norm decoder with RMSNorm, RoPE and SwiGLU
  PortableModel (*build)(const Gguf& file);
};

std::span<const Family> families();

/// Errors: kModelUnsupported (family, tensor type or feature, by name, with what is supported), kModelFormat (missing
/// or misshapen tensors, metadata that contradicts them, with both numbers).
PortableModel build_model(const Gguf& file);

}  // namespace forge::loader
