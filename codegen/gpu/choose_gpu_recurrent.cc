#include <fmt/format.h>

#include <algorithm>

#include "codegen/gpu/gpu_chooser.h"
#include "codegen/gpu/matmul_config.h"

// Steps with recurrent state (kernels/gpu/recurrent.h, recurrent_tiles.h, short_conv.h). A state's layer is an address
// in the block of recurrent state; slots are step inputs.

namespace forge::codegen {

using ir::InputKind;
using plan::GpuInput;
using Kind = PointerArgument::Kind;

namespace {

constexpr std::int64_t kConvThreads = 128, kConvTokens = 16;  // of a block
constexpr std::int64_t kStateThreads = 256;
constexpr std::int64_t kStateLanes = 8, kLanesMax = 32, kRowsOfLaneMax = 32;
constexpr std::int64_t kPieceTokens = 16, kPieceBytesMax = 24 * 1024;
constexpr std::int64_t kTilesColumns = 16, kTilesWavesMax = 4;     // StateTiles: columns of a wave
constexpr std::int64_t kTilesRowsMax = 128, kTwoKeysRowsMax = 64;  // of a state; TwoKeys: that of RWKV-7
constexpr std::int64_t kRowDecayLanes = 1, kTwoKeysLanes = 2;      // that a row of whole slabs needs
constexpr std::int64_t kTilesSlab = 32;                            // rows that StateTiles loads together

/// Lanes of a team: 8, or more for states of many rows; fewer if that would leave lanes without four rows.
std::int64_t lanes_for(std::int64_t rows) {
  std::int64_t lanes = 1;
  while (rows % (8 * lanes) == 0 && lanes < kLanesMax && (lanes < kStateLanes || rows / lanes > kRowsOfLaneMax))
    lanes *= 2;
  return lanes;
}

PointerArgument of_value(ir::Value value) {
  return {.kind = Kind::kValue, .value = value};
}

}  // namespace

/// Floats from one slot to the next: the states of all layers of the group.
std::int64_t GpuChooser::slot_floats(ir::NodeId node) const {
  const auto& state = recurrent_state_of(graph_, node);
  return state.layers * state.floats;
}

/// The members state and inputs of the kernels' Args.
std::vector<PointerArgument> GpuChooser::state_arguments(ir::NodeId node) const {
  const auto layer = ir::recurrent_use(graph_.op(node), graph_.attrs(node), graph_.operand_types(node))->layer;
  return {{.kind = Kind::kRecurrent, .node = node, .input = layer},
          input(GpuInput::kCounts),
          input(InputKind::kSequence),
          input(InputKind::kStateRead),
          input(InputKind::kStateWrite)};
}

void GpuChooser::short_conv(std::span<const ir::NodeId> nodes) {
  const auto node = nodes[0];
  const auto x = graph_.operand(node, 0), kernel = graph_.operand(node, 1);
  const bool biased = graph_.operands(node).size() > 2 + ir::kStateOperands;
  const ir::Value out{nodes.back(), 0};
  const auto columns = graph_.type(x).cols(), taps = graph_.type(kernel).cols();
  const auto rows = rows_of_step(graph_.type(x).shape[0]);
  std::string activation = "x";
  out_.step.label = "short_conv";
  if (nodes.size() > 1) {
    const auto call = *ir::function_call(graph_.op(nodes[1]), graph_.attrs(nodes[1]));
    const auto& def = elementwise::function_def(call.function);
    activation = fmt::format("gpu::{}(x", def.name);
    for (std::size_t i = 0; i < def.parameter_count; ++i)
      activation += fmt::format(", {}", float_literal(call.parameters[i]));
    activation += ')';
    out_.step.label = fmt::format("short_conv + {}", def.name);
  }
  KernelText text{.header = "kernels/gpu/short_conv.h", .kernel = "ShortConv", .defaults = {}, .before = {}};
  text.before =
      fmt::format("struct Activation {{\n  FORGE_DEVICE static float of(float x) {{ return {}; }}\n}};\n", activation);
  text.has_lds = false;
  text.threads = std::max<std::int64_t>(kConvThreads, target_.wave);
  // Steps of one token a sequence have a block for each token.
  const auto tokens = rows.bound <= binding_.bounds.sequences ? 1 : kConvTokens;
  text.blocks = (columns + text.threads - 1) / text.threads * ((rows.bound + tokens - 1) / tokens);
  text.config.use("Activation", "gpu::Activation")
      .number("kColumns", columns)
      .number("kTaps", taps)
      .number("kTokens", tokens)
      .number("kThreads", text.threads)
      .number("kTokensTotal", rows.bound)
      .number("kSlotFloats", slot_floats(node))
      .number("kRowFloats", row_floats(x))
      .number("kOutFloats", row_floats(out))
      .flag("kBiased", biased);
  std::vector<PointerArgument> arguments{of_value(x), of_value(kernel),
                                         of_value(biased ? graph_.operand(node, 2) : kernel)};
  const auto state = state_arguments(node);
  arguments.insert(arguments.end(), state.begin(), state.end());
  arguments.push_back(of_value(out));
  launch(fmt::format("short_conv_{}x{}_t{}", columns, taps, rows.bound), text, arguments);
}

void GpuChooser::state_update(ir::NodeId node, std::string_view rule, const ConfigText& params, const StateShape& shape,
                              std::int64_t vectors, std::int64_t per_column, std::vector<PointerArgument> arguments) {
  const auto rows = rows_of_step(graph_.type({node, 0}).shape[0]);
  const auto wave = target_.wave;
  const auto lanes = lanes_for(shape.rows);
  const auto threads = std::clamp<std::int64_t>((shape.columns * lanes + wave - 1) / wave * wave, wave, kStateThreads);
  const auto block_columns = threads / lanes;
  const auto token_bytes = (vectors * shape.rows + per_column * block_columns + 4) * kFloatBytes;
  auto piece = std::min(rows.bound, kPieceTokens);
  while (piece > 1 && piece * token_bytes > kPieceBytesMax) piece /= 2;
  KernelText text{.header = "kernels/gpu/recurrent.h", .kernel = "StateUpdate", .defaults = {}, .before = {}};
  text.threads = threads;
  text.config.number("kLanes", lanes).number("kPiece", piece);
  out_.step.reason = fmt::format("{} lanes for each of {} columns", lanes, shape.heads * shape.columns);
  launch_state(node, "", rule, params, shape, block_columns, std::move(text), std::move(arguments));
}

void GpuChooser::launch_state(ir::NodeId node, std::string_view kind, std::string_view rule, const ConfigText& params,
                              const StateShape& shape, std::int64_t block_columns, KernelText text,
                              std::vector<PointerArgument> arguments) {
  const ir::Value out{node, 0};
  const auto& bounds = binding_.bounds;
  const auto rows = rows_of_step(graph_.type(out).shape[0]);
  text.before = fmt::format("struct Params {{\n{}}};\n", params.text());
  text.blocks = bounds.sequences * shape.heads * ((shape.columns + block_columns - 1) / block_columns);
  text.config.use("Rule", fmt::format("{}<Params>", rule))
      .number("kHeads", shape.heads)
      .number("kColumns", shape.columns)
      .number("kRows", shape.rows)
      .number("kWaves", text.threads / target_.wave)
      .number("kSequences", bounds.sequences)
      .number("kTokensTotal", rows.bound)
      .number("kSlotFloats", slot_floats(node))
      .number("kOutFloats", row_floats(out));
  const auto state = state_arguments(node);
  arguments.insert(arguments.end(), state.begin(), state.end());
  arguments.push_back(of_value(out));
  launch(fmt::format("{}{}_{}x{}x{}_t{}", ir::op_def(graph_.op(node)).name, kind, shape.heads, shape.rows,
                     shape.columns, rows.bound),
         text, arguments);
}

/// Prefill takes StateTiles, which loads four floats of vectors at once.
bool GpuChooser::takes_state_tiles(const StateShape& shape, std::initializer_list<ir::Value> vectors,
                                   std::int64_t rows_max) const {
  const auto aligned = [&](ir::Value x) {
    return row_floats(x) % 4 == 0 && binding_.rows.columns_of(x).first % 4 == 0;
  };
  const auto& bounds = binding_.bounds;
  return uses_matrix_instructions(target_, bounds.tokens, tuning_) && bounds.tokens > bounds.sequences &&
         shape.rows % 4 == 0 && shape.rows <= rows_max && std::ranges::all_of(vectors, aligned);
}

void GpuChooser::state_tiles(ir::NodeId node, std::string_view rule, const ConfigText& params, const StateShape& shape,
                             std::vector<PointerArgument> arguments, std::int64_t row_lanes) {
  const auto lanes = (shape.rows + kTilesSlab - 1) / kTilesSlab * kTilesSlab * row_lanes;
  const auto waves = std::max(std::min((shape.columns + kTilesColumns - 1) / kTilesColumns, kTilesWavesMax),
                              (lanes + target_.wave - 1) / target_.wave);
  KernelText text{.header = "kernels/gpu/recurrent_tiles.h",
                  .kernel = "StateTiles",
                  .defaults = "StateTilesDefaults",
                  .before = {}};
  text.threads = waves * target_.wave;
  out_.step.reason = fmt::format("chunks of tokens by matrix instructions, {} columns a block", waves * kTilesColumns);
  launch_state(node, "_tiles", rule, params, shape, waves * kTilesColumns, std::move(text), std::move(arguments));
}

void GpuChooser::delta_rule(ir::NodeId node) {
  const auto& delta = graph_.attrs_as<ir::DeltaRuleAttrs>(node);
  const auto operand = [&](std::size_t i) { return graph_.operand(node, i); };
  const bool each_row = graph_.type(operand(3)).cols() != delta.heads;
  ConfigText params;
  params.number("kHeads", delta.heads)
      .number("kKeyHeads", delta.key_heads)
      .number("kKeyDim", delta.key_dim)
      .number("kValueDim", delta.value_dim)
      .flag("kInterleaved", delta.interleaved == 1)
      .flag("kDecayEachRow", each_row)
      .real("kScale", delta.scale)
      .real("kEpsilon", delta.norm_eps)
      .number("kQFloats", row_floats(operand(0)))
      .number("kKFloats", row_floats(operand(1)))
      .number("kVFloats", row_floats(operand(2)))
      .number("kDecayFloats", row_floats(operand(3)))
      .number("kBetaFloats", row_floats(operand(4)));
  const StateShape shape{delta.heads, delta.key_dim, delta.value_dim};
  std::vector<PointerArgument> arguments;
  for (std::size_t i = 0; i < 5; ++i) arguments.push_back(of_value(operand(i)));
  if (each_row ? takes_state_tiles(shape, {operand(0), operand(1), operand(3)}, kTilesRowsMax)
               : takes_state_tiles(shape, {operand(0), operand(1)}, kTilesRowsMax))
    state_tiles(node, "DeltaTiles", params, shape, std::move(arguments), each_row ? kRowDecayLanes : 0);
  else
    state_update(node, "DeltaRule", params, shape, each_row ? 3 : 2, 1, std::move(arguments));
}

// Heads of one column (Mamba-1) are the columns of one state: all channels that share b and c.
void GpuChooser::selective_scan(ir::NodeId node) {
  const auto& scan = graph_.attrs_as<ir::SelectiveScanAttrs>(node);
  const auto operand = [&](std::size_t i) { return graph_.operand(node, i); };
  const bool each_state = graph_.type(operand(2)).shape.size() == 2, channels = scan.head_dim == 1;
  ConfigText params;
  params.number("kHeads", scan.heads)
      .number("kGroups", scan.groups)
      .number("kHeadDim", scan.head_dim)
      .number("kStateDim", scan.state_dim)
      .flag("kEachState", each_state)
      .number("kXFloats", row_floats(operand(0)))
      .number("kDtFloats", row_floats(operand(1)))
      .number("kBFloats", row_floats(operand(3)))
      .number("kCFloats", row_floats(operand(4)));
  const auto shape = channels ? StateShape{scan.groups, scan.state_dim, scan.heads / scan.groups}
                              : StateShape{scan.heads, scan.state_dim, scan.head_dim};
  std::vector<PointerArgument> arguments;
  for (std::size_t i = 0; i < 6; ++i) arguments.push_back(of_value(operand(i)));
  if (!channels && !each_state && takes_state_tiles(shape, {operand(3), operand(4)}, kTilesRowsMax))
    state_tiles(node, "ScanTiles", params, shape, std::move(arguments));
  else
    state_update(node, channels ? "ScanChannels" : "ScanHeads", params, shape, !channels && each_state ? 3 : 2,
                 channels ? 2 : 1, std::move(arguments));
}

void GpuChooser::rwkv7(ir::NodeId node) {
  const auto& rwkv = graph_.attrs_as<ir::Rwkv7Attrs>(node);
  ConfigText params;
  params.number("kHeadDim", rwkv.head_dim);
  std::vector<PointerArgument> arguments;
  constexpr std::string_view kNames[] = {"kRFloats", "kWFloats", "kKFloats", "kVFloats", "kAFloats", "kBFloats"};
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    params.number(kNames[i], row_floats(graph_.operand(node, i)));
    arguments.push_back(of_value(graph_.operand(node, i)));
  }
  const StateShape shape{rwkv.heads, rwkv.head_dim, rwkv.head_dim};
  const auto operand = [&](std::size_t i) { return graph_.operand(node, i); };
  if (takes_state_tiles(shape, {operand(0), operand(1), operand(2), operand(4), operand(5)}, kTwoKeysRowsMax))
    state_tiles(node, "Rwkv7Tiles", params, shape, std::move(arguments), kTwoKeysLanes);
  else
    state_update(node, "Rwkv7", params, shape, 5, 1, std::move(arguments));
}

}  // namespace forge::codegen
