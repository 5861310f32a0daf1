#pragma once
// A matmul and operations that need whole rows of it in one step: an RMSNorm of its rows (post-norms, sandwich norms),
// or the sum over a token's experts. The draft of such a group is divided there, because blocks of the matmul have some
// columns of a row only: kernels/gpu/matmul_norm.h.

#include <expected>
#include <optional>
#include <span>
#include <string>

#include "codegen/gpu/source/epilogue_source.h"
#include "codegen/tile_draft.h"

namespace forge::codegen {

inline constexpr DraftRules kGpuDraftRules{.row_norms = true, .branches = true};
/// The same in a step of one token.
inline constexpr DraftRules kOneRowRules{.row_norms = true, .branches = true, .one_row = true};

/// The two halves of a draft with operations on whole rows of a matmul.
struct RowNormDraft {
  TileDraft matmul;  ///< up to them; stores its rows in the step's scratch (a kStore without operand)
  TileDraft rows;    ///< from them on; loads those rows. Its source is the kExpertSum, or none
  EpilogueShape matmul_shape, rows_shape;
};

/// The halves; nullopt if the draft has no such operations; or why GPUs do not support it.
std::expected<std::optional<RowNormDraft>, std::string> split_at_row_norm(const ir::Graph& graph,
                                                                          const TileDraft& draft, const KvFormat& kv);

/// A matmul whose rows are the logits of a router, and that router.
struct RoutedDraft {
  TileDraft matmul;  ///< stores the logits in the step's scratch
  EpilogueShape shape;
  ir::NodeId route = ir::kNoNode;
};

/// The matmul and the router of a group; nullopt if its nodes are not more than a router, or none; or why GPUs do not
/// support it. members: in topological order.
std::expected<std::optional<RoutedDraft>, std::string> split_at_route(const ir::Graph& graph,
                                                                      std::span<const ir::NodeId> members,
                                                                      const KvFormat& kv);

}  // namespace forge::codegen
