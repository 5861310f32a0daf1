#pragma once
// The CPU back-end of the runtime: loads a plan's CPU program and replays it. All memory (weights, arena, KV pool, step
// I/O, logits) is allocated when the program is opened; a forward allocates nothing.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "runtime/cpu/cpu_program.h"
#include "runtime/cpu/run_steps.h"
#include "runtime/executor.h"
#include "runtime/memory_block.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/step_trace.h"
#include "runtime/thread_pool.h"
#include "runtime/weights/weight_source.h"

namespace forge::runtime {

/// Not thread-safe: one forward at a time. It parallelises each step over its own thread pool.
class CpuExecutor final : public Executor {
 public:
  /// Opens the program: allocates memory, maps packed weights from the cache or loads and packs them in parallel, and
  /// decodes and checks every step. Errors: kPlan (invalid program, or compiled for a CPU class that this machine
  /// cannot run), kMemory.
  CpuExecutor(std::shared_ptr<const plan::ProgramT> program, WeightSource& model, const ExecutorOptions& options);
  /// Bytes that the program needs. `kv_blocks` and `state_slots` as in ExecutorOptions. Errors: kPlan for sizes out of
  /// range.
  static MemoryRequirements memory_need_of(const plan::ProgramT& program, std::int64_t kv_blocks,
                                           std::int64_t state_slots = 0);

  std::span<const float> forward(const StepBatch& batch) override;
  [[nodiscard]] std::string device_name() const override { return "CPU"; }
  [[nodiscard]] std::size_t threads() const override { return pool_.size(); }
  [[nodiscard]] std::int64_t kv_blocks() const override { return kv_blocks_; }
  [[nodiscard]] const MemoryRequirements& memory_requirements() const override { return need_; }
  [[nodiscard]] LoadReport load_report() const override { return load_; }
  [[nodiscard]] std::vector<StepProfile> profile() const override;
  [[nodiscard]] const std::vector<CpuVariant>& variants() const { return variants_; }
  void record(StepTrace* trace) override {
    trace_ = trace;
    pool_.observe(trace);
  }

 private:
  void size_io();
  void size_scratch();
  void run_measured(const CpuVariant& variant);
  void take_batch(const StepBatch& batch, const CpuVariant& variant);

  /// Profile of a step: `filled` is the sum over calls of the fraction of the variant's rows that were used.
  struct StepTime {
    std::uint64_t calls = 0, nanoseconds = 0;
    double filled = 0, kv_bytes = 0, kv_flops = 0;
  };
  void count_positions(const CpuStep& step, StepTime& time) const;

  const cpu::Kernels& kernels_;
  MemoryRequirements need_;
  LoadReport load_;
  ThreadPool pool_;
  MemoryBlock weights_, arena_, kv_, recurrent_, output_, scratch_;
  Blocks blocks_;
  StepIo io_;
  std::vector<CpuVariant> variants_;
  std::vector<std::vector<StepTime>> times_;          ///< [variant][step], for the profile
  std::vector<std::atomic<std::uint32_t>> arrivals_;  ///< StepContext::arrivals
  StepContext context_;
  std::int64_t kv_blocks_ = 0;
  bool profile_ = false;
  StepTrace* trace_ = nullptr;
};

}  // namespace forge::runtime
