#pragma once
// Replays a plan's GPU program. All memory is taken when it is opened (gpu_memory.h), each variant is recorded as two
// graphs, `forward` and `sample`, and a step is a graph launch or two. The host waits asleep.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/gpu/step_io.h"
#include "runtime/driver/driver.h"
#include "runtime/executor.h"
#include "runtime/gpu/gpu_memory.h"
#include "runtime/gpu/gpu_program.h"
#include "runtime/gpu/step_timer.h"
#include "runtime/weights/weight_source.h"

namespace forge::runtime {

class GpuExecutor final : public Executor, private DecodeLoop {
 public:
  static constexpr std::size_t kInFlightMin = 2, kInFlightMax = 4;  ///< steps, by how long they take
  static_assert(kInFlightMax <= gpu::kSampledRing);

  /// Opens the program: loads its kernels, takes memory, brings the weights in, records the graphs.
  /// Errors: kPlan (broken program, or for another target than the device's), kMemory with the numbers before anything
  /// is loaded, kIo, kDevice.
  GpuExecutor(std::shared_ptr<const plan::ProgramT> program, const WeightSource& model, const driver::Device& device,
              const ExecutorOptions& options);
  ~GpuExecutor() override;

  std::span<const float> forward(const StepBatch& batch) override;
  [[nodiscard]] std::uint64_t device_allocations() const override { return device_.allocations().total; }
  [[nodiscard]] DecodeLoop* decode_loop() override { return facts().samples && sequences_max_ > 0 ? this : nullptr; }

  [[nodiscard]] std::string device_name() const override { return device_.info().name; }
  [[nodiscard]] std::size_t threads() const override { return threads_; }
  [[nodiscard]] std::int64_t kv_blocks() const override { return static_cast<std::int64_t>(memory_.kv_blocks); }
  [[nodiscard]] const MemoryNeed& memory_need() const override { return memory_.need; }
  [[nodiscard]] LoadReport load_report() const override { return load_; }
  [[nodiscard]] std::vector<StepProfile> profile() const override;
  [[nodiscard]] double memory_bandwidth() const override;

 private:
  using Clock = std::chrono::steady_clock;
  /// A variant's work, recorded.
  struct Graphs {
    std::optional<driver::GraphExec> forward, sample;
  };
  /// The decode loop that runs; nothing of it counts while `variant` is null.
  struct Loop {
    const GpuVariant* variant = nullptr;
    std::size_t sequences = 0;
    std::uint64_t submitted = 0, taken = 0;
    std::uint64_t steps_max = 0;
    Clock::duration nap = {};        ///< that steps in flight are slept for
    Clock::duration step_time = {};  ///< what a step takes; zero: not known yet
    Clock::time_point taken_at = {};
  };

  [[nodiscard]] std::size_t sequences_max() const override { return sequences_max_; }
  [[nodiscard]] bool can_sample(const SamplerParams& params) const override;
  ChosenTokens forward_and_choose(const StepBatch& batch, std::span<const Sampler* const> samplers) override;
  [[nodiscard]] std::size_t in_flight_max() const override;
  void start(const DecodeStart& start) override;
  void submit() override;
  [[nodiscard]] std::size_t in_flight() const override { return loop_.submitted - loop_.taken; }
  std::span<const std::int32_t> take() override;
  void stop() override;

  void take_memory();
  void decode_variants();
  void record_graphs();
  [[nodiscard]] StepInputs mirror_of(const GpuVariant& variant) const;
  template <class T>
  [[nodiscard]] T* mirror(std::size_t offset) const {
    return reinterpret_cast<T*>(mirror_.data() + offset);
  }
  void write_inputs(const GpuVariant& variant, const StepBatch& batch);
  void upload_inputs(const GpuVariant& variant, std::size_t sequences);
  void write_sampling(const GpuVariant& variant, std::span<const Sampler* const> samplers);
  void copy_blocks(std::span<const BlockCopy> copies);
  void launch_forward(const GpuVariant& variant);
  void launch_sample(const GpuVariant& variant);
  [[nodiscard]] std::int32_t checked_token(std::int32_t token) const;
  void download_logits(std::size_t first, std::size_t rows);
  void begin_step(const GpuVariant& variant, const StepBatch& batch);
  void wait_for_idle();
  [[nodiscard]] std::span<std::int32_t> tokens_of(std::uint64_t step) const;
  [[nodiscard]] bool is_done(std::uint64_t step) const;
  void wait_for_step(std::uint64_t step);
  void count_taken();
  [[nodiscard]] std::size_t index_of(const GpuVariant& variant) const {
    return static_cast<std::size_t>(&variant - variants_.data());
  }

  // In the order of their lives: work on the stream uses what is above it.
  driver::Device device_;
  GpuMemory memory_;
  std::size_t threads_ = 0;
  std::optional<GpuKernels> kernels_;
  driver::Buffer weights_, arena_, kv_, staging_, io_;
  driver::PinnedBuffer mirror_;   ///< of the step I/O block; while weights are loaded, the staging ring
  driver::PinnedBuffer sampled_;  ///< i32 [kSampledRing][rows of the variant]
  std::vector<GpuVariant> variants_;
  std::optional<StepTimer> timer_;  ///< while profiling; graphs are not used then
  driver::Stream stream_;
  driver::Event idle_;  ///< behind the last work that is not a loop's step, or behind a step that is timed
  std::vector<Graphs> graphs_;
  std::size_t sequences_max_ = 0;
  LoadReport load_;
  Loop loop_;
  std::vector<std::int32_t> loop_rows_;   ///< 0, 1, ...
  std::vector<std::int32_t> loop_reach_;  ///< scratch of start
  std::vector<std::int32_t> chosen_;      ///< of forward_and_choose
};

}  // namespace forge::runtime
