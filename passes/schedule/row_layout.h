#pragma once
// How the rows of values lie in memory once their buffers are planned. Parts of a split that have no buffer of their
// own are columns of the rows that were split.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace forge::passes {

/// A value that lives in the arena: produced by one step and read by later ones. Outputs of the graph (logits) live in
/// a block of their own: their readers are outside, and nothing may overwrite them.
struct Buffer {
  ir::Value value;                 ///< the first value that takes this space
  std::vector<ir::Value> aliases;  ///< values computed in place of it
  std::int64_t bytes = 0;
  std::int32_t first = 0, last = 0;  ///< steps
  std::int64_t offset = 0;           ///< into the arena
};

class RowLayout {
 public:
  /// `graph` outlives this; of `buffers` only the values are looked at, now.
  RowLayout(const ir::Graph& graph, std::span<const Buffer> buffers);

  /// Where a value lives, as an index of the buffers; -1: it stays inside one step, is a view, or is no arena value.
  [[nodiscard]] std::ptrdiff_t buffer_of(ir::Value value) const;

  /// Columns of another value from `first` on, counted in elements.
  struct Columns {
    ir::Value of;
    std::int64_t first = 0;
  };
  /// What a value is columns of: for all but parts of a split itself, from 0 on.
  [[nodiscard]] Columns columns_of(ir::Value value) const;

  /// Elements from one row of T or R to the next: rows of [T, U, N] are T rows of U * N.
  [[nodiscard]] std::int64_t row_elements(ir::Value value) const;

 private:
  const ir::Graph& graph_;
  std::map<ir::Value, std::ptrdiff_t> buffer_of_;
};

}  // namespace forge::passes
