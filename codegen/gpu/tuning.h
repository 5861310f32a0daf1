#pragma once
// Manual tuning, for measurements: values that replace choices of matmul_config.cc and gpu_target.cc (--tune of the
// tools).

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace forge::codegen {

/// Values by key. Matmuls without matrix instructions: waves, split (waves that share a row), lanes, rows, units, tile
/// (tokens). With them: matrix (0 or 1), matrix_tokens (tokens of the smallest step that uses them), block_rows,
/// block_tokens, waves_down, waves_across, slabs, stages, k_splits, min_blocks. Attention: workers, worker_tokens,
/// heads, attention_waves, team_tokens, attention_tokens, attention_chunk, head_tiles (0 or 1: decode by matrix
/// instructions where heads share keys), short_tokens (rows that see at most so many do without). The choice of keys:
/// select_rows. Steps: beside (0: none run side by side), join_heads (0: attention of one row never makes its own
/// heads). Variants: chunk (tokens of the longest prefill step). A key "2048x8192:rows" applies to matmuls with weights
/// of that shape only, "2048x8192x512:rows" to those of them whose step makes up to 512 rows (tokens, times experts of
/// a token): the shape and the t512 of the kernel's name.
using Tuning = std::map<std::string, std::int64_t, std::less<>>;

/// Parses CompileOptions::tune: "rows=4,2048x8192:units=2".
/// Errors: Error(kUsage) for unknown keys, for shapes that are not NxN or NxNxN, and for anything that is not
/// KEY=NUMBER with a number from 0 to 2^20.
Tuning parse_tuning(std::string_view text);

/// The values that apply to a matmul of weights [rows][k] in steps that make up to `tokens` rows of results: those
/// without a shape, overridden by those for this shape, overridden by those for this shape and number.
Tuning tuning_for(const Tuning& all, std::int64_t rows, std::int64_t k, std::int64_t tokens);

/// `base` with the settings of `over`, as a text for parse_tuning. A setting of `over` removes those of `base` that
/// have its key for the same shapes or for some of them. Errors: those of parse_tuning.
std::string merged_tuning(std::string_view base, std::string_view over);

/// The value for `key`, or `fallback` if there is none. Error(kInternal) for a key that parse_tuning does not know.
std::int64_t tuned(const Tuning& tuning, std::string_view key, std::int64_t fallback);

/// The same, but at least 1.
std::int64_t tuned_positive(const Tuning& tuning, std::string_view key, std::int64_t fallback);

}  // namespace forge::codegen
