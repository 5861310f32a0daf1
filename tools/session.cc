#include "tools/session.h"

#include "runtime/cpu/executor.h"
#include "runtime/program_bounds.h"
#include "support/error.h"
#include "tools/console.h"
#include "tools/entry.h"
#include "tools/memory_limit.h"
#include "tools/model_file.h"

namespace forge::tools {

Session::Session(const Options& options, Stages& stages) : stages_(stages), model_(open_model(options.model)) {
  stages_.plan_ms = stages_.now();
  check_interrupt();
  const auto sequences = options.model.sequences;
  const auto blocks = runtime::kv_blocks_for(*model_.program, model_.context, sequences);
  check_memory(runtime::CpuExecutor::memory_need_of(*model_.program, blocks), model_.context, sequences,
               memory_available());
  if (options.tokenizer)
    opening_ = std::async(std::launch::async, [&file = *model_.file] { return loader::Tokenizer::open(file); });
  progress("loading " + model_.path.filename().native());
  auto source = weight_source(*model_.file, model_.path);
  executor_ = std::make_unique<runtime::CpuExecutor>(
      model_.program, source,
      runtime::ExecutorOptions{
          .threads = static_cast<std::size_t>(options.threads), .kv_blocks = blocks, .profile = options.profile});
  end_progress();
  stages_.weights_ms = stages_.now();
  check_interrupt();
}

const loader::Tokenizer& Session::tokenizer() {
  if (tokenizer_ == nullptr) {
    tokenizer_ = opening_.valid() ? opening_.get() : loader::Tokenizer::open(*model_.file);
    for (const auto& warning : tokenizer_->warnings()) warn(warning);
    stages_.tokenizer_ms = stages_.now();
  }
  return *tokenizer_;
}

bool has_tokenizer(const loader::Gguf& file) {
  const auto kind = file.find<std::string_view>("tokenizer.ggml.model");
  return kind && *kind != "no_vocab" && *kind != "none";
}

}  // namespace forge::tools
