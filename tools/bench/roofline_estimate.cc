#include "tools/bench/roofline_estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "codegen/gpu/code/descriptor.h"
#include "codegen/gpu/compile/code_object.h"
#include "codegen/gpu/targets.h"
#include "runtime/plan/step.h"
#include "support/error.h"
#include "support/os/interrupt.h"
#include "tools/bench/step_bytes.h"

namespace forge::tools {
namespace {

constexpr std::int64_t kBlocksMax = std::int64_t{1} << 31;  ///< of a grid

[[noreturn]] void refuse_plan(std::string_view kernel) {
  throw Error(ErrorCode::kPlan, fmt::format("the plan's launch of {} makes no sense", printable(kernel)), {},
              "compile the model again");
}

const codegen::GpuTarget& readable_target(const std::string& name) {
  const auto* target = codegen::find_target(name);
  if (target == nullptr || target->vendor != driver::Vendor::kAmd)
    throw Error(ErrorCode::kUsage,
                fmt::format("the code of {} cannot be read: estimates are for AMD GPUs", printable(name)), {},
                "run forge-bench --roofline where the device is");
  return *target;
}

/// Code objects of a program, each disassembled when it is first asked for.
class Disassembly {
 public:
  Disassembly(const plan::ProgramT& program, const codegen::GpuTarget& target) : program_(program), target_(target) {}

  struct Kernel {
    codegen::Function function;
    codegen::EntryRegisters entry;
  };
  const Kernel& kernel(std::uint32_t code) {
    if (const auto found = kernels_.find(code); found != kernels_.end()) return found->second;
    const auto& object = *program_.code_objects[code];
    const auto bytes = std::as_bytes(std::span(object.bytes));
    const auto text = codegen::disassemble(bytes, target_);
    if (!text)
      throw Error(ErrorCode::kDevice, fmt::format("nothing here disassembles code for {}", target_.name), {},
                  "install llvm-19 (llvm-objdump)");
    for (auto& function : codegen::parse_listing(*text)) {
      if (function.name != object.name) continue;
      const auto entry = codegen::entry_registers(bytes, object.name, target_);
      if (!entry) break;
      return kernels_.emplace(code, Kernel{std::move(function), *entry}).first->second;
    }
    throw Error(ErrorCode::kPlan, fmt::format("the code object of {} has no such kernel", printable(object.name)), {},
                "compile the model again");
  }

 private:
  const plan::ProgramT& program_;
  const codegen::GpuTarget& target_;
  std::map<std::uint32_t, Kernel> kernels_;
};

/// Launches with the same key execute the same: layers differ only in addresses.
std::string key_of(const plan::StepT& step) {
  const auto& launch = *step.body.AsLaunch();
  std::string key = fmt::format("{} {} {} {}", launch.code, launch.blocks, launch.threads, launch.lds_bytes);
  for (const auto constant : launch.constants) key += fmt::format(" {}", constant);
  for (const auto& operand : step.operands)
    key += fmt::format(" {}:{}", static_cast<int>(operand.space()),
                       operand.space() == plan::Space::Input ? operand.index() : 0);
  return key;
}

const plan::VariantT& variant_for(const plan::ProgramT& program, const StepShape& shape) {
  for (const auto& variant : program.variants) {
    if (!variant || variant->hidden_width > 0) continue;
    const auto& bounds = variant->bounds;
    if (bounds.tokens() >= shape.tokens && bounds.rows() >= shape.rows && bounds.sequences() >= shape.sequences)
      return *variant;
  }
  throw Error(
      ErrorCode::kUsage,
      fmt::format("the plan has no variant for {} tokens of {} sequences in a step", shape.tokens, shape.sequences), {},
      "give fewer with -p or -b");
}

class Estimator {
 public:
  Estimator(const plan::ProgramT& program, const StepShape& shape)
      : program_(program),
        target_(readable_target(program.target)),
        variant_(variant_for(program, shape)),
        shape_(shape),
        disassembly_(program, target_) {}

