#pragma once
// A model ready to run: file, program, executor, and the tokenizer when one is wanted.

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "runtime/executor.h"
#include "runtime/step_trace.h"
#include "runtime/weights/weight_source.h"
#include "session/device.h"
#include "session/open_model.h"
#include "session/trace_file.h"
#include "text/tokenizer/tokenizer.h"

namespace forge::session {

inline constexpr const char* kPackedWeightsFolder = "weights";  ///< in the cache
inline constexpr const char* kRepackCacheHelp = "keep packed weights in the cache; a later start maps them";

/// Milliseconds from the start of main to the end of each stage; 0: not done.
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
    std::string device = "auto";  ///< auto, cpu, hip:N, cuda:N; decides model.target
    std::int64_t threads = 0;     ///< 0: what the process may use
    bool profile = false;
    bool repack_cache = false;   ///< keep packed weights in the cache, and map what is there
    TraceFile* trace = nullptr;  ///< where trace_end puts what threads did; outlives the session
    bool tokenizer = false;      ///< open it meanwhile, on a thread of its own
  };

  /// A GPU is tested first, once for its driver and compiler (card_verdict.h).
  /// Errors: those of choose_device, require_sound_card and open_model, kMemory with the numbers when it does not fit,
  /// the executor's; kUsage for a trace or a repack cache of a GPU. With "auto" what a GPU cannot do the CPU does.
  Session(const Options& options, Stages& stages);

  [[nodiscard]] const loader::Gguf& file() const { return *model_.file; }
  [[nodiscard]] const OpenedModel& model() const { return model_; }
  [[nodiscard]] runtime::Executor& executor() { return *executor_; }
  /// Gives it away; afterwards what asks the executor must not be called.
  [[nodiscard]] std::unique_ptr<runtime::Executor> take_executor() { return std::move(executor_); }
  [[nodiscard]] const runtime::MemoryRequirements& memory_requirements() const {
    return executor_->memory_requirements();
  }
  [[nodiscard]] std::int64_t context() const { return model_.context; }
  /// Why the CPU is used; empty when it was asked for, and on a GPU.
  [[nodiscard]] const std::string& why_cpu() const { return why_cpu_; }
  /// Adds what threads did so far to Options::trace, when there is one, and records no more. Errors: kIo.
  void trace_end();
  /// Waits until it is open. Errors: those of Tokenizer::open.
  [[nodiscard]] const text::Tokenizer& tokenizer();

 private:
  void open(Options options, const DeviceChoice& device);

  Stages& stages_;
  std::string why_cpu_;
  OpenedModel model_;
  std::future<std::unique_ptr<text::Tokenizer>> opening_;  // reads model_.file
  std::unique_ptr<text::Tokenizer> tokenizer_;
  TraceFile* trace_file_ = nullptr;
  std::unique_ptr<runtime::StepTrace> trace_;  // the executor writes to it
  std::unique_ptr<runtime::Executor> executor_;
};

/// Does the file carry a vocabulary?
[[nodiscard]] bool has_tokenizer(const loader::Gguf& file);

}  // namespace forge::session
