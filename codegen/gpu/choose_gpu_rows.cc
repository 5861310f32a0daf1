#include <fmt/format.h>

#include <algorithm>
#include <numbers>
#include <utility>
#include <vector>

#include "codegen/gpu/gpu_chooser.h"
#include "ir/interpreter.h"

// Steps of one node that are not tile programs: norms, RoPE's table, the router, interleaved splits.

namespace forge::codegen {

using ir::Op;
using plan::GpuInput;
using Kind = PointerArgument::Kind;

namespace {

/// Threads of a block for `count` elements: whole waves, at most 256.
std::int64_t threads_for(std::int64_t count, int wave) {
  return std::clamp<std::int64_t>((count + wave - 1) / wave * wave, wave, 256);
}

/// RoPE's frequencies, [dims/2], computed at compile time by the op's scalar reference; not yet divided by the model's
/// factors, which the kernel does.
std::vector<float> frequencies_of(const ir::Graph& graph, ir::NodeId node) {
  ir::Tensor out{.type = graph.type({node, 0})};
  out.dims = {out.type.cols()};
  out.f32.resize(static_cast<std::size_t>(out.type.cols()));
  ir::EvalContext nothing;
  ir::op_def(Op::kRopeFreqs).reference(graph.attrs(node), {}, {&out, 1}, nothing);
  return std::move(out.f32);
}

}  // namespace

std::string GpuChooser::step_of_one(ir::NodeId node) {
  switch (graph_.op(node)) {
    case Op::kRmsNorm:
    case Op::kLayerNorm:
      norm(node);
      return {};
    case Op::kRopeTable:
      rope_table(node);
      return {};
    case Op::kRoute:
      launch_router(node, router_of(node, {.kind = Kind::kValue, .value = graph_.operand(node, 0)},
                                    row_floats(graph_.operand(node, 0))));
      return {};
    case Op::kRopeFreqs:  // no step: rope_table() has the frequencies as constants
      return {};
    case Op::kArrange:
      arrange(node);
      return {};
    case Op::kSplit:
      interleaved_split(node);
      return {};
    case Op::kSelfAttention:
      self_attention(node);
      return {};
    case Op::kSelectKeys:
      return select_keys(node);
    case Op::kMatchRms:
    case Op::kGaussianTopk:
      row_function(node);
      return {};
    case Op::kDeltaRule:
      delta_rule(node);
      return {};
    case Op::kSelectiveScan:
      selective_scan(node);
      return {};
    case Op::kRwkv7:
      rwkv7(node);
      return {};
    default:
      return fmt::format("GPUs have no kernel for {}", ir::op_def(graph_.op(node)).name);
  }
}

void GpuChooser::norm(ir::NodeId node) {
  const bool rms = graph_.op(node) == Op::kRmsNorm, biased = graph_.operands(node).size() > 2;
  const auto x = graph_.operand(node, 0), weight = graph_.operand(node, 1);
  const auto& norm = graph_.attrs_as<ir::NormAttrs>(node);
  const auto& type = graph_.type({node, 0});
  const auto rows = rows_of_step(type.shape[0]);
  const auto wave = target_.wave;
  KernelText text{
      .header = "kernels/gpu/rows.h", .kernel = rms ? "RmsNorm" : "LayerNorm", .defaults = {}, .before = {}};
  text.threads = threads_for(norm.dim, wave);
  text.blocks = rows.bound * (type.cols() / norm.dim);
  text.config.number("kColumns", type.cols())
      .number("kDim", norm.dim)
      .number("kRowFloats", row_floats(x))
      .number("kOutFloats", row_floats({node, 0}))
      .number("kWaves", text.threads / wave)
      .number("kTokensTotal", rows.bound)
      .number("kCount", rows.count)
      .real("kEpsilon", norm.eps);
  std::vector<PointerArgument> arguments{{.kind = Kind::kValue, .value = x}, {.kind = Kind::kValue, .value = weight}};
  if (!rms) {
    text.config.flag("kShared", graph_.type(weight).shape.size() == 1).flag("kBiased", biased);
    arguments.push_back({.kind = Kind::kValue, .value = biased ? graph_.operand(node, 2) : weight});
  }
  arguments.push_back(input(GpuInput::kCounts));
  arguments.push_back({.kind = Kind::kValue, .value = {node, 0}});
  launch(fmt::format("{}_{}_t{}", rms ? "rms_norm" : "layer_norm", norm.dim, rows.bound), text, arguments);
}

void GpuChooser::row_function(ir::NodeId node) {
  const bool match = graph_.op(node) == Op::kMatchRms;
  const auto x = graph_.operand(node, 0);
  const auto& type = graph_.type({node, 0});
  const auto rows = rows_of_step(type.shape[0]);
  KernelText text{.header = "kernels/gpu/row_functions.h",
                  .kernel = match ? "MatchRms" : "GaussianTopk",
                  .defaults = {},
                  .before = {}};
  text.threads = threads_for(type.cols(), target_.wave);
  text.blocks = rows.bound;
  text.config.number("kColumns", type.cols())
      .number("kRowFloats", row_floats(x))
      .number("kOutFloats", row_floats({node, 0}))
      .number("kWaves", text.threads / target_.wave)
      .number("kTokensTotal", rows.bound)
      .number("kCount", rows.count);
  std::vector<PointerArgument> arguments{{.kind = Kind::kValue, .value = x}};
  if (match) {
    arguments.push_back({.kind = Kind::kValue, .value = graph_.operand(node, 1)});
    text.config.number("kLikeFloats", row_floats(arguments.back().value));
  } else {
    text.config.real("kCutoff", graph_.attrs_as<ir::GaussianTopkAttrs>(node).cutoff);
  }
  arguments.push_back(input(GpuInput::kCounts));
  arguments.push_back({.kind = Kind::kValue, .value = {node, 0}});
  launch(fmt::format("{}_{}_t{}", ir::op_def(graph_.op(node)).name, type.cols(), rows.bound), text, arguments);
}

// The frequencies are a constant, either folded by a pass or computed here. Factors of the model file divide them in
// the kernel, because their bytes are not known at compile time.
void GpuChooser::rope_table(ir::NodeId node) {
  const auto frequencies = graph_.operand(node, 1);
  const bool computed = graph_.op(frequencies.node) == Op::kRopeFreqs;  // else they were folded into a constant
  const bool factors = computed && !graph_.operands(frequencies.node).empty();
  const auto angles = graph_.type(frequencies).cols();
  const auto& table = graph_.attrs_as<ir::RopeTableAttrs>(node);
  const auto rows = rows_of_step(graph_.type({node, 0}).shape[0]);
  KernelText text{.header = "kernels/gpu/rows.h", .kernel = "RopeTable", .defaults = {}, .before = {}};
  text.has_lds = false;
  text.blocks = rows.bound;
  text.threads = threads_for(angles, target_.wave);
  text.any_threads = true;
  text.config.number("kAngles", angles)
      .number("kTokensTotal", rows.bound)
      .flag("kFactors", factors)
      .real("kMagnitude", table.magnitude)
      .real("kTemperature", table.temperature)
      .number("kTemperatureLength", table.temperature_length)
      .number("kTemperatureOffset", table.temperature_offset);
  PointerArgument base{.kind = Kind::kValue, .value = frequencies};
  if (computed) {
    out_.constants = frequencies_of(graph_, frequencies.node);
    base = {.kind = Kind::kConstants};
  }
  const auto divisor =
      factors ? PointerArgument{.kind = Kind::kValue, .value = graph_.operand(frequencies.node, 0)} : base;
  const std::vector<PointerArgument> arguments{{.kind = Kind::kValue, .value = graph_.operand(node, 0)},
                                               base,
                                               divisor,
                                               input(GpuInput::kCounts),
                                               {.kind = Kind::kValue, .value = {node, 0}}};
  launch(fmt::format("rope_table_{}_t{}", angles, rows.bound), text, arguments);
}

GpuChooser::Router GpuChooser::router_of(ir::NodeId node, const PointerArgument& logits,
                                         std::int64_t row_floats) const {
  const auto operands = graph_.operands(node);
  const bool biased = operands.size() > 1, scaled = operands.size() > 2;
  const auto& route = graph_.attrs_as<ir::RouteAttrs>(node);
  const auto& type = graph_.type(operands[0]);
  const auto rows = rows_of_step(type.shape[0]);
  Router out;
  out.config.number("kExperts", type.cols())
      .number("kUsed", route.used)
      .number("kGroups", route.groups)
      .number("kGroupsUsed", route.groups_used)
      .number("kGroupTop", route.group_top)
      .number("kPerAdjugate", route.experts_per_adjugate)
      .number("kRowFloats", row_floats)
      .number("kTokensTotal", rows.bound)
      .number("kCount", rows.count)
      .flag("kSigmoid", route.gate == ir::RouteGate::kSigmoid)
      .flag("kBiased", biased)
      .flag("kFactors", scaled)
      .flag("kOverChosen", route.share == ir::RoutingNormalization::kChosen)
      .real("kScale", route.scale);
  const auto vector = [&](std::size_t i) {
    return i < operands.size() ? PointerArgument{.kind = Kind::kValue, .value = operands[i]} : logits;
  };
  out.pointers = {logits,
                  vector(1),
                  vector(2),
                  input(GpuInput::kCounts),
                  {.kind = Kind::kValue, .value = {node, 0}},
                  {.kind = Kind::kValue, .value = {node, 1}}};
  return out;
}

void GpuChooser::launch_router(ir::NodeId node, const Router& router) {
  const auto& type = graph_.type(graph_.operand(node, 0));
  const auto rows = rows_of_step(type.shape[0]);
  KernelText text{.header = "kernels/gpu/experts.h", .kernel = "Route", .defaults = {}, .before = {}};
  constexpr int kThreads = 128;
  text.config = router.config;
  text.config.number("kWaves", kThreads / target_.wave);
  text.blocks = rows.bound;
  text.threads = kThreads;
  launch(fmt::format("route_{}_t{}", type.cols(), rows.bound), text, router.pointers);
}

void GpuChooser::interleaved_split(ir::NodeId node) {
  const auto& parts = graph_.attrs_as<ir::PartsAttrs>(node);
  const auto x = graph_.operand(node, 0);
  const auto rows = rows_of_step(graph_.type(x).shape[0]);
  KernelText text{.header = "kernels/gpu/rows.h", .kernel = "SplitInterleaved", .defaults = {}, .before = {}};
  text.has_lds = false;
  text.blocks = rows.bound;
  text.threads = 256;
  text.config.number("kUnit", parts.unit)
      .number("kPartsCount", static_cast<std::int64_t>(parts.sizes.size()))
      .number("kColumns", graph_.type(x).cols())
      .number("kRowFloats", row_floats(x))
      .number("kPartFloats", row_floats({node, 0}))
      .number("kThreads", text.threads)
      .number("kTokensTotal", rows.bound)
      .number("kCount", rows.count);
  std::vector<PointerArgument> arguments{{.kind = Kind::kValue, .value = x}, input(GpuInput::kCounts)};
  for (std::uint32_t i = 0; i < parts.sizes.size(); ++i)
    arguments.push_back({.kind = Kind::kValue, .value = {node, i}});
  launch(fmt::format("split_{}_t{}", graph_.type(x).cols(), rows.bound), text, arguments);
}

// The pieces of a head become a chain of conditions on the column; operands that are used twice are one argument.
void GpuChooser::arrange(ir::NodeId node) {
  const auto& attrs = graph_.attrs_as<ir::ArrangeAttrs>(node);
  const auto operands = graph_.operands(node);
  const auto rows = rows_of_step(graph_.type({node, 0}).shape[0]);
  std::string body, members;
  std::int64_t width = 0;
  for (std::size_t i = 0; i < attrs.widths.size(); ++i) {
    const auto begin = width;
    width += attrs.widths[i];
    if (attrs.sources[i] < 0) continue;
    const auto x = operands[static_cast<std::size_t>(attrs.sources[i])];
    body += fmt::format(
        "    if (c >= {} && c < {}) return gpu::load(a.p{} + static_cast<u64>(t) * {} + {} + h * {} + c - {});\n",
        begin, width, attrs.sources[i], row_floats(x), attrs.begins[i], attrs.strides[i], begin);
  }
  std::vector<PointerArgument> arguments;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    members += fmt::format("    const float* p{};\n", i);
    arguments.push_back({.kind = Kind::kValue, .value = operands[i]});
  }
  KernelText text{.header = "kernels/gpu/rows.h", .kernel = "Arrange", .defaults = {}, .before = {}};
  text.before = fmt::format(
      "struct Pieces {{\n  struct Args {{\n{}  }};\n"
      "  FORGE_DEVICE static float at([[maybe_unused]] const Args& a, [[maybe_unused]] int t, [[maybe_unused]] int h,\n"
      "                               [[maybe_unused]] int c) {{\n{}    return 0.0f;\n  }}\n}};\n",
      members, body);
  const auto columns = attrs.heads * width;
  text.has_lds = false;
  text.threads = threads_for(columns, target_.wave);
  text.blocks = rows.bound * ((columns + text.threads - 1) / text.threads);
  text.config.use("Pieces", "gpu::Pieces")
      .number("kHeads", attrs.heads)
      .number("kWidth", width)
      .number("kOutFloats", row_floats({node, 0}))
      .number("kThreads", text.threads)
      .number("kTokensTotal", rows.bound)
      .number("kCount", rows.count);
  arguments.push_back(input(GpuInput::kCounts));
  arguments.push_back({.kind = Kind::kValue, .value = {node, 0}});
  launch(fmt::format("arrange_{}x{}_t{}", attrs.heads, width, rows.bound), text, arguments);
}

