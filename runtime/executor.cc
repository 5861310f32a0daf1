#include "runtime/executor.h"

#include "runtime/program_bounds.h"

namespace forge::runtime {

Executor::Executor(std::shared_ptr<const plan::ProgramT> program)
    : program_(std::move(program)),
      vocab_(checked_bytes(program_->vocab, "vocabulary")),
      kv_block_tokens_(runtime::kv_block_tokens(*program_)) {
  const auto bounds = bounds_of(*program_);
  tokens_max_ = bounds.tokens;
  rows_max_ = bounds.rows;
}

}  // namespace forge::runtime
