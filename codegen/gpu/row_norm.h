#pragma once
// A matmul and an RMSNorm over its whole rows in one step (post-norms, sandwich norms). The draft of such a group is
// divided at the norm, because blocks of the matmul have some columns of a row only: kernels/gpu/matmul_norm.h.

#include <expected>
#include <optional>
#include <string>

#include "codegen/gpu/source/epilogue_source.h"
#include "codegen/tile_draft.h"

namespace forge::codegen {

/// The two halves of a draft with a norm over whole rows.
struct RowNormDraft {
  TileDraft matmul;  ///< up to the norm; stores its rows in the step's scratch (a kStore without operand)
  TileDraft rows;    ///< from the norm on; loads those rows (no source, no input)
  EpilogueShape matmul_shape, rows_shape;
};

/// The halves; nullopt if the draft has no norm over the whole rows of a matmul; or why GPUs do not support it.
std::expected<std::optional<RowNormDraft>, std::string> split_at_row_norm(const ir::Graph& graph,
                                                                          const TileDraft& draft);

}  // namespace forge::codegen
