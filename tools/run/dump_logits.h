#pragma once
// forge-run --tokens IDS --dump-logits FILE: what judges and tests compare.

#include <cstdint>
#include <filesystem>
#include <span>

#include "session/sequences.h"

namespace forge::tools {

struct DumpOptions {
  std::filesystem::path file;
  std::int64_t last = 0;  ///< rows to keep, counted from the end; 0: all
  bool decode = false;    ///< one token a step
};

/// Writes logits as float32 [rows, vocab], one row a token, to a file that appears when all of it is there.
/// Errors: kIo, kUsage for a path that cannot be written; Interrupted.
void dump_logits(session::Sequences& sequences, std::span<const std::int32_t> ids, const DumpOptions& options);

}  // namespace forge::tools
