#pragma once
// Replays a plan's CPU program. All memory is taken when it is opened: weights, arena, KV pool, step I/O, logits; a
// step allocates nothing.

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "runtime/cpu/cpu_program.h"
#include "runtime/cpu/memory_block.h"
#include "runtime/cpu/run_steps.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/thread_pool.h"
#include "runtime/weight_source.h"

namespace forge::runtime {

/// One step's input: T tokens of B sequences. Spans are read during the call only.
struct StepBatch {
  std::span<const std::int32_t> ids, positions;  ///< [T]; positions are absolute
  std::span<const std::int32_t> sequence;        ///< [T], rising: which of the B sequences
  std::span<const std::int32_t> rows;            ///< [R], tokens whose logits are wanted
  std::span<const std::int32_t> kv_length;       ///< [B], positions of each sequence after this step
  std::span<const std::int32_t> block_table;     ///< [B][table_stride], blocks of the KV pool
  std::size_t table_stride = 0;
};

struct ExecutorOptions {
  std::size_t threads = 0;     ///< 0: what the process may use
  std::int64_t kv_blocks = 0;  ///< of the pool; 0: context x batch of the plan
  bool profile = false;        ///< measure each step
};

/// Bytes of each of the executor's blocks: known before anything is loaded.
struct MemoryNeed {
  std::size_t weights = 0, arena = 0, kv = 0, io = 0;
  [[nodiscard]] std::size_t total() const { return weights + arena + kv + io; }
};

struct StepProfile {
  const CpuStep* step = nullptr;
  std::uint64_t calls = 0, nanoseconds = 0;
};

class CpuExecutor {
 public:
  /// Opens the program: takes memory, loads and repacks weights in parallel, decodes and checks every step.
  /// Errors: kPlan (broken program, or another CPU class than this machine runs), kMemory.
  CpuExecutor(std::shared_ptr<const plan::ProgramT> program, WeightSource& model, const ExecutorOptions& options);
  CpuExecutor(const CpuExecutor&) = delete;
  CpuExecutor& operator=(const CpuExecutor&) = delete;

  static MemoryNeed memory_need(const plan::ProgramT& program, std::int64_t kv_blocks);
  /// Blocks that `sequences` sequences of `context` positions fill.
  static std::int64_t blocks_for(std::int64_t context, std::int64_t sequences);

  /// Runs one step; returns logits [R, vocab], valid until the next call. Throws Error(kInternal) when the batch
  /// exceeds every variant or names tokens, positions or blocks that do not exist.
  std::span<const float> forward(const StepBatch& batch);

  [[nodiscard]] std::size_t vocab() const { return vocab_; }
  [[nodiscard]] std::size_t threads() const { return pool_.size(); }
  [[nodiscard]] std::size_t tokens_max() const;  ///< of the largest variant
  [[nodiscard]] std::size_t rows_max() const;    ///< rows of logits one step can give
  [[nodiscard]] std::int64_t kv_blocks() const { return static_cast<std::int64_t>(blocks_.kv_blocks); }
  [[nodiscard]] const plan::ProgramT& program() const { return *program_; }
  [[nodiscard]] const std::vector<CpuVariant>& variants() const { return variants_; }
  [[nodiscard]] const std::vector<StepProfile>& profile(std::size_t variant) const { return profiles_[variant]; }

 private:
  void size_io();
  void size_scratch();
  const CpuVariant& choose_variant(const StepBatch& batch) const;
  void take_inputs(const StepBatch& batch, const CpuVariant& variant);

  std::shared_ptr<const plan::ProgramT> program_;
  const cpu::Kernels& kernels_;
  std::size_t vocab_ = 0;
  ThreadPool pool_;
  MemoryBlock weights_, arena_, kv_, output_, scratch_;
  Blocks blocks_;
  StepIo io_;
  std::vector<CpuVariant> variants_;
  std::vector<std::vector<StepProfile>> profiles_;
  std::vector<std::atomic<std::uint32_t>> arrivals_;
  StepContext context_;
  bool profile_ = false;
};

}  // namespace forge::runtime
