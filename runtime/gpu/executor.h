#pragma once
// Executor for GPU programs (HIP and CUDA through runtime/driver). All memory is allocated when the program is opened
// (gpu_memory.h). Each variant is captured as graphs: `forward`, `sample`, and `step`, which is both. So a step is one
// graph launch, or two if masks are uploaded while its forward pass runs:
//
//   write inputs to pinned memory -> upload (1 copy) -> graph step -> tokens in pinned memory
//                                                             \-> download logits, if the host samples
//   with masks:                      upload (1 copy) -> graph forward -> graph sample -> tokens in pinned memory
//                                                         masks ---^
//
// The host sleeps while it waits.

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

/// See the head of this file; the public interface is Executor's and DecodeLoop's.
class GpuExecutor final : public Executor, private DecodeLoop {
 public:
  static constexpr std::size_t kInFlightMin = 2, kInFlightMax = 4;  ///< steps in flight: more if they are short
  static_assert(kInFlightMax <= gpu::kSampledRing);

  /// Opens the program: loads kernels, allocates memory, uploads weights, captures graphs. Errors: kPlan if the program
  /// is invalid or for another target, kMemory (before anything is loaded) if it does not fit, kIo, kDevice.
  GpuExecutor(std::shared_ptr<const plan::ProgramT> program, const WeightSource& model, const driver::Device& device,
              const ExecutorOptions& options);
  ~GpuExecutor() override;

  std::span<const float> forward(const StepBatch& batch) override;
  [[nodiscard]] std::uint64_t device_allocations() const override { return device_.allocations().total; }
  [[nodiscard]] DecodeLoop* decode_loop() override { return facts().samples && sequences_max_ > 0 ? this : nullptr; }

  [[nodiscard]] std::string device_name() const override { return device_.info().name; }
  [[nodiscard]] std::size_t threads() const override { return threads_; }
  [[nodiscard]] std::int64_t kv_blocks() const override { return static_cast<std::int64_t>(memory_.kv_blocks); }
  [[nodiscard]] const MemoryRequirements& memory_requirements() const override { return memory_.need; }
  [[nodiscard]] LoadReport load_report() const override { return load_; }
  [[nodiscard]] std::vector<StepProfile> profile() const override;
  [[nodiscard]] double memory_bandwidth() const override;

 private:
  using Clock = std::chrono::steady_clock;
  /// The captured graphs of one variant. One that does not sample has only `forward`.
  struct Graphs {
    std::optional<driver::GraphExec> forward, sample, step;
  };
  /// State of the running decode loop; `variant` is null if none runs.
  struct Loop {
    const GpuVariant* variant = nullptr;
    std::size_t sequences = 0;
    // Steps enqueued and steps whose tokens were taken.
    std::uint64_t submitted = 0, taken = 0;
    bool masked = false;     ///< some row has masks: sample() enqueues the sampling of each step
    bool unsampled = false;  ///< the step submitted last waits for it
    std::uint64_t steps_max = 0;
    Clock::duration sleep_time = {};  ///< how long to sleep before polling for a step
    Clock::duration step_time = {};   ///< moving average of a step's time; zero: unknown
    // When the last tokens were taken.
    Clock::time_point taken_at = {};
  };

  [[nodiscard]] std::size_t sequences_max() const override { return sequences_max_; }
  [[nodiscard]] bool can_sample(const SamplerParams& params) const override;
  SampledTokens forward_and_sample(const StepBatch& batch, std::span<const Sampler* const> samplers,
                                   RowMasks* masks) override;
  [[nodiscard]] std::size_t in_flight_max() const override;
  void start(const DecodeStart& start) override;
  void submit() override;
  void sample(RowMasks& masks) override;
  [[nodiscard]] std::size_t in_flight() const override { return loop_.submitted - loop_.taken; }
  std::span<const std::int32_t> take() override;
  void stop() override;

  void allocate_memory();
  void decode_variants();
  void record_graphs();
  [[nodiscard]] StepInputs mirror_of(const GpuVariant& variant) const;
  template <class T>
  [[nodiscard]] T* mirror(std::size_t offset) const {
    return reinterpret_cast<T*>(mirror_.data() + offset);
  }
  void write_inputs(const GpuVariant& variant, const StepBatch& batch);
  void upload_inputs(const GpuVariant& variant, std::size_t sequences);
  void write_sampling(const GpuVariant& variant, std::span<const Sampler* const> samplers, const RowMasks* masks,
                      std::uint64_t draws = 0);
  void upload_masks(std::size_t rows, RowMasks& masks);
  void copy_blocks(std::span<const BlockCopy> copies);
  void launch_forward(const GpuVariant& variant);
  void launch_sample(const GpuVariant& variant);
  void launch_step(const GpuVariant& variant);
  [[nodiscard]] std::int32_t checked_token(std::int32_t token) const;
  void download_rows(std::size_t first, std::size_t rows, std::size_t width);
  void upload_step(const GpuVariant& variant, const StepBatch& batch);
  void wait_for_idle();
  [[nodiscard]] std::span<std::int32_t> tokens_of(std::uint64_t step) const;
  [[nodiscard]] bool is_done(std::uint64_t step) const;
  void wait_for_step(std::uint64_t step);
  void count_taken();
  [[nodiscard]] std::size_t index_of(const GpuVariant& variant) const {
    return static_cast<std::size_t>(&variant - variants_.data());
  }

  // Declared in order of dependence: members are destroyed from the bottom up, and work on the stream uses what is
  // above it.
  driver::Device device_;
  GpuMemory memory_;
  std::size_t threads_ = 0;
  std::optional<GpuKernels> kernels_;
  driver::Buffer weights_, arena_, kv_, staging_, io_;
  driver::Buffer recurrent_;      ///< empty if the program has no recurrent state
  driver::PinnedBuffer mirror_;   ///< pinned copy of the step I/O block; staging ring while weights are loaded
  driver::PinnedBuffer sampled_;  ///< i32 [kSampledRing][rows], written by the device
  std::vector<GpuVariant> variants_;
  std::optional<StepTimer> timer_;  ///< only while profiling; graphs are not used then
  driver::Stream stream_;
  driver::Event idle_;          ///< recorded after work that wait_for_idle or stop waits for
  driver::Stream mask_stream_;  ///< uploads of masks, beside a step's forward pass
  driver::Event masks_ready_;   ///< the last of them
  std::vector<Graphs> graphs_;
  std::size_t sequences_max_ = 0;
  LoadReport load_;
  Loop loop_;
  std::vector<std::int32_t> loop_rows_;   ///< 0, 1, 2, ...: `sequence` and `rows` of every decode step
  std::vector<std::int32_t> loop_reach_;  ///< scratch of start()
  std::vector<std::int32_t> chosen_;      ///< result of forward_and_sample()
};

}  // namespace forge::runtime
