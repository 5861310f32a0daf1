#include "runtime/gpu/gpu_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "runtime/plan/gpu_io.h"
#include "runtime/program_bounds.h"
#include "support/error.h"

namespace forge::runtime {
namespace {

using driver::Address;
using plan::GpuInput;
using plan::Space;

/// Numbers of ir::InputKind as plans contain them. (The runtime does not include ir/.)
enum Input : std::uint16_t { kIds, kPositions, kSequence, kRows, kKvLength, kBlockTable, kStateRead = 7, kStateWrite };

constexpr const char* kFix = "compile the model again (forge-compile)";

[[noreturn]] void fail(std::string why) {
  throw Error(ErrorCode::kPlan, "the plan's GPU program is broken", std::move(why), kFix);
}

/// Builds the kernel's argument struct: addresses of the operands in order, then the constants, 8 bytes each.
GpuLaunch decode_step(const plan::StepT& step, const GpuResolver& resolver, const StepIoLayout& inputs,
                      const GpuKernels& kernels) {
  const auto* body = step.body.AsLaunch();
  if (body == nullptr) fail("it is not a kernel launch");
  auto launch = kernels.launch(*body);
  for (const auto& operand : step.operands) launch.args.push_back(resolver.address(operand, &inputs).value);
  for (const auto constant : body->constants) launch.args.push_back(static_cast<std::uint64_t>(constant));
  if (launch.args.empty() || launch.args.size() * sizeof launch.args[0] > driver::kArgumentBytesMax)
    fail(fmt::format("it has {} arguments", launch.args.size()));
  return launch;
}

/// Decodes all steps of one variant; errors name the variant and the step.
std::vector<GpuLaunch> decode_steps(const plan::VariantT& variant,
                                    const std::vector<std::unique_ptr<plan::StepT>>& steps, const GpuResolver& resolver,
                                    const StepIoLayout& inputs, const GpuKernels& kernels) {
  std::vector<GpuLaunch> out;
  for (const auto& step : steps) {
    if (step == nullptr) fail("a step is missing");
    try {
      out.push_back(decode_step(*step, resolver, inputs, kernels));
    } catch (const Error& error) {
      throw error.within(fmt::format("plan variant '{}', step '{}'", printable(variant.name), printable(step->label)));
    }
  }
  return out;
}

}  // namespace

GpuKernels::GpuKernels(const plan::ProgramT& program, const driver::Device& device) : device_(device.info()) {
  std::set<std::string_view> names;
  for (const auto& object : program.code_objects) {
    if (object == nullptr || object->name.empty() || !names.insert(object->name).second)
      fail("its code objects need distinct names");
    driver::Module module(device, std::as_bytes(std::span(object->bytes)), printable(object->name));
    auto function = module.function(object->name);
    const auto facts = function.facts();
    kernels_.push_back({object->name, std::move(module), std::move(function), facts});
  }
}

/// Checks a launch against the kernel's and the device's limits, so that a broken plan fails here and not on the
/// device.
GpuLaunch GpuKernels::launch(const plan::LaunchT& launch) const {
  if (launch.code >= kernels_.size()) fail(fmt::format("code object {} does not exist", launch.code));
  const auto& [name, module, function, facts] = kernels_[launch.code];
  const auto blocks = launch.blocks, threads = launch.threads, lds = launch.lds_bytes;
  std::int64_t threads_max = device_.threads_per_block_max;
  if (facts.threads_per_block_max > 0) threads_max = std::min<std::int64_t>(threads_max, facts.threads_per_block_max);
  if (blocks < 1 || blocks > device_.grid_max[0] || threads < 1 || threads > threads_max)
    fail(fmt::format("'{}' needs {} blocks of {} threads; {} allows {} of {}", printable(name), blocks, threads,
                     device_.name, device_.grid_max[0], threads_max));
  const std::int64_t lds_max = device_.lds_bytes_per_block, lds_static = std::max(facts.lds_bytes, 0);
  if (lds < 0 || lds > lds_max || lds + lds_static > lds_max)
    fail(fmt::format("'{}' needs {} bytes of LDS per block; {} has {}", printable(name), lds + lds_static, device_.name,
                     lds_max));
  if (lds > 0) function.allow_lds(static_cast<std::uint32_t>(lds));
  return {.function = &function,
          .blocks = {.x = static_cast<std::uint32_t>(blocks)},
          .threads = {.x = static_cast<std::uint32_t>(threads)},
          .lds_bytes = static_cast<std::uint32_t>(lds),
          .hints = {.overlap_predecessor = launch.waits_itself},
          .args = {}};
}

/// Address of one layer's K or V plane: offset 2 * layer is K, 2 * layer + 1 is V.
Address GpuResolver::kv(const plan::Operand& of) const {
  if (of.index() >= program_.kv_groups.size()) fail("an operand names a KV group that does not exist");
  const auto& group = program_.kv_groups[of.index()];
  if (of.offset() >= 2 * static_cast<std::uint64_t>(group.layers())) fail("a KV layer is out of range");
  const auto plane = static_cast<std::size_t>(of.offset());
  if (group.shared_row() && plane % 2 != 0) fail("a KV group with a shared row has no values of its own");
  const std::size_t blocks = memory_.kv_pool_sizes[of.index()].blocks;
  return addresses_.kv + (memory_.kv_groups[of.index()] + KvPlanes(group).begin(plane, blocks));
}

/// Address of one layer's recurrent state in slot 0.
Address GpuResolver::recurrent(const plan::Operand& of) const {
  if (of.index() >= program_.recurrent_groups.size()) fail("an operand names a recurrent group that does not exist");
  const auto& group = program_.recurrent_groups[of.index()];
  if (of.offset() >= static_cast<std::uint64_t>(group.layers())) fail("a layer of recurrent state is out of range");
  return addresses_.recurrent + (memory_.states[of.index()] +
                                 static_cast<std::size_t>(of.offset()) * static_cast<std::size_t>(group.slot_bytes()));
}

/// Address of a step input. Block tables have one part per KV group, which the offset selects.
Address GpuResolver::input(const plan::Operand& of, const StepIoLayout* inputs) const {
  const std::size_t parts = of.index() == kBlockTable ? memory_.kv_pool_sizes.size() : 1;
  if (inputs == nullptr || of.offset() >= parts) fail("an operand is not a step input");
  switch (of.index()) {
    case kIds:
      return addresses_.io + inputs->ids;
    case kPositions:
      return addresses_.io + inputs->positions;
    case kSequence:
      return addresses_.io + inputs->sequence;
    case kRows:
      return addresses_.io + inputs->rows;
    case kKvLength:
      return addresses_.io + inputs->kv_length;
    case kStateRead:
    case kStateWrite:
      if (memory_.states.empty()) fail("an operand names a slot of recurrent state, and the program has none");
      return addresses_.io + (of.index() == kStateRead ? inputs->state_read : inputs->state_write);
    case kBlockTable:
      return addresses_.io + (inputs->block_table + static_cast<std::size_t>(of.offset()) * inputs->table_bytes);
    case static_cast<std::uint16_t>(GpuInput::kCounts):
      return addresses_.io + inputs->counts;
    case static_cast<std::uint16_t>(GpuInput::kSampling):
      return addresses_.io + inputs->sampling;
    case static_cast<std::uint16_t>(GpuInput::kSampled):
      return addresses_.sampled;
    case static_cast<std::uint16_t>(GpuInput::kMasks):
      return addresses_.io + memory_.masks;
    default:
      fail("an unknown step input");
  }
}

/// Base address of the operand's space plus its offset, after checking that it is inside and aligned to 4 bytes.
Address GpuResolver::address(const plan::Operand& of, const StepIoLayout* inputs) const {
  const auto inside = [&](Address base, std::size_t bytes) {
    if (of.offset() > bytes || of.offset() % sizeof(float) != 0)
      fail(fmt::format("an operand at offset {} extends past its block of {} bytes", of.offset(), bytes));
    return base + static_cast<std::size_t>(of.offset());
  };
  switch (of.space()) {
    case Space::Arena:
      return inside(addresses_.arena, memory_.need.arena);
    case Space::Weights:
      return inside(addresses_.weights, memory_.constants);
    case Space::Constants:
      return inside(addresses_.weights + memory_.constants, program_.constants.size());
    case Space::Counters:
      return inside(addresses_.io, memory_.counters_bytes);
    case Space::Output:
      return inside(addresses_.io + memory_.logits, memory_.logits_bytes);
    case Space::Input:
      return input(of, inputs);
    case Space::Kv:
      return kv(of);
    case Space::Recurrent:
      return recurrent(of);
    default:
      fail("an operand is in a space that a GPU step cannot use");
  }
}

std::vector<GpuVariant> decode_gpu_variants(const plan::ProgramT& program, const GpuMemory& memory,
                                            const GpuResolver& resolver, const GpuKernels& kernels) {
  std::vector<GpuVariant> out;
  for (std::size_t v = 0; v < program.variants.size(); ++v) {
    const auto& from = *program.variants[v];  // not null: GpuMemory has checked it
    const auto& inputs = memory.inputs[v];
    out.push_back({.name = from.name,
                   .tokens = static_cast<std::size_t>(from.bounds.tokens()),
                   .rows = static_cast<std::size_t>(from.bounds.rows()),
                   .sequences = static_cast<std::size_t>(from.bounds.sequences()),
                   .table_blocks = static_cast<std::size_t>(from.bounds.table_blocks()),
                   .hidden_width = static_cast<std::size_t>(from.hidden_width),
                   .io = inputs,
                   .forward = decode_steps(from, from.steps, resolver, inputs, kernels),
                   .sample = decode_steps(from, from.sample_steps, resolver, inputs, kernels)});
  }
  return out;
}

}  // namespace forge::runtime