// A lane has up to 32 columns of a token, for its query and for its result. Keys and values of some tokens, 16 KiB for
// heads of 64 columns, are in shared memory.
void GpuChooser::self_attention(ir::NodeId node) {
  constexpr std::int64_t kColumnsOfLane = 32, kStagedFloats = 2048, kThreads = 128;
  const auto& attention = graph_.attrs_as<ir::SelfAttentionAttrs>(node);
  const auto q = graph_.operand(node, 0), k = graph_.operand(node, 1), v = graph_.operand(node, 2);
  const ir::Value out{node, 0};
  const auto rows = rows_of_step(graph_.type(out).shape[0]);
  const auto threads = std::max<std::int64_t>(kThreads, target_.wave);
  std::int64_t lanes = 1, keys = 8;
  while (lanes * kColumnsOfLane < attention.head_dim) lanes *= 2;
  while (2 * keys * attention.head_dim <= kStagedFloats && keys < 64) keys *= 2;
  KernelText text{.header = "kernels/gpu/self_attention.h", .kernel = "SelfAttention", .defaults = {}, .before = {}};
  text.threads = threads;
  text.blocks = attention.heads * ((rows.bound + threads / lanes - 1) / (threads / lanes));
  text.config.number("kHeads", attention.heads)
      .number("kKvHeads", attention.kv_heads)
      .number("kHeadDim", attention.head_dim)
      .number("kReach", attention.window == 0 ? -1 : attention.window / 2)
      .real("kScale", attention.scale * std::numbers::log2e_v<float>)
      .real("kAlibi", attention.alibi)
      .number("kLanes", lanes)
      .number("kKeys", keys)
      .number("kWaves", threads / target_.wave)
      .number("kTokensTotal", rows.bound)
      .number("kQFloats", row_floats(q))
      .number("kKFloats", row_floats(k))
      .number("kVFloats", row_floats(v))
      .number("kOutFloats", row_floats(out));
  const PointerArgument arguments[] = {{.kind = Kind::kValue, .value = q}, {.kind = Kind::kValue, .value = k},
                                       {.kind = Kind::kValue, .value = v}, input(GpuInput::kCounts),
                                       input(ir::InputKind::kSequence),    {.kind = Kind::kValue, .value = out}};
  out_.step.label = "self_attention";
  launch(fmt::format("self_attention_{}x{}_t{}", attention.heads, attention.head_dim, rows.bound), text, arguments);
}

}  // namespace forge::codegen
