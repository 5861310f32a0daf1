#pragma once
// Memory layout of values once their buffers are planned. A part of a split that has no buffer of its own is a view: a
// range of columns of the value that was split, so splitting copies nothing.
//   x [T,960] = matmul, q, k, v = split(x) {sizes = [576, 192, 192]}:  columns_of(k) = {x, 576}, row_elements(k) = 960

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace forge::passes {

/// A piece of the arena that holds a value between the step that computes it and its last reader. Outputs of the graph
/// (logits) are not in the arena: they are read after the step, so nothing may overwrite them.
struct Buffer {
  ir::Value value;                 ///< the first value in this buffer
  std::vector<ir::Value> aliases;  ///< later values that overwrite it in place, in order
  std::int64_t bytes = 0;
  std::int32_t first = 0, last = 0;  ///< steps in which it is live, both included
  std::int64_t offset = 0;           ///< bytes into the arena
};

/// Answers where the rows of a value lie.
class RowLayout {
 public:
  /// `graph` must outlive this. `buffers` is only read here; offsets need not be set yet.
  RowLayout(const ir::Graph& graph, std::span<const Buffer> buffers);

  /// Index of the value's buffer; -1 if it has none: it stays inside one step, is a view, or is not in the arena.
  [[nodiscard]] std::ptrdiff_t buffer_of(ir::Value value) const;

  /// The columns of `of` from element `first` on.
  struct Columns {
    ir::Value of;
    std::int64_t first = 0;
  };
  /// The columns that a value consists of: {value, 0} unless it is a view.
  [[nodiscard]] Columns columns_of(ir::Value value) const;

  /// Row stride in elements, that is, the distance between consecutive tokens: U * N for [T,U,N], and the width of the
  /// split value for a view.
  [[nodiscard]] std::int64_t row_elements(ir::Value value) const;

 private:
  const ir::Graph& graph_;
  std::map<ir::Value, std::ptrdiff_t> buffer_of_;
};

}  // namespace forge::passes
