#include "codegen/place_weights.h"

#include <fmt/format.h>

#include "codegen/tile_draft.h"
#include "kernels/quant/x16.h"
#include "support/error.h"

namespace forge::codegen {
namespace {

static_assert(kPackedRows == quant::kX16Rows);
constexpr std::uint64_t kWeightAlignment = 256;

std::uint64_t align_up(std::uint64_t value) {
  return (value + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
}
std::int64_t padded(std::int64_t rows) {
  return (rows + kPackedRows - 1) / kPackedRows * kPackedRows;
}

/// The rows of a weight: [N, K] is one slice of N rows, [E, N, K] is E slices (experts) of N rows each. Vectors, [N],
/// and one vector per expert, [E, N, 1], have rows of one element.
struct SlicedRows {
  std::int64_t slices = 1, rows = 1, cols = 1;
  bool vector = false;
};
/// as_vector: the matrix is used as one vector, whose rows are the parts of heads.
SlicedRows sliced(const ir::TensorType& type, bool as_vector = false) {
  const auto& shape = type.shape;
  if (shape.size() == 1 || (shape.size() == 2 && as_vector)) return {.rows = type.elements({}), .vector = true};
  if (shape.size() == 2) return {.rows = shape[0].value, .cols = type.cols()};
  return {.slices = shape[0].value, .rows = shape[1].value, .cols = type.cols(), .vector = type.cols() == 1};
}

/// True if the tensor has these rows. Rows of f32 follow each other, so the same numbers may have other dims in the
/// file (DecoderBuilder::reshaped).
bool has_shape(const SourceTensor& tensor, const SlicedRows& wanted) {
  if (tensor.dtype == DType::kF32) return tensor.rows * tensor.cols == wanted.slices * wanted.rows * wanted.cols;
  if (wanted.vector) return tensor.rows == wanted.slices && tensor.cols == wanted.rows;
  return tensor.rows == wanted.slices * wanted.rows && tensor.cols == wanted.cols;
}

/// Bytes of one row within a group of 16 rows in the layout x16.
std::uint64_t packed_row_bytes(const ir::TensorType& type) {
  return quant::layout_row_bytes(quant::Layout::kX16, type.dtype, static_cast<std::size_t>(type.cols()));
}

}  // namespace

std::uint64_t packed_slice_bytes(const ir::Graph& graph, ir::Value weight) {
  std::int64_t packed_rows = 0;
  for (const auto rows : weight_part_rows(graph, weight)) packed_rows += padded(rows);
  return static_cast<std::uint64_t>(packed_rows) * packed_row_bytes(graph.type(weight));
}

// Example: parts of 20 and 16 rows take 32 and 16 packed rows. Row 20, the second part's first, is packed row 32.
std::uint64_t packed_offset(const ir::Graph& graph, ir::Value weight, std::int64_t row) {
  std::int64_t packed_rows = 0;
  for (const auto rows : weight_part_rows(graph, weight)) {
    if (row < rows) break;
    row -= rows;
    packed_rows += padded(rows);
  }
  invariant(row % kPackedRows == 0, "CG-001", "a section begins inside a group of packed rows");
  return static_cast<std::uint64_t>(packed_rows + row) * packed_row_bytes(graph.type(weight));
}

// The key is also the weight's name in the plan: "blk.0.attn_q.weight[0:256]", or "concat/UNIT/FIRST/SECOND" for a
// concatenation. UNIT is the interleaving unit: the same parts interleaved differently are another weight.
std::string WeightPlacer::key(ir::Value weight) const {
  std::string text;
  if (graph_.op(weight.node) == ir::Op::kConcatRows)
    text = fmt::format("concat/{}", graph_.attrs_as<ir::PartsAttrs>(weight.node).unit);
  for (const auto& source : sources(weight)) {
    text += (text.empty() ? "" : "/") + graph_.attrs_as<ir::WeightAttrs>(source.node).name;
    if (source.slice) text += fmt::format("[{}:{}]", source.slice->begin, source.slice->begin + source.slice->rows);
  }
  return text;
}

WeightPlacer::Source WeightPlacer::source(ir::NodeId node) const {
  if (graph_.op(node) == ir::Op::kWeight) return {node, nullptr};
  invariant(graph_.op(node) == ir::Op::kSliceRows, "CG-003",
            "a matmul's weight is not a weight, a slice of one or a concatenation of these");
  return {graph_.operand(node, 0).node, &graph_.attrs_as<ir::SliceAttrs>(node)};
}

std::vector<WeightPlacer::Source> WeightPlacer::sources(ir::Value weight) const {
  if (graph_.op(weight.node) != ir::Op::kConcatRows) return {source(weight.node)};
  std::vector<Source> parts;
  for (const auto part : graph_.operands(weight.node)) parts.push_back(source(part.node));
  return parts;
}

/// A row of the weight map's list of sources: all columns of a tensor's rows, or of a range of them.
plan::WeightSourceT WeightPlacer::describe(const Source& source, bool vector) const {
  const auto& from = *tensors(source.node).front();
  const auto matrix = sliced(graph_.type({source.node, 0}), vector);
  plan::WeightSourceT out;
  out.tensor = graph_.attrs_as<ir::WeightAttrs>(source.node).name;
  out.file = from.file;
  out.offset = from.offset;
  out.tensor_rows = out.rows = matrix.rows;
  out.tensor_cols = out.cols = matrix.cols;
  if (source.slice == nullptr) return out;
  out.row_begin = source.slice->begin;
  out.rows = source.slice->rows;
  return out;
}

const SourceTensor& WeightPlacer::tensor(const std::string& name) const {
  const auto found = model_.tensors.find(name);
  if (found == model_.tensors.end())
    throw Error(ErrorCode::kPlan, "tensor '" + printable(name) + "' of the plan's graph is not in the model file", {},
                "compile the plan again from this model");
  return found->second;
}

/// The weight's tensor; several if each expert has a tensor of its own (ir::kExpertWildcard in the name stands for the
/// expert's number). Checks type and shape.
std::vector<const SourceTensor*> WeightPlacer::tensors(ir::NodeId weight) const {
  const auto& name = graph_.attrs_as<ir::WeightAttrs>(weight).name;
  const auto& type = graph_.type({weight, 0});
  auto wanted = sliced(type);
  const auto mark = name.find(ir::kExpertWildcard);
  std::vector<const SourceTensor*> found;
  if (mark == std::string::npos || type.shape.size() != 3) {
    found.push_back(&tensor(name));
  } else {
    for (std::int64_t slice = 0; slice < wanted.slices; ++slice)
      found.push_back(&tensor(std::string(name).replace(mark, 1, fmt::to_string(slice))));
    wanted.slices = 1;
  }
  for (const auto* each : found)
    if (each->dtype != type.dtype || !has_shape(*each, wanted))
      throw Error(ErrorCode::kPlan,
                  "tensor '" + printable(name) + "' of the model file has another type or shape than in the plan", {},
                  "compile the plan again from this model");
  return found;
}

/// True if any part of the weight has one tensor for each slice (expert).
bool WeightPlacer::is_scattered(ir::Value weight) const {
  return std::ranges::any_of(sources(weight), [&](const Source& part) { return tensors(part.node).size() > 1; });
}

/// Adds one source for each slice of a part, even if all slices are in one tensor. Used if any part is scattered, so
/// that all parts have the same form.
void WeightPlacer::add_slices(const Source& source, plan::WeightT& weight) const {
  invariant(source.slice == nullptr, "CG-005", "a range of rows of a scattered experts' weight is not supported");
  const auto found = tensors(source.node);
  for (std::int64_t slice = 0; slice < weight.slices; ++slice) {
    const bool own = found.size() > 1;
    const auto& from = *found[own ? static_cast<std::size_t>(slice) : 0];
    auto out = std::make_unique<plan::WeightSourceT>(describe(source, false));
    if (own) out->tensor.replace(out->tensor.find(ir::kExpertWildcard), 1, fmt::to_string(slice));
    out->file = from.file;
    out->offset = from.offset;
    if (!own)
      out->offset += static_cast<std::uint64_t>(slice) * (from.bytes / static_cast<std::uint64_t>(weight.slices));
    weight.sources.push_back(std::move(out));
  }
}

// Weights of matmuls are packed. Embedding tables are packed too in the layout `planes`: GPU kernels read them from
// device memory. tensors() is called for its checks.
void WeightPlacer::declare(ir::Value weight, WeightUse use) {
  auto [entry, fresh] = entries_.try_emplace(key(weight), Entry{.value = weight});
  if (use == WeightUse::kVector) entry->second.vector = true;
  if (use == WeightUse::kMatmul || (use == WeightUse::kEmbedding && layout_ == quant::Layout::kPlanes))
    entry->second.packed = true;
  if (fresh) order_.push_back(entry->first);
  for (const auto& source : sources(weight)) (void)tensors(source.node);
}

void WeightPlacer::place() {
  for (const auto& name : order_) {
    auto& entry = entries_.at(name);
    const auto& type = graph_.type(entry.value);
    const auto [slices, slice_rows, cols, vector] = sliced(type, entry.vector);
    invariant(!vector || (!entry.packed && type.dtype == DType::kF32), "CG-002",
              "a vector is not f32, or is used as a matrix too");
    if (!vector && !entry.packed) continue;  // only an embedding table: its rows are read from the file
    auto weight = std::make_unique<plan::WeightT>();
    weight->name = name;
    weight->dtype = static_cast<std::uint8_t>(type.dtype);
    weight->layout = static_cast<std::uint8_t>(entry.packed ? layout_ : quant::Layout::kNative);
    weight->rows = slices * slice_rows;
    weight->cols = cols;
    weight->slices = slices;
    std::int64_t packed_rows = 0;
    const bool concat = graph_.op(entry.value.node) == ir::Op::kConcatRows;
    weight->unit = concat ? graph_.attrs_as<ir::PartsAttrs>(entry.value.node).unit : 0;
    weight->scattered = is_scattered(entry.value);
    for (const auto& part : sources(entry.value)) {
      if (weight->scattered)
        add_slices(part, *weight);
      else
        weight->sources.push_back(std::make_unique<plan::WeightSourceT>(describe(part, vector)));
      // In x16, each part is padded to 16 rows; an interleaved weight is padded as a whole.
      const bool pads = entry.packed && layout_ == quant::Layout::kX16;
      const std::int64_t rows = weight->sources.back()->rows;
      packed_rows += pads && weight->unit == 0 ? padded(rows) : rows;
    }
    if (entry.packed && layout_ == quant::Layout::kX16) packed_rows = padded(packed_rows);
    const auto layout = entry.packed ? layout_ : quant::Layout::kNative;
    weight->bytes = static_cast<std::uint64_t>(slices * packed_rows) *
                    quant::layout_row_bytes(layout, type.dtype, static_cast<std::size_t>(cols));
    entry.offset = weight->offset = static_cast<std::uint64_t>(bytes_);
    bytes_ = static_cast<std::int64_t>(align_up(weight->offset + weight->bytes));
    weights_.push_back(std::move(weight));
  }
}

plan::Operand WeightPlacer::at(ir::Value weight) const {
  const auto found = entries_.find(key(weight));
  invariant(found != entries_.end(), "CG-007", "a weight was not declared");
  const auto& entry = found->second;
  const auto place = [&](plan::Space space, std::uint64_t offset, quant::Layout layout, std::uint16_t index = 0) {
    return plan::Operand(space, static_cast<std::uint8_t>(graph_.type(weight).dtype), index, 0, offset, plan::kNoValue,
                         static_cast<std::uint8_t>(layout));
  };
  if (!entry.packed && !entry.vector) {
    const auto& from = *tensors(weight.node).front();
    return place(plan::Space::File, from.offset, quant::Layout::kNative, static_cast<std::uint16_t>(from.file));
  }
  return place(plan::Space::Weights, entry.offset, entry.packed ? layout_ : quant::Layout::kNative);
}

}  // namespace forge::codegen
