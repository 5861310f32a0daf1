#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "codegen/gpu/gpu_lowering.h"
#include "kernels/cpu/rope.h"
#include "kernels/quant/planes.h"
#include "runtime/plan/gpu_io.h"
#include "support/error.h"

// Steps that stand alone, sampling, and the loading of weights.

namespace forge::codegen {

using ir::InputKind;
using ir::Op;
using plan::GpuInput;
using plan::Space;
using Kind = PointerArgument::Kind;

namespace {

/// A round number of threads for `count` things.
std::int64_t threads_for(std::int64_t count, int wave) {
  return std::clamp<std::int64_t>((count + wave - 1) / wave * wave, wave, 256);
}

/// RoPE's frequencies before factors divide them, by the CPU's kernel: [dims/2].
std::vector<float> frequencies_of(const ir::RopeFreqsAttrs& rope) {
  std::vector<float> out(static_cast<std::size_t>(rope.dims / 2));
  cpu::rope_frequencies({.dims = static_cast<std::size_t>(rope.dims),
                         .base = rope.base,
                         .scaling = static_cast<cpu::RopeScaling>(rope.scaling),
                         .factor = rope.factor,
                         .original_context = static_cast<std::size_t>(rope.original_context),
                         .ext_factor = rope.ext_factor,
                         .beta_fast = rope.beta_fast,
                         .beta_slow = rope.beta_slow},
                        out.data());
  return out;
}

}  // namespace

void GpuLowering::lower_alone(ir::NodeId node, plan::StepT& out) {
  switch (graph_.op(node)) {
    case Op::kRmsNorm:
    case Op::kLayerNorm:
      return lower_norm(node, out);
    case Op::kRopeTable:
      return lower_rope_table(node, out);
    case Op::kRoute:
      return lower_route(node, out);
    default:
      return lower_interleaved_split(node, out);
  }
}

void GpuLowering::lower_norm(ir::NodeId node, plan::StepT& out) {
  const bool rms = graph_.op(node) == Op::kRmsNorm, biased = graph_.operands(node).size() > 2;
  const auto x = graph_.operand(node, 0), weight = graph_.operand(node, 1);
  const auto& norm = graph_.attrs_as<ir::NormAttrs>(node);
  const auto& type = graph_.type({node, 0});
  const auto rows = rows_of_step(type.shape[0]);
  const auto wave = target_.target().wave;
  KernelText text{
      .header = "kernels/gpu/rows.h", .kernel = rms ? "RmsNorm" : "LayerNorm", .defaults = {}, .before = {}};
  text.threads = threads_for(norm.dim, wave);
  text.blocks = rows.bound * (type.cols() / norm.dim);
  text.config.number("kColumns", type.cols())
      .number("kDim", norm.dim)
      .number("kRowFloats", places_.rows_of(x).row_floats)
      .number("kOutFloats", places_.rows_of({node, 0}).row_floats)
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
  finish_step(fmt::format("{}_{}_t{}", rms ? "rms_norm" : "layer_norm", norm.dim, rows.bound), text, arguments, out);
}

void GpuLowering::lower_rope_table(ir::NodeId node, plan::StepT& out) {
  const auto frequencies = graph_.operand(node, 1);
  const bool factors = graph_.op(frequencies.node) == Op::kRopeFreqs;
  if (factors && graph_.operands(frequencies.node).empty())
    throw Error(ErrorCode::kModelUnsupported, "constant RoPE frequencies were not folded", {},
                "do not skip fold_constants for a GPU");
  const auto angles = graph_.type(frequencies).cols();
  const auto& table = graph_.attrs_as<ir::RopeTableAttrs>(node);
  const auto rows = rows_of_step(graph_.type({node, 0}).shape[0]);
  KernelText text{.header = "kernels/gpu/rows.h", .kernel = "RopeTable", .defaults = {}, .before = {}};
  text.has_lds = false;
  text.blocks = rows.bound;
  text.threads = threads_for(angles, target_.target().wave);
  text.config.number("kAngles", angles)
      .number("kThreads", text.threads)
      .number("kTokensTotal", rows.bound)
      .flag("kFactors", factors)
      .real("kMagnitude", table.magnitude)
      .real("kTemperature", table.temperature)
      .number("kTemperatureLength", table.temperature_length);
  const auto divisor = factors ? graph_.operand(frequencies.node, 0) : frequencies;
  const std::vector<PointerArgument> arguments{{.kind = Kind::kValue, .value = graph_.operand(node, 0)},
                                               {.kind = Kind::kValue, .value = divisor},
                                               {.kind = Kind::kValue, .value = divisor},
                                               input(GpuInput::kCounts),
                                               {.kind = Kind::kValue, .value = {node, 0}}};
  finish_step(fmt::format("rope_table_{}_t{}", angles, rows.bound), text, arguments, out);
  if (!factors) return;
  const auto found = frequencies_.find(frequencies.node);
  const auto base = found != frequencies_.end()
                        ? found->second
                        : places_.add_constant(frequencies_of(graph_.attrs_as<ir::RopeFreqsAttrs>(frequencies.node)));
  frequencies_.emplace(frequencies.node, base);
  out.operands[1] = base;
}

void GpuLowering::lower_route(ir::NodeId node, plan::StepT& out) {
  const auto logits = graph_.operand(node, 0);
  const bool biased = graph_.operands(node).size() > 1;
  const auto& route = graph_.attrs_as<ir::RouteAttrs>(node);
  const auto experts = graph_.type(logits).cols();
  const auto rows = rows_of_step(graph_.type(logits).shape[0]);
  KernelText text{.header = "kernels/gpu/experts.h", .kernel = "Route", .defaults = {}, .before = {}};
  text.blocks = rows.bound;
  text.threads = target_.target().wave;
  text.config.number("kExperts", experts)
      .number("kUsed", route.used)
      .number("kGroups", route.groups)
      .number("kGroupsUsed", route.groups_used)
      .number("kGroupTop", route.group_top)
      .number("kRowFloats", places_.rows_of(logits).row_floats)
      .number("kTokensTotal", rows.bound)
      .number("kCount", rows.count)
      .flag("kSigmoid", route.gate == ir::RouteGate::kSigmoid)
      .flag("kBiased", biased)
      .flag("kOverChosen", route.share == ir::RouteShare::kChosen)
      .real("kScale", route.scale);
  const std::vector<PointerArgument> arguments{
      {.kind = Kind::kValue, .value = logits},
      {.kind = Kind::kValue, .value = biased ? graph_.operand(node, 1) : logits},
      input(GpuInput::kCounts),
      {.kind = Kind::kValue, .value = {node, 0}},
      {.kind = Kind::kValue, .value = {node, 1}}};
  finish_step(fmt::format("route_{}_t{}", experts, rows.bound), text, arguments, out);
}

void GpuLowering::lower_interleaved_split(ir::NodeId node, plan::StepT& out) {
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
      .number("kRowFloats", places_.rows_of(x).row_floats)
      .number("kPartFloats", places_.rows_of({node, 0}).row_floats)
      .number("kThreads", text.threads)
      .number("kTokensTotal", rows.bound)
      .number("kCount", rows.count);
  std::vector<PointerArgument> arguments{{.kind = Kind::kValue, .value = x}, input(GpuInput::kCounts)};
  for (std::uint32_t i = 0; i < parts.sizes.size(); ++i)
    arguments.push_back({.kind = Kind::kValue, .value = {node, i}});
  finish_step(fmt::format("split_{}_t{}", graph_.type(x).cols(), rows.bound), text, arguments, out);
}

void GpuLowering::lower_sampling(std::vector<std::unique_ptr<plan::StepT>>& out) {
  const auto& bounds = places_.variant().bounds;
  const auto rows = std::min(bounds.rows, bounds.sequences);  // more are asked for by who wants logits
  const auto wave = target_.target().wave;
  constexpr std::int64_t kScanBlocks = 128, kScanThreads = 256, kDrawThreads = 512;
  ConfigText config;
  config.number("kVocab", model_.vocab)
      .number("kRows", rows)
      .number("kScanBlocks", kScanBlocks)
      .number("kScanWaves", kScanThreads / wave)
      .number("kDrawWaves", kDrawThreads / wave);
  scratch_offset_ = 0;  // nothing of the arena is alive when forward has run
  sampling_bytes_ = std::max(sampling_bytes_, 2 * rows * kScanBlocks * kFloatBytes);
  arena_bytes_ = std::max(arena_bytes_, sampling_bytes_);
  const PointerArgument logits{.kind = Kind::kLogits}, values{.kind = Kind::kScratch},
      indices{.kind = Kind::kScratch, .input = rows * kScanBlocks * kFloatBytes};

  KernelText scan{.header = "kernels/gpu/sampling.h", .kernel = "SampleScan", .defaults = {}, .before = {}};
  scan.config = config;
  scan.blocks = rows * kScanBlocks;
  scan.threads = kScanThreads;
  auto step = std::make_unique<plan::StepT>();
  step->label = "largest logits";
  step->activation_bytes = rows * model_.vocab * kFloatBytes;
  finish_step(fmt::format("sample_scan_{}_r{}", model_.vocab, rows), scan,
              std::vector{logits, input(GpuInput::kCounts), values, indices}, *step);
  out.push_back(std::move(step));

  KernelText draw{.header = "kernels/gpu/sampling.h", .kernel = "SampleDraw", .defaults = {}, .before = {}};
  draw.config = std::move(config);
  draw.blocks = rows;
  draw.threads = kDrawThreads;
  step = std::make_unique<plan::StepT>();
  step->label = "next token";
  finish_step(fmt::format("sample_draw_{}_r{}", model_.vocab, rows), draw,
              std::vector{logits, values, indices, input(GpuInput::kSampling), input(InputKind::kIds),
                          input(InputKind::kPositions), input(InputKind::kKvLength), input(GpuInput::kCounts),
                          counters(1), input(GpuInput::kSampled)},
              *step);
  out.push_back(std::move(step));
}

void write_repack(ConfigText& config, const RepackShape& shape) {
  const auto native = static_cast<std::int64_t>(row_bytes(shape.type, static_cast<std::size_t>(shape.k)));
  const auto scales = static_cast<std::int64_t>(quant::planes_scale_bytes(shape.type));
  if (shape.codes) {
    config.use("Block", block_type(shape.type)).number("kRows", shape.rows).number("kK", shape.k);
  } else {
    const auto block = scales == 0 ? native : static_cast<std::int64_t>(dtype_info(shape.type).block_bytes);
    config.number("kRows", shape.rows)
        .number("kK", shape.k)
        .number("kRowWords", native / 2)
        .number("kBlockWords", block / 2)
        .number("kScaleWords", scales / 2);
  }
  config.number("kThreads", shape.threads).number("kBlocksPerRow", shape.blocks_per_row);
}

void GpuLowering::lower_load(plan::WeightT& weight, std::size_t index, std::vector<std::unique_ptr<plan::StepT>>& out) {
  const auto dtype = static_cast<DType>(weight.dtype);
  // A vector is rows of one element, so that vectors are concatenated and alternate as matrices do; experts' lie one
  // behind the other.
  const bool vector = weight.layout != static_cast<std::uint8_t>(quant::Layout::kPlanes);
  if (vector) {
    std::swap(weight.rows, weight.cols);
    weight.rows *= weight.slices;
  }
  const auto cols = weight.cols, rows = weight.rows;
  const auto native = static_cast<std::int64_t>(row_bytes(dtype, static_cast<std::size_t>(cols)));
  const auto scales = static_cast<std::int64_t>(quant::planes_scale_bytes(dtype));
  const auto parts = static_cast<std::int64_t>(weight.sources.size());
  std::int64_t rows_before = 0;
  for (std::size_t i = 0; i < weight.sources.size(); ++i) {
    auto& source = *weight.sources[i];
    auto step = std::make_unique<plan::StepT>();
    step->label = source.tensor;
    step->weight_bytes = static_cast<std::int64_t>(source.bytes);
    const bool alternates = weight.unit > 0 && parts > 1;
    const bool codes = !vector && quant::is_plane_codes(dtype);
    const bool copies = scales == 0 && !codes && !alternates;
    if (vector) source.rows = static_cast<std::int64_t>(source.bytes) / native;
    const auto whole = plan::operand_at(Space::Weights, 0, weight.offset);
    step->operands = {copies ? moved(whole, rows_before * native) : whole};
    const auto first = alternates ? static_cast<std::int64_t>(i) * weight.unit : rows_before;
    const auto unit = alternates ? weight.unit : std::max<std::int64_t>(source.rows, 1);
    KernelText text{.header = "kernels/gpu/repack.h",
                    .kernel = codes ? "RepackCodes" : "RepackPlanes",
                    .defaults = {},
                    .before = {}};
    text.has_lds = text.has_blocks = false;
    if (copies) {
      plan::CopySourceT copy;
      copy.weight = static_cast<std::uint32_t>(index);
      copy.source = static_cast<std::uint32_t>(i);
      copy.to = 0;
      step->body.Set(copy);
    } else if (codes) {
      const auto blocks = cols / static_cast<std::int64_t>(dtype_info(dtype).block_elems);
      text.threads = 64;
      text.blocks = std::clamp<std::int64_t>(blocks / text.threads, 1, 64);
    } else {
      text.threads = 256;
      text.blocks = std::clamp<std::int64_t>(native / 2 / (text.threads * 8), 1, 64);
    }
    if (!copies) {
      write_repack(text.config, {.type = dtype,
                                 .codes = codes,
                                 .rows = rows,
                                 .k = cols,
                                 .threads = text.threads,
                                 .blocks_per_row = text.blocks});
      plan::RepackT repack;
      repack.code = kernels_.add(fmt::format("repack_{}_{}x{}", dtype_name(dtype), rows, cols), text);
      repack.weight = static_cast<std::uint32_t>(index);
      repack.source = static_cast<std::uint32_t>(i);
      repack.to = 0;
      repack.blocks_per_row = static_cast<std::uint32_t>(text.blocks);
      repack.threads = static_cast<std::uint32_t>(text.threads);
      repack.row_bytes = native;
      repack.row_first = first;
      repack.unit = unit;
      repack.stride = weight.unit * parts;
      step->body.Set(repack);
    }
    rows_before += source.rows;
    out.push_back(std::move(step));
  }
}

}  // namespace forge::codegen