  std::vector<EstimatedKernel> run() {
    for (const auto& step : variant_.steps) add(step.get(), false);
    for (const auto& step : variant_.sample_steps) add(step.get(), true);
    std::ranges::stable_sort(rows_, std::greater<>(), [](const EstimatedKernel& row) { return row.work.total(); });
    return std::move(rows_);
  }

 private:
  EstimatedKernel& row_of(std::uint32_t code, bool samples) {
    const auto& object = *program_.code_objects[code];
    for (auto& row : rows_)
      if (row.kernel == object.name && row.samples == samples) return row;
    const bool known = object.occupancy >= 0;
    return rows_.emplace_back(EstimatedKernel{
        .kernel = object.name,
        .samples = samples,
        .work = {},
        .registers = object.registers,
        .scalar_registers = object.scalar_registers,
        .spill_bytes = object.spill_bytes,
        .lds_bytes = object.lds_bytes,
        .waves_per_simd = known ? object.occupancy * target_.compute_units / codegen::kSimdsPerUnit : -1});
  }

  void add(const plan::StepT* planned, bool samples) {
    check_interrupt();
    if (planned == nullptr) refuse_plan("?");
    const auto& step = *planned;
    const auto* launch = step.body.AsLaunch();
    const auto name = plan::kernel_name(program_, step);
    if (launch == nullptr || launch->code >= program_.code_objects.size() || !program_.code_objects[launch->code])
      refuse_plan(name);
    if (launch->blocks < 1 || launch->blocks > kBlocksMax || launch->threads < 1 ||
        launch->threads > codegen::kThreadsPerBlockMax)
      refuse_plan(name);
    const auto& work = work_of(step);
    auto& row = row_of(launch->code, samples);
    ++row.launches;
    row.waves += launch->blocks * ((launch->threads + target_.wave - 1) / target_.wave);
    row.bytes += step_bytes(program_, variant_, step, shape_);
    row.flops += step_flops(variant_, step, shape_);
    row.work.add(work);
  }

  const codegen::KernelEstimate& work_of(const plan::StepT& step) {
    const auto key = key_of(step);
    if (const auto found = works_.find(key); found != works_.end()) return found->second;
    const auto& launch = *step.body.AsLaunch();
    const auto& object = *program_.code_objects[launch.code];
    const auto& kernel = disassembly_.kernel(launch.code);
    StepMemory memory(step, shape_);
    const codegen::WalkLaunch walked{
        .blocks = launch.blocks,
        .threads = static_cast<int>(launch.threads),
        .wave = target_.wave,
        .lds_bytes = static_cast<std::size_t>(std::clamp<std::int64_t>(
            std::max<std::int64_t>(launch.lds_bytes, object.lds_bytes), 0, target_.lds_bytes_per_block)),
        .entry = kernel.entry,
        .arguments = memory.arguments()};
    return works_.emplace(key, codegen::estimate_kernel(kernel.function, walked, memory)).first->second;
  }

  const plan::ProgramT& program_;
  const codegen::GpuTarget& target_;
  const plan::VariantT& variant_;
  StepShape shape_;
  Disassembly disassembly_;
  std::vector<EstimatedKernel> rows_;
  std::map<std::string, codegen::KernelEstimate> works_;
};

}  // namespace

void check_readable(const std::string& target) {
  static_cast<void>(readable_target(target));
}

std::vector<EstimatedKernel> estimate_step(const plan::ProgramT& program, const StepShape& shape) {
  return Estimator(program, shape).run();
}

EstimatedKernel sum_of(const std::vector<EstimatedKernel>& kernels, std::string name) {
  EstimatedKernel out{.kernel = std::move(name), .work = {}};
  for (const auto& row : kernels) {
    out.launches += row.launches;
    out.waves += row.waves;
    out.bytes += row.bytes;
    out.flops += row.flops;
    out.work.add(row.work);
  }
  out.work.matrix_loop.reset();
  return out;
}

}  // namespace forge::tools
