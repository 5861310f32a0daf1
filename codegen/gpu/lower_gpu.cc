#include "codegen/gpu/lower_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "codegen/gpu/source/kernel_text.h"
#include "codegen/gpu/source/weight_text.h"
#include "codegen/value_places.h"
#include "kernels/quant/planes.h"
#include "runtime/plan/weight_sources.h"
#include "support/error.h"

namespace forge::codegen {
namespace {

/// Compiles all kernels of the program; results are in the order of `sources`, to which the steps' indices refer.
std::vector<std::unique_ptr<plan::CodeObjectT>> compile(KernelCompiler& compiler, std::string_view target,
                                                        std::span<const KernelSource> sources) {
  auto compiled = compiler.compile(std::string(target), sources);
  invariant(compiled.size() == sources.size(), "CG-020", "the compiler did not return all kernels");
  std::vector<std::unique_ptr<plan::CodeObjectT>> out;
  for (std::size_t i = 0; i < compiled.size(); ++i) {
    auto object = std::make_unique<plan::CodeObjectT>();
    object->name = sources[i].entry;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(compiled[i].code.data());
    object->bytes.assign(bytes, bytes + compiled[i].code.size());
    object->registers = compiled[i].facts.registers;
    object->scalar_registers = compiled[i].facts.scalar_registers;
    object->spill_bytes = compiled[i].facts.spill_bytes;
    object->lds_bytes = compiled[i].facts.lds_bytes;
    object->occupancy = compiled[i].facts.occupancy;
    object->compiler = compiled[i].compiler;
    out.push_back(std::move(object));
  }
  return out;
}

/// Adds one load step for each source tensor of a weight: a plain copy if its bytes are used as they are (floats that
/// are not interleaved, vectors), else a launch of a repack kernel. `index`: the weight's number in the plan.
void lower_load(const GpuTarget& target, const plan::WeightT& weight, std::size_t index, KernelSet& kernels,
                std::vector<std::unique_ptr<plan::StepT>>& out) {
  const auto dtype = static_cast<DType>(weight.dtype);
  // Vectors are matrices with rows of one element: concatenated or interleaved in the same way.
  const bool vector = weight.layout != static_cast<std::uint8_t>(quant::Layout::kPlanes);
  const auto cols = weight.cols, rows = weight.rows;
  const auto native = static_cast<std::int64_t>(row_bytes(dtype, static_cast<std::size_t>(cols)));
  const auto scales = static_cast<std::int64_t>(quant::planes_scale_bytes(dtype));
  // Experts in separate tensors: `slices` sources for each part, one an expert.
  const auto slices = weight.scattered ? std::max<std::int64_t>(weight.slices, 1) : 1;
  const auto parts = static_cast<std::int64_t>(weight.sources.size()) / slices;
  std::int64_t rows_before = 0;
  for (std::size_t i = 0; i < weight.sources.size(); ++i) {
    const auto& source = *weight.sources[i];
    const auto source_rows = plan::matrices_of(weight) * source.rows;
    auto step = std::make_unique<plan::StepT>();
    step->label = source.tensor;
    step->weight_bytes = static_cast<std::int64_t>(plan::source_bytes(weight, source));
    const bool alternates = weight.unit > 0 && parts > 1;
    const bool codes = !vector && quant::is_plane_codes(dtype);
    const bool copies = scales == 0 && !codes && !alternates;
    const auto whole = plan::operand_at(plan::Space::Weights, 0, weight.offset);
    step->operands = {copies ? moved(whole, rows_before * native) : whole};
    // Row r of the source becomes row first + r / unit * stride + r % unit of the weight (RepackArgs in repack.h):
    // interleaved parts alternate every weight.unit rows, concatenated parts are one run of rows.
    const auto part = static_cast<std::int64_t>(i) / slices, slice = static_cast<std::int64_t>(i) % slices;
    const auto first = alternates ? slice * parts * source_rows + part * weight.unit : rows_before;
    const auto unit = alternates ? weight.unit : std::max<std::int64_t>(source_rows, 1);
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
      repack.code =
          kernels.add(kernel_source(target, fmt::format("repack_{}_{}x{}", dtype_name(dtype), rows, cols), text));
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
    rows_before += source_rows;
    out.push_back(std::move(step));
  }
}

}  // namespace

std::unique_ptr<plan::ProgramT> lower_gpu(passes::Program program, std::optional<passes::Program> hidden,
                                          const ModelFile& model, const GpuTarget& target, const KvFormat& kv,
                                          KernelCompiler& compiler) {
  auto out = std::make_unique<plan::ProgramT>();
  KernelSet kernels;
  ValuePlaces places(program.graph, model, quant::Layout::kPlanes);
  places.place_all();
  places.place_states(
      kGpuKvBlockTokens, kv.type, [&](const ir::KvStateAttrs& state) { return kv.block_bytes(state); }, *out);
  // Kernels are collected over all variants, so that equal ones are compiled once.
  const auto finish = [&](passes::Choice& choice, plan::StepT& step) {
    step.body.AsLaunch()->code = kernels.add(std::move(choice.kernel));
    out->counter_bytes = std::max(out->counter_bytes, choice.counter_bytes);
  };
  lower_variants(program, places, finish, *out);
  if (hidden) {
    ValuePlaces beside(hidden->graph, model, quant::Layout::kPlanes);
    lower_beside(*hidden, places, beside, finish, *out);
  }
  places.take(*out);
  for (std::size_t i = 0; i < out->weights.size(); ++i)
    lower_load(target, *out->weights[i], i, kernels, out->load_steps);
  out->code_objects = compile(compiler, target.name, kernels.sources());
  return out;
}

}  // namespace forge::codegen
