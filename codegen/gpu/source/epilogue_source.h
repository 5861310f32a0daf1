#pragma once
// Generates the epilogue of a fused step as device source: from a tile draft to the struct (Epilogue) that
// kernels/gpu/tile.h describes.

#include <cstdint>
#include <expected>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/gpu/kv_format.h"
#include "codegen/tile_draft.h"
#include "ir/graph.h"
#include "passes/target.h"

namespace forge::codegen {

/// The memory that a pointer argument of a kernel points to.
struct PointerArgument {
  enum class Kind : std::uint8_t {
    kValue,       ///< `value` of the graph: rows in the arena, a weight in its layout, a constant, an input
    kKeys,        ///< the K pool of the layer of `node`, a KV store or an attention
    kValues,      ///< its V pool
    kInput,       ///< the step input `input`: an ir::InputKind or plan::GpuInput
    kRecurrent,   ///< the recurrent state of layer `input` in the group whose state `node` updates
    kBlockTable,  ///< the block tables of the KV group of `node`, a KV store or an attention
    kScratch,     ///< the step's scratch, at byte `input`
    kConstants,   ///< the choice's constants, at byte `input`
    kCounters,    ///< u32 counters that are zero between steps, at byte `input`
    kLogits,      ///< the program's output
  };
  Kind kind{};
  ir::Value value{};
  ir::NodeId node = ir::kNoNode;
  std::int64_t input = 0;
};

/// Facts about the program that epilogues need.
struct EpilogueContext {
  std::function<std::int64_t(ir::Value)> row_floats;  ///< floats from one row of a value to the next
  /// How the variant stores a value; absent: as the graph has it.
  std::function<passes::StoredForm(ir::Value)> stored_form;
  std::function<std::int64_t(ir::Value)> rows;  ///< the most rows of a value in a step; absent: not known
  std::int64_t table_blocks = 0;
  const KvFormat* kv = nullptr;  ///< of the KV cache
  /// A value that the epilogue does not store, but gives to the kernel: in.keep(result).
  ir::Value kept{};
};

struct EpilogueSource {
  std::string text;                       ///< the definition of the struct
  std::vector<PointerArgument> pointers;  ///< what the members of its Args point to, in order
  ir::Value squares;                      ///< partial sums of squares, from which it applies 1/rms; none: it does not
  bool totals = false;                    ///< it says where the totals of those that it stores go (kSquaresOut)
};

/// The constraints of an epilogue on the number of columns of a block.
struct EpilogueShape {
  std::int64_t columns_in = 16;   ///< source columns per 16 results: 16, or 32 with a GLU
  std::int64_t multiple_of = 16;  ///< the block's columns must be a multiple of this
  std::int64_t norm_columns = 0;  ///< > 0: a block normalises its columns, which are exactly this many
  std::int64_t divides = 0;       ///< and must divide this (so that no block crosses a section's border); 0: no limit
};

/// The constraints, or the reason why GPUs do not support this epilogue.
std::expected<EpilogueShape, std::string> epilogue_shape(const ir::Graph& graph, const TileDraft& draft,
                                                         const KvFormat& kv);

/// The partial sums of squares that a draft stores.
std::vector<ir::Value> squares_of(const TileDraft& draft);

/// Generates the epilogue, a struct `name`. Precondition: epilogue_shape() returned a shape.
EpilogueSource generate_epilogue(const ir::Graph& graph, const TileDraft& draft, const EpilogueContext& context,
                                 std::string_view name = "Epilogue");

}  // namespace forge::codegen
