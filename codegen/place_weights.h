#pragma once
// The weight map of a plan: which weights a program needs in memory, in which layout, and at which offset. Used by
// value_places.h.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "codegen/model_file.h"
#include "ir/graph.h"
#include "kernels/quant/rows.h"
#include "runtime/plan/step.h"

namespace forge::codegen {

/// Rows in a group of the layout x16 (kernels/quant/x16.h).
inline constexpr std::int64_t kPackedRows = 16;

enum class WeightUse : std::uint8_t { kMatmul, kEmbedding, kVector };

/// Places weights consecutively in the order of their first use, each aligned to 256 bytes. A tensor that is used both
/// by a matmul and as an embedding table is placed once, packed. In the CPU's layout (x16), a table that is only used
/// for embeddings stays in the model file and its rows are read from there. Call order: declare() for all uses, then
/// place(), then at(); or share_offsets() and at().
class WeightPlacer {
 public:
  /// packed: the layout of matmul weights, kX16 (CPU) or kPlanes (GPU). `graph` and `model` outlive this.
  WeightPlacer(const ir::Graph& graph, const ModelFile& model, quant::Layout packed)
      : graph_(graph), model_(model), layout_(packed) {}

  /// Declares a use of a weight: a kWeight, or slices or a concatenation of them.
  /// Errors: kPlan if a tensor is missing or has another type or shape.
  void declare(ir::Value weight, WeightUse use);
  /// Assigns the offsets of all declared weights.
  void place();
  /// Instead of declare() and place(): uses the offsets of `other`, which placed the weights of another graph of the
  /// same model.
  void share_offsets(const WeightPlacer& other) { entries_ = other.entries_; }

  /// The weight's address and layout, as an operand without row_bytes.
  [[nodiscard]] plan::Operand at(ir::Value weight) const;
  /// Bytes of all weights.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  /// Moves the rows of the weight map out.
  std::vector<std::unique_ptr<plan::WeightT>> take() { return std::move(weights_); }

 private:
  /// Identifies a weight by its tensors and slices, so that equal weights of different nodes are placed once.
  [[nodiscard]] std::string key(ir::Value weight) const;
  [[nodiscard]] std::vector<const SourceTensor*> tensors(ir::NodeId weight) const;
  [[nodiscard]] const SourceTensor& tensor(const std::string& name) const;
  /// A tensor of the model, or a range of its rows.
  struct Source {
    ir::NodeId node = ir::kNoNode;          ///< the kWeight node
    const ir::SliceAttrs* slice = nullptr;  ///< null: all rows
  };
  [[nodiscard]] Source source(ir::NodeId node) const;
  [[nodiscard]] std::vector<Source> sources(ir::Value weight) const;
  [[nodiscard]] plan::WeightSourceT describe(const Source& source, bool vector) const;
  [[nodiscard]] bool is_scattered(ir::Value weight) const;
  void add_slices(const Source& source, plan::WeightT& weight) const;

  struct Entry {
    ir::Value value;
    bool packed = false, vector = false;
    std::uint64_t offset = 0;
  };
  const ir::Graph& graph_;
  const ModelFile& model_;
  quant::Layout layout_;
  std::map<std::string, Entry> entries_;
  std::vector<std::string> order_;
  std::vector<std::unique_ptr<plan::WeightT>> weights_;
  std::int64_t bytes_ = 0;
};

/// Bytes of one matrix of a weight in the layout x16: all of [N, K], or one expert of [E, N, K]. Each part of a
/// concatenated weight is padded to 16 rows.
std::uint64_t packed_slice_bytes(const ir::Graph& graph, ir::Value weight);

/// Byte offset of `row` in such a matrix. `row` must be at a group of 16 rows of its part (invariant CG-001).
std::uint64_t packed_offset(const ir::Graph& graph, ir::Value weight, std::int64_t row);

}  // namespace forge::codegen
