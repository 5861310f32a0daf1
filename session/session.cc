#include "session/session.h"

#include <fmt/format.h>

#include "runtime/cpu/packed_weights.h"
#include "runtime/plan/cache.h"
#include "runtime/program_bounds.h"
#include "runtime/program_facts.h"
#include "runtime/thread_pool.h"
#include "session/executors.h"
#include "session/memory_limit.h"
#include "session/model_file.h"
#include "session/self_test/card_verdict.h"
#include "support/error.h"
#include "support/os/atomic_file.h"
#include "support/os/console.h"
#include "support/os/interrupt.h"

namespace forge::session {
namespace {

/// True for errors after which another device may still be able to run the model.
bool is_of_device(const Error& error) {
  return error.code() == ErrorCode::kDevice || error.code() == ErrorCode::kMemory ||
         error.code() == ErrorCode::kModelUnsupported;
}

/// Options of the packed-weights cache for this model; nullopt, and a warning, if there is no cache.
std::optional<runtime::PackedWeightsOptions> packed_weights(const loader::Gguf& file) {
  const auto cache = plan::CacheOptions::from_environment();
  if (cache.directory.empty()) {
    warn("there is no cache for repacked weights; set FORGE_CACHE_DIR to a writable directory");
    return std::nullopt;
  }
  return runtime::PackedWeightsOptions{.folder = cache.directory / kPackedWeightsFolder,
                                       .bytes_max = cache.bytes_max,
                                       .model = file.identity().hex(),
                                       .stamp = file.stamp(),
                                       .note = [](const std::string& line) { warn(line); }};
}

void note_threads(std::int64_t threads) {
  const auto cores = static_cast<std::int64_t>(runtime::ThreadPool::default_threads());
  if (threads > cores)
    note(
        fmt::format("note: {} threads share {} core{}; -t {} is faster", threads, cores, cores == 1 ? "" : "s", cores));
}

}  // namespace

Session::Session(const Options& options, Stages& stages) : stages_(stages) {
  auto device = choose_device(options.device);
  if (options.trace != nullptr && device.gpu)
    throw Error(ErrorCode::kUsage, "--profile-trace works on the CPU only, and a GPU runs the model", {},
                "give --device cpu");
  if (options.repack_cache && device.gpu)
    throw Error(ErrorCode::kUsage, "--repack-cache works on the CPU only, and a GPU runs the model", {},
                "give --device cpu");
  if (const auto kv_type = dtype_of_name(options.model.kv_type.value_or("")))
    device = device_for_kv_type(std::move(device), *kv_type);
  if (device.gpu && !device.named_by_user) {
    try {
      open(options, device);
      return;
    } catch (const Error& error) {
      end_progress();
      if (!is_of_device(error)) throw;
      device = choose_cpu(printable(error.line(), 300));
    }
  }
  open(options, device);
  why_cpu_ = device.cpu_reason;
}

void Session::open(Options options, const DeviceChoice& device) {
  gpu_ = device.gpu;
  opening_ = {};  // waits for the tokenizer of a failed attempt, which reads the file that is replaced below
  if (device.gpu) require_passing_self_test(*device.driver, device.gpu->info());
  options.model.target = device.target;
  if (device.gpu) options.model.card = device.gpu->info().name;
  model_ = open_model(options.model);
  if (runtime::is_encoder(*model_.program) && !options.embeds)
    throw Error(ErrorCode::kUsage, "the model is an encoder, which generates no text", {},
                "make embeddings with it: forge-run --embed");
  // A plan's model and the parts of a split one are known only now.
  if (options.trace != nullptr) check_output_path(options.trace->path(), *model_.file);
  stages_.plan_ms = stages_.now();
  check_interrupt();
  const auto sequences = options.model.sequences;
  const auto blocks = runtime::kv_blocks_for(*model_.program, model_.context, sequences);
  const auto limit =
      device.gpu ? MemoryLimit{.bytes = device.gpu->free_bytes(), .what = "free memory of " + device.gpu->info().name}
                 : memory_available();
  const auto slots =
      state_slots_for(*model_.program, blocks, sequences, options.state_slots, options.snapshots_max, limit);
  check_memory(memory_need_of(*model_.program, blocks, slots), model_.context, sequences, limit, slots);
  if (slots > sequences) note(state_slots_line(*model_.program, slots, sequences));
  if (options.tokenizer && !opening_.valid())
    opening_ = std::async(std::launch::async, [&file = *model_.file] { return text::Tokenizer::open(file); });
  progress("loading " + model_.path.filename().native());
  FileWeightSource source(*model_.file);
  runtime::ExecutorOptions executor_options{.threads = static_cast<std::size_t>(options.threads),
                                            .kv_blocks = blocks,
                                            .state_slots = slots,
                                            .profile = options.profile};
  const auto packed = options.repack_cache ? packed_weights(*model_.file) : std::nullopt;
  if (packed) executor_options.packed = &*packed;
  if (!device.gpu) note_threads(options.threads);
  executor_ = open_executor(model_.program, source, device.gpu ? &*device.gpu : nullptr, executor_options);
  if (options.trace != nullptr) {
    trace_file_ = options.trace;
    trace_ = std::make_unique<runtime::StepTrace>(executor_->threads());
    executor_->record(trace_.get());
  }
  end_progress();
  stages_.weights_ms = stages_.now();
  check_interrupt();
}

void Session::trace_end() {
  if (trace_file_ == nullptr) return;
  executor_->record(nullptr);
  trace_file_->add(fmt::format("{}, {} threads", printable(model_.path.filename().native()), executor_->threads()),
                   *trace_, *executor_);
  trace_file_ = nullptr;
}

const text::Tokenizer& Session::tokenizer() {
  if (tokenizer_ == nullptr) {
    tokenizer_ = opening_.valid() ? opening_.get() : text::Tokenizer::open(*model_.file);
    for (const auto& warning : tokenizer_->warnings()) warn(warning);
    stages_.tokenizer_ms = stages_.now();
  }
  return *tokenizer_;
}

bool has_tokenizer(const loader::Gguf& file) {
  const auto kind = file.find<std::string_view>("tokenizer.ggml.model");
  return kind && *kind != "no_vocab" && *kind != "none";
}

}  // namespace forge::session
