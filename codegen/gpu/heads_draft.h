#pragma once
// A step that makes the heads of the attention behind it from rows of one value: norms of heads, RoPE, and the stores
// of keys and values. Attention of one row may do that itself (kernels/gpu/attention_heads.h).

#include <cstdint>
#include <optional>
#include <span>

#include "codegen/gpu/kv_format.h"
#include "codegen/tile_draft.h"
#include "ir/graph.h"

namespace forge::codegen {

struct HeadsDraft {
  TileDraft draft;
  /// Columns of the source where the first head's query, key and value begin; -1: the step makes none.
  std::int64_t query = -1, keys = -1, values = -1;
};

/// The draft of `step`, if only the attention that is the first node of `next` reads what it makes, and blocks with
/// waves of `wave` lanes can make it; else nothing.
std::optional<HeadsDraft> draft_heads(const ir::Graph& graph, std::span<const ir::NodeId> step,
                                      std::span<const ir::NodeId> next, const KvFormat& kv, int wave);

}  // namespace forge::codegen
