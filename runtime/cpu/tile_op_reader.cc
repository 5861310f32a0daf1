// Reads the ops of tile steps. The checks against `shape` guarantee that an op never reads or writes outside its
// operands and that tiles never split what must stay together (heads, blocks, pairs).

#include "runtime/cpu/tile_op_reader.h"

#include "kernels/quant/q8a.h"

namespace forge::runtime {

using plan::TileOpBody;
using plan::TileOpKind;

TileInstr TileOpReader::op(const plan::TileOpBodyUnion& body, const TileShape& shape) const {
  if (body.value == nullptr) fail("an op has no body");
  switch (body.type) {
    case TileOpBody::InvRms:
      return inv_rms(*body.AsInvRms(), shape);
    case TileOpBody::Elementwise:
      return elementwise(*body.AsElementwise(), shape);
    case TileOpBody::ElementwisePairs:
      return pairs(*body.AsElementwisePairs(), shape);
    case TileOpBody::AddExpertVector:
      return expert_vector(*body.AsAddExpertVector(), shape);
    case TileOpBody::ScaleExpert:
      return expert_factor(*body.AsScaleExpert(), shape);
    case TileOpBody::SumExperts:
      return {.kind = TileOpKind::kSumExperts,
              .shares = floats(read(body.AsSumExperts()->shares, shape.rows * sizeof(float)))};
    case TileOpBody::Norm:
      return norm(*body.AsNorm(), shape);
    case TileOpBody::Rope:
      return rope(*body.AsRope(), shape);
    case TileOpBody::Store:
      return store(body.AsStore()->out, shape);
    case TileOpBody::SumSquares:
      return sum_squares(*body.AsSumSquares(), shape);
    case TileOpBody::Quantize:
      return quantize(*body.AsQuantize(), shape);
    case TileOpBody::StoreKv:
      return store_kv(*body.AsStoreKv(), shape);
    default:
      fail("an unknown op");
  }
}

TileInstr TileOpReader::function(std::uint8_t number, const std::vector<float>& parameters, bool binary) const {
  // The function's number, its parameter count, its form and each parameter's range all come from the plan.
  const auto function = elementwise::find_function(number);
  if (!function) fail(fmt::format("there is no elementwise function {}", number));
  const auto& def = elementwise::function_def(*function);
  if (parameters.size() != def.parameter_count)
    fail(fmt::format("{} has {} parameters, not {}", def.name, def.parameter_count, parameters.size()));
  TileInstr in{.kind = binary ? TileOpKind::kBinary : TileOpKind::kUnary,
               .unary = binary ? nullptr : kernels_.unary(*function),
               .binary = binary ? kernels_.binary(*function) : nullptr};
  if (in.unary == nullptr && in.binary == nullptr)
    fail(fmt::format("{} is not a function of {}", def.name, binary ? "two values" : "one value"));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!elementwise::in_range(def.parameters[i].range, parameters[i]))
      fail(fmt::format("{} of {} is out of range: {}", def.parameters[i].name, def.name, parameters[i]));
    in.parameters[i] = parameters[i];
  }
  return in;
}

TileInstr TileOpReader::elementwise(const plan::ElementwiseT& op, const TileShape& shape) const {
  auto in = function(op.function, op.parameters, has_operand(op.operand));
  if (!has_operand(op.operand)) return in;
  if (op.single) {
    in.a = read(op.operand, sizeof(float));
    in.single = true;
    return in;
  }
  if (op.broadcast) {
    in.a = read(op.operand, shape.width * sizeof(float));
    return in;
  }
  const auto rows = read_rows(op.operand, shape.rows, shape.width);
  in.a = rows.data;
  in.stride = rows.stride;
  return in;
}

TileInstr TileOpReader::pairs(const plan::ElementwisePairsT& pairs, const TileShape& shape) const {
  auto in = function(pairs.function, pairs.parameters, true);
  in.kind = TileOpKind::kPairs;
  in.count = number(pairs.unit, 1, 1 << 16);
  if (shape.unit % (2 * in.count) != 0 || shape.width % (2 * in.count) != 0)
    fail("pairs of columns do not fit their tile");
  return in;
}

// The operand is resolved twice: with one column to get the distance of rows, which is also the number of 16-column
// blocks per row, and then with all blocks to check its bounds.
TileInstr TileOpReader::inv_rms(const plan::InvRmsT& norm, const TileShape& shape) const {
  TileInstr in{.kind = TileOpKind::kInvRms, .eps = norm.eps};
  in.k = number(norm.dim, 1, 1 << 24);
  in.slots = number(norm.slots, 1, static_cast<std::int64_t>(cpu::kExpertsMax));
  if (shape.rows % in.slots != 0) fail("its rows are not a whole number of tokens");
  const auto squares = read_rows(norm.squares, shape.rows / in.slots, 1);
  in.count = number(static_cast<std::int64_t>(squares.stride), 1, 1 << 20);
  in.a = read_rows(norm.squares, shape.rows / in.slots, in.count).data;
  return in;
}

TileInstr TileOpReader::expert_vector(const plan::AddExpertVectorT& add, const TileShape& shape) const {
  const std::size_t experts = number(add.experts, 1, static_cast<std::int64_t>(cpu::kExpertsMax));
  const auto vectors = read_rows(add.vectors, experts, shape.width);
  return {.kind = TileOpKind::kAddExpertVector,
          .a = vectors.data,
          .stride = vectors.stride,
          .experts = experts,
          .chosen = ints(read(add.chosen, shape.rows * sizeof(std::int32_t)))};
}

