#pragma once
// The epilogue of a fused step as device source: from a tile draft to the struct that kernels/gpu/tile.h asks for.

#include <cstdint>
#include <expected>
#include <functional>
#include <string>
#include <vector>

#include "codegen/tile_draft.h"
#include "ir/graph.h"

namespace forge::codegen {

/// What a pointer argument of a kernel points to.
struct PointerArgument {
  enum class Kind : std::uint8_t {
    kValue,       ///< a value of the graph: rows in the arena, a weight in its layout, a constant, an input
    kKeys,        ///< the K pool of the layer that `node`, a KV store or an attention, names
    kValues,      ///< its V pool
    kInput,       ///< a step input: ir::InputKind or plan::GpuInput
    kBlockTable,  ///< the block tables of the KV group of `node`, a KV store or an attention
    kScratch,     ///< the step's scratch, `input` bytes from its start
    kConstants,   ///< the choice's constants, `input` bytes from their start
    kCounters,    ///< u32s that are zero between steps, `input` bytes from their start
    kLogits,      ///< the block of the graph's outputs
  };
  Kind kind{};
  ir::Value value{};
  ir::NodeId node = ir::kNoNode;
  std::int64_t input = 0;
};

/// Numbers of the program that epilogues need.
struct EpilogueContext {
  std::function<std::int64_t(ir::Value)> row_floats;  ///< floats from one row of a value to the next
  std::int64_t table_blocks = 0, kv_block_tokens = 0;
};

struct EpilogueSource {
  std::string text;                       ///< struct Epilogue
  std::vector<PointerArgument> pointers;  ///< the members of its Args, in order
};

/// What the epilogue of a draft asks of the block that makes its tile.
struct EpilogueShape {
  std::int64_t columns_in = 16;   ///< columns that 16 results are made from
  std::int64_t multiple_of = 16;  ///< a block's columns are a multiple of it
  std::int64_t divides = 0;       ///< and divide this; 0: anything
};

/// The shape, or the reason why there is no such epilogue on a GPU.
std::expected<EpilogueShape, std::string> epilogue_shape(const ir::Graph& graph, const TileDraft& draft);

/// Precondition: epilogue_shape has one.
EpilogueSource generate_epilogue(const ir::Graph& graph, const TileDraft& draft, const EpilogueContext& context);

}  // namespace forge::codegen
