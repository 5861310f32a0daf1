#pragma once
// Model families: turn the metadata and tensors of a GGUF file into the portable graph. Each family has a file in
// loader/arch/dense or loader/arch/moe and a row in families.def; docs/adding.md explains how to add one. The compiler
// calls build_model().

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ir/graph.h"
#include "loader/gguf/gguf.h"

namespace forge::loader {

/// Facts about a model that tools and the runtime need besides the graph.
struct ModelInfo {
  std::string family, name;  ///< general.architecture and general.name
  std::int64_t context = 0;  ///< positions the model was trained for
  std::int64_t vocab = 0, layers = 0, width = 0, heads = 0, kv_heads = 0, head_dim = 0;
};

/// A model before compilation, independent of any target.
struct PortableModel {
  /// Outputs: "logits" [R, vocab], or ir::kHiddenOutput [R, width] for an encoder; and the states "kv<N>" and
  /// "recurrent<N>".
  ir::Graph graph;
  ModelInfo info;
};

/// One row of families.def.
struct Family {
  std::string_view name;      ///< value of general.architecture
  std::string_view models;    ///< models that are published under this name
  std::string_view features;  ///< differences from a pre-norm decoder with RMSNorm, RoPE and SwiGLU
  PortableModel (*build)(const Gguf& file);
};

/// All families, in alphabetical order.
std::span<const Family> families();

/// Builds the portable graph of a model file. Errors: kModelUnsupported (family, tensor type or feature, by name, with
/// where the supported ones are listed), kModelFormat (missing or misshapen tensors, metadata that contradicts them,
/// with both numbers).
PortableModel build_model(const Gguf& file);

}  // namespace forge::loader
