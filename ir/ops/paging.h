#pragma once
// Private to ir/ops/: the operands positions, sequence and block_table, which locate a token's rows in the paged KV
// cache (attention.cc).

#include "ir/ops.h"

namespace forge::ir::ops {

inline constexpr std::size_t kPagingOperands = 3;
/// Upper limit of the blocks that a list of selected keys has, and of the positions of a block.
inline constexpr std::int64_t kSelectedMax = 1 << 20;

/// Throws unless the operands from `first` on are positions [M], sequence [M] and block_table [B,P].
void require_paging(std::string_view op, Types operands, std::size_t first, const Dim& tokens);

/// The operands that locate a token's KV rows.
struct Paging {
  const Tensor& positions;
  const Tensor& sequence;
  const Tensor& table;
  std::int64_t block_tokens;

  /// Physical position of `position` in the sequence that token `token` belongs to.
  [[nodiscard]] std::int64_t physical(std::size_t token, std::int64_t position) const;
};

}  // namespace forge::ir::ops
