#pragma once
// A model that is ready to run: device, model file, program, executor with loaded weights, and optionally the
// tokenizer. The common start of forge-run, forge-serve and forge-bench.

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "runtime/executor.h"
#include "runtime/step_trace.h"
#include "runtime/weights/weight_source.h"
#include "session/device.h"
#include "session/open_model.h"
#include "session/state_slots.h"
#include "session/trace_file.h"
#include "text/tokenizer/tokenizer.h"

namespace forge::session {

inline constexpr const char* kPackedWeightsFolder = "weights";  ///< folder in the cache
inline constexpr const char* kRepackCacheHelp =
    "keep repacked weights in the cache, so that later starts map them instead of repacking";

/// Milliseconds from the start of main to the end of each stage; 0 if the stage has not ended.
struct Stages {
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  double plan_ms = 0, weights_ms = 0, tokenizer_ms = 0, first_token_ms = 0;
  [[nodiscard]] double now() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }
};

class Session {
 public:
  struct Options {
    ModelChoice model;
    std::string device = "auto";  ///< auto, cpu, hip:N, cuda:N; sets model.target and model.card
    std::int64_t threads = 0;     ///< CPU threads; 0: as many as the process may use
    bool profile = false;         ///< time each step
    bool repack_cache = false;    ///< store repacked weights in the cache and map them if they are there
    TraceFile* trace = nullptr;   ///< receives the trace in trace_end; must outlive the session
    bool embeds = false;          ///< the caller makes embeddings; otherwise an encoder is refused
    /// Slots of recurrent state; empty: chosen by the free memory; 0: one for each sequence, and none for snapshots.
    std::optional<std::int64_t> state_slots = 0;
    std::int64_t snapshots_max = kStateSnapshotsMax;  ///< most slots for snapshots that are chosen by memory
    bool tokenizer = false;                           ///< open the tokenizer on another thread while weights are loaded
  };

  /// Chooses the device, opens the model and loads its weights. A GPU is self-tested before its first use with this
  /// driver and compiler (card_verdict.h). With "auto", an error of the GPU makes the CPU run the model.
  /// Errors: those of choose_device, require_passing_self_test and open_model, the executor's; kMemory when the model
  /// does not fit; kUsage for a trace or a repack cache on a GPU, a trace over a file of the model, and an encoder
  /// without `embeds`.
  Session(const Options& options, Stages& stages);

  [[nodiscard]] const loader::Gguf& file() const { return *model_.file; }
  [[nodiscard]] const OpenedModel& model() const { return model_; }
  [[nodiscard]] runtime::Executor& executor() { return *executor_; }
  /// The GPU that runs the model; empty on the CPU.
  [[nodiscard]] const std::optional<driver::Device>& gpu() const { return gpu_; }
  /// Transfers the executor to the caller. Afterwards executor(), memory_requirements() and trace_end() must not be
  /// called.
  [[nodiscard]] std::unique_ptr<runtime::Executor> take_executor() { return std::move(executor_); }
  [[nodiscard]] const runtime::MemoryRequirements& memory_requirements() const {
    return executor_->memory_requirements();
  }
  [[nodiscard]] std::int64_t context() const { return model_.context; }
  /// Why "auto" chose the CPU, one line; empty on a GPU and with --device cpu.
  [[nodiscard]] const std::string& cpu_reason() const { return why_cpu_; }
  /// Stops recording and writes the recorded steps to Options::trace; does nothing without one. Errors: kIo.
  void trace_end();
  /// The tokenizer; waits until it is open. Errors: those of Tokenizer::open.
  [[nodiscard]] const text::Tokenizer& tokenizer();

 private:
  void open(Options options, const DeviceChoice& device);

  Stages& stages_;
  std::string why_cpu_;
  std::optional<driver::Device> gpu_;
  OpenedModel model_;
  std::future<std::unique_ptr<text::Tokenizer>> opening_;  // reads model_.file
  std::unique_ptr<text::Tokenizer> tokenizer_;
  TraceFile* trace_file_ = nullptr;
  std::unique_ptr<runtime::StepTrace> trace_;  // the executor writes to it
  std::unique_ptr<runtime::Executor> executor_;
};

/// True if the file has a vocabulary.
[[nodiscard]] bool has_tokenizer(const loader::Gguf& file);

}  // namespace forge::session