TileInstr TileOpReader::expert_factor(const plan::ScaleExpertT& scale, const TileShape& shape) const {
  const std::size_t experts = number(scale.experts, 1, static_cast<std::int64_t>(cpu::kExpertsMax));
  return {.kind = TileOpKind::kScaleExpert,
          .a = read(scale.factors, experts * sizeof(float)),
          .experts = experts,
          .chosen = ints(read(scale.chosen, shape.rows * sizeof(std::int32_t)))};
}

// A norm needs whole heads in a tile, or tiles of whole rows.
TileInstr TileOpReader::norm(const plan::NormT& norm, const TileShape& shape) const {
  constexpr TileOpKind kKinds[] = {TileOpKind::kRmsNorm, TileOpKind::kLayerNorm};
  TileInstr in{.kind = member(norm.kind, kKinds), .shared = norm.shared, .eps = norm.eps};
  in.head_dim = number(norm.dim, 1, kTileFloats);
  const bool whole_rows = shape.unit >= shape.width;
  if (shape.width % in.head_dim != 0 || (shape.unit % in.head_dim != 0 && !whole_rows))
    fail("a norm does not fit its tile");
  if (in.kind == TileOpKind::kRmsNorm && !in.shared) fail("the heads of an RMS norm must share their weight");
  const std::size_t bytes = (in.shared ? in.head_dim : shape.width) * sizeof(float);
  in.a = read(norm.weight, bytes);
  if (has_operand(norm.bias)) in.b = read(norm.bias, bytes);
  return in;
}

TileInstr TileOpReader::rope(const plan::RopeT& rope, const TileShape& shape) const {
  constexpr cpu::RopeMode kModes[] = {cpu::RopeMode::kPairs, cpu::RopeMode::kHalves};
  TileInstr in{.kind = TileOpKind::kRope, .rope_mode = member(rope.mode, kModes)};
  in.head_dim = number(rope.head_dim, 2, 1 << 16);
  in.rotary = number(rope.rotary_dims, 2, 1 << 16);
  if (in.rotary % 2 != 0 || in.rotary > in.head_dim || shape.width % in.head_dim != 0 || shape.unit % in.head_dim != 0)
    fail("RoPE does not fit its heads");
  in.a = read(rope.angles, shape.rows * in.rotary * sizeof(float));
  return in;
}

TileInstr TileOpReader::store(std::uint16_t out, const TileShape& shape) const {
  const auto rows = writable_rows(out, shape.rows, shape.width);
  return {.kind = TileOpKind::kStore, .a = rows.data, .stride = rows.stride};
}

TileInstr TileOpReader::sum_squares(const plan::SumSquaresT& sum, const TileShape& shape) const {
  // A partial sum covers 16 columns, and two tiles must not write the same one.
  if (shape.unit % 16 != 0) fail("sums of squares need tiles of whole 16-column blocks");
  const auto rows = writable_rows(sum.out, shape.rows, (shape.width + 15) / 16);
  return {.kind = TileOpKind::kSumSquares, .a = rows.data, .stride = rows.stride};
}

TileInstr TileOpReader::quantize(const plan::QuantizeT& quantize, const TileShape& shape) const {
  TileInstr in{.kind = TileOpKind::kQuantize};
  in.k = number(quantize.cols, 32, 1 << 24);
  in.block = number(quantize.block, 0, 1 << 20);
  if (shape.unit % 32 != 0 || shape.width % 32 != 0 || in.k % 32 != 0 || in.block * 32 + shape.width > in.k)
    fail("quantisation needs whole 32-column blocks inside its row");
  require_type(quantize.out, DType::kQ8A_32);
  in.x_row_bytes = quant::q8a_row_bytes(in.k);
  in.a = writable(quantize.out, shape.rows * in.x_row_bytes);
  return in;
}

TileInstr TileOpReader::store_kv(const plan::StoreKvT& store, const TileShape& shape) const {
  constexpr TileOpKind kParts[] = {TileOpKind::kStoreK, TileOpKind::kStoreV};
  if (!shape.rows_are_tokens) fail("the keys or values to store are not of the step's tokens");
  TileInstr in{.kind = member(store.part, kParts)};
  const auto& state = operand(store.state);
  const auto kv = kv_shape_of(kv_group(state));
  const bool values = in.kind == TileOpKind::kStoreV;
  if (values && kv.shared_row) fail("values are stored although keys and values share rows");
  in.dtype = kv.type;
  in.head_dim = values ? kv.value_dim : kv.head_dim;
  const std::size_t first = number(store.first_column, 0);
  if (first % in.head_dim != 0 || shape.width % in.head_dim != 0 || shape.unit % in.head_dim != 0 ||
      first + shape.width > in.head_dim * kv.heads)
    fail("a KV store is not whole heads");
  // Keys are stored transposed, as columns. Values, and rows that keys and values share, are stored as rows.
  in.store_kv = values || kv.shared_row ? kernels_.store_kv_rows : kernels_.store_kv_columns;
  in.kv_group = state.index();
  // Byte offset in a block of the group: the layer, then K or V, then the section's first head.
  in.kv_offset = layer_offset(state) + (values ? cpu::kv_values_offset(kv) : 0) +
                 first / in.head_dim * cpu::kv_head_bytes(in.dtype, in.head_dim);
  return in;
}

}  // namespace forge::runtime
