#include "codegen/place_weights.h"

#include <fmt/format.h>

#include "codegen/tile_draft.h"
#include "kernels/quant/rows.h"
#include "support/error.h"

namespace forge::codegen {
namespace {

constexpr std::uint64_t kWeightAlignment = 256;
constexpr std::int64_t kPackedRows = 16;

std::uint64_t align_up(std::uint64_t value) {
  return (value + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
}
std::int64_t padded(std::int64_t rows) {
  return (rows + kPackedRows - 1) / kPackedRows * kPackedRows;
}

/// A weight's rows: [N, K] are N of one slice, [E, N, K] are N of each of E slices. Vectors have one row, and K is 1
/// for the E vectors [E, N, 1].
struct SlicedRows {
  std::int64_t slices = 1, rows = 1, cols = 0;
  bool vector = false;
};
SlicedRows sliced(const ir::TensorType& type) {
  const auto& shape = type.shape;
  if (shape.size() == 1) return {.cols = type.cols(), .vector = true};
  if (shape.size() == 2) return {.rows = shape[0].value, .cols = type.cols()};
  if (type.cols() == 1) return {.slices = shape[0].value, .cols = shape[1].value, .vector = true};
  return {.slices = shape[0].value, .rows = shape[1].value, .cols = type.cols()};
}

}  // namespace

std::uint64_t packed_slice_bytes(const ir::Graph& graph, ir::Value weight) {
  std::int64_t packed_rows = 0;
  for (const auto rows : weight_part_rows(graph, weight)) packed_rows += padded(rows);
  const auto& type = graph.type(weight);
  return static_cast<std::uint64_t>(packed_rows) * row_bytes(type.dtype, static_cast<std::size_t>(type.cols()));
}

std::uint64_t packed_offset(const ir::Graph& graph, ir::Value weight, std::int64_t row) {
  const auto& type = graph.type(weight);
  std::int64_t packed_rows = 0;
  for (const auto rows : weight_part_rows(graph, weight)) {
    if (row < rows) break;
    row -= rows;
    packed_rows += padded(rows);
  }
  invariant(row % kPackedRows == 0, "CG-001", "a section begins inside a group of packed rows");
  return static_cast<std::uint64_t>(packed_rows + row) * row_bytes(type.dtype, static_cast<std::size_t>(type.cols()));
}

std::string WeightPlacer::key(ir::Value weight) const {
  if (graph_.op(weight.node) == ir::Op::kWeight) return graph_.attrs_as<ir::WeightAttrs>(weight.node).name;
  std::string text = fmt::format("concat/{}", graph_.attrs_as<ir::PartsAttrs>(weight.node).unit);
  for (const auto node : sources(weight)) text += "/" + graph_.attrs_as<ir::WeightAttrs>(node).name;
  return text;
}

std::vector<ir::NodeId> WeightPlacer::sources(ir::Value weight) const {
  if (graph_.op(weight.node) == ir::Op::kWeight) return {weight.node};
  invariant(graph_.op(weight.node) == ir::Op::kConcatRows, "CG-002", "a matmul's weight is no weight");
  std::vector<ir::NodeId> nodes;
  for (const auto part : graph_.operands(weight.node)) {
    invariant(graph_.op(part.node) == ir::Op::kWeight, "CG-003", "concatenated weights are nested");
    nodes.push_back(part.node);
  }
  return nodes;
}

const SourceTensor& WeightPlacer::tensor(ir::NodeId weight) const {
  const auto& name = graph_.attrs_as<ir::WeightAttrs>(weight).name;
  const auto found = model_.tensors.find(name);
  if (found == model_.tensors.end())
    throw Error(ErrorCode::kPlan, "tensor '" + printable(name) + "' of the plan's graph is not in the model file", {},
                "compile the plan again from this model");
  const auto& type = graph_.type({weight, 0});
  const auto wanted = sliced(type);
  if (found->second.dtype != type.dtype || found->second.cols != wanted.cols ||
      found->second.rows != wanted.slices * wanted.rows)
    throw Error(ErrorCode::kPlan,
                "tensor '" + printable(name) + "' of the model file has another type or shape than the plan's", {},
                "compile the plan again from this model");
  return found->second;
}

void WeightPlacer::declare(ir::Value weight, WeightUse use) {
  auto [entry, fresh] = entries_.try_emplace(key(weight), Entry{.value = weight});
  if (use == WeightUse::kMatmul || (use == WeightUse::kEmbedding && layout_ == quant::Layout::kPlanes))
    entry->second.packed = true;
  if (fresh) order_.push_back(entry->first);
  for (const auto node : sources(weight)) (void)tensor(node);
}

void WeightPlacer::place() {
  for (const auto& name : order_) {
    auto& entry = entries_.at(name);
    const auto& type = graph_.type(entry.value);
    const auto [slices, slice_rows, cols, vector] = sliced(type);
    if (!vector && !entry.packed) continue;  // an embedding table alone: its rows are read from the file
    auto weight = std::make_unique<plan::WeightT>();
    weight->name = name;
    weight->dtype = static_cast<std::uint8_t>(type.dtype);
    weight->layout = static_cast<std::uint8_t>(entry.packed ? layout_ : quant::Layout::kNative);
    weight->rows = vector ? 1 : slices * slice_rows;
    weight->cols = cols;
    weight->slices = slices;
    std::int64_t packed_rows = 0;
    const bool concat = graph_.op(entry.value.node) == ir::Op::kConcatRows;
    weight->unit = concat ? graph_.attrs_as<ir::PartsAttrs>(entry.value.node).unit : 0;
    for (const auto node : sources(entry.value)) {
      const auto& from = tensor(node);
      auto source = std::make_unique<plan::WeightSourceT>();
      source->tensor = graph_.attrs_as<ir::WeightAttrs>(node).name;
      source->offset = from.offset;
      source->bytes = from.bytes;
      source->rows = vector ? 1 : from.rows;
      const bool pads = entry.packed && layout_ == quant::Layout::kX16;
      const std::int64_t rows = from.rows / slices;
      packed_rows += pads && weight->unit == 0 ? padded(rows) : rows;
      weight->sources.push_back(std::move(source));
    }
    if (entry.packed && layout_ == quant::Layout::kX16) packed_rows = padded(packed_rows);
    weight->bytes = vector ? static_cast<std::uint64_t>(slices * cols) * sizeof(float)
                           : static_cast<std::uint64_t>(slices * packed_rows) *
                                 row_bytes(type.dtype, static_cast<std::size_t>(cols));
    entry.offset = weight->offset = static_cast<std::uint64_t>(bytes_);
    bytes_ = static_cast<std::int64_t>(align_up(weight->offset + weight->bytes));
    weights_.push_back(std::move(weight));
  }
}

WeightPlacer::Place WeightPlacer::at(ir::Value weight, WeightUse use) const {
  const auto& entry = entries_.at(key(weight));
  if (use == WeightUse::kEmbedding && !entry.packed)
    return {plan::Ref(plan::Space::File, 0, tensor(weight.node).offset), false};
  return {plan::Ref(plan::Space::Weights, 0, entry.offset), entry.packed};
}

}  // namespace forge::codegen
