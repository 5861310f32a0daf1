#pragma once
// forge-run --tokens IDS --dump-logits FILE: logits for comparison with a reference.

#include <cstdint>
#include <filesystem>
#include <span>

#include "session/sequences.h"

namespace forge::tools {

struct DumpOptions {
  std::filesystem::path file;
  std::int64_t last = 0;  ///< number of last rows to write; 0: all
  bool decode = false;    ///< feed one token per step instead of prefilling
};

/// Writes the logits of `ids` as float32 [rows, vocab], one row per token. The file appears when it is complete.
/// Errors: kIo, kUsage for a path that cannot be written; Interrupted.
void dump_logits(session::Sequences& sequences, std::span<const std::int32_t> ids, const DumpOptions& options);

}  // namespace forge::tools
