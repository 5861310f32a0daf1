#pragma once
// Which weights a program needs in memory, in which layout, and where: the weight map of a plan.

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

/// Rows of a group of layout x16 (kernels/quant/x16.h).
inline constexpr std::int64_t kPackedRows = 16;

enum class WeightUse : std::uint8_t { kMatmul, kEmbedding, kVector };

/// Places weights one behind the other in the order of first use. A tensor used by a matmul and as an embedding is
/// placed once, packed; in the CPU's layout an embedding alone stays in the model file.
class WeightPlacer {
 public:
  WeightPlacer(const ir::Graph& graph, const ModelFile& model, quant::Layout packed)
      : graph_(graph), model_(model), layout_(packed) {}

  /// Declares a use; all uses are declared before any place is asked for.
  void declare(ir::Value weight, WeightUse use);
  void place();
  /// Instead of both: each weight lies where `other` put it, for another graph of the same model.
  void place_like(const WeightPlacer& other) { entries_ = other.entries_; }

  /// Where the weight lies, and its layout. No rows' distance.
  [[nodiscard]] plan::Operand at(ir::Value weight) const;
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  std::vector<std::unique_ptr<plan::WeightT>> take() { return std::move(weights_); }

 private:
  [[nodiscard]] std::string key(ir::Value weight) const;
  [[nodiscard]] std::vector<const SourceTensor*> tensors(ir::NodeId weight) const;
  [[nodiscard]] const SourceTensor& tensor(const std::string& name) const;
  /// A tensor of the file, or some rows of it.
  struct Source {
    ir::NodeId node = ir::kNoNode;          ///< the kWeight
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

/// Bytes of x16 rows of one matrix of a weight: all of [N, K], one expert of [E, N, K].
std::uint64_t packed_slice_bytes(const ir::Graph& graph, ir::Value weight);

/// Bytes of x16 rows from the start of a weight (of its first expert) up to `row` (a part's begin), each part padded to
/// 16 rows.
std::uint64_t packed_offset(const ir::Graph& graph, ir::Value weight, std::int64_t row);

}  // namespace forge::codegen
