#include "passes/schedule/row_layout.h"

namespace forge::passes {

RowLayout::RowLayout(const ir::Graph& graph, std::span<const Buffer> buffers) : graph_(graph) {
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const auto at = static_cast<std::ptrdiff_t>(i);
    buffer_of_.emplace(buffers[i].value, at);
    for (const ir::Value alias : buffers[i].aliases) buffer_of_.emplace(alias, at);
  }
}

std::ptrdiff_t RowLayout::buffer_of(ir::Value value) const {
  const auto found = buffer_of_.find(value);
  return found == buffer_of_.end() ? -1 : found->second;
}

/// Follows splits upwards as long as the part has no buffer of its own. Interleaved parts (unit > 0) are not
/// consecutive columns, so they are not views.
RowLayout::Columns RowLayout::columns_of(ir::Value value) const {
  Columns columns{.of = value};
  while (graph_.op(columns.of.node) == ir::Op::kSplit && !graph_.is_output(columns.of)) {
    const auto& parts = graph_.attrs_as<ir::PartsAttrs>(columns.of.node);
    const ir::Value whole = graph_.operand(columns.of.node, 0);
    const std::ptrdiff_t own = buffer_of(columns.of);
    if (parts.unit != 0 || (own >= 0 && own != buffer_of(whole))) break;
    for (std::uint32_t i = 0; i < columns.of.result; ++i) columns.first += parts.sizes[i];
    columns.of = whole;
  }
  return columns;
}

std::int64_t RowLayout::row_elements(ir::Value value) const {
  const auto& type = graph_.type(columns_of(value).of);
  if (type.shape.empty()) return 1;
  if (type.shape.size() == 1) return type.cols();
  std::int64_t count = 1;
  for (std::size_t i = 1; i < type.shape.size(); ++i) count *= type.shape[i].value;
  return count;
}

}  // namespace forge::passes
