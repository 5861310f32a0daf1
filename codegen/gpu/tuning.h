#pragma once
// Choices made by hand, for measuring, instead of those that matmul_config and gpu_target make.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace forge::codegen {

/// Keys: waves, split (waves that share a row), lanes, rows, units, tile (tokens) of matmuls; workers, worker_tokens,
/// heads, attention_waves, team_tokens of attention. "2048x8192:rows" means matmuls of that shape alone.
using Tuning = std::map<std::string, std::int64_t, std::less<>>;

/// CompileOptions::tune: "rows=4,2048x8192:units=2". A key that nothing asks for does nothing.
/// Errors: Error(kUsage) for what is not NAME=NUMBER, numbers being 0 to 2^20.
Tuning parse_tuning(std::string_view text);

/// What of all choices is meant for kernels called `label`: those without a shape, and over them those of this one.
Tuning tuning_for(const Tuning& all, std::string_view label);

/// The choice for `key`, or the one that would be made.
std::int64_t tuned(const Tuning& tuning, std::string_view key, std::int64_t otherwise);

/// The same for what is at least one.
std::int64_t tuned_positive(const Tuning& tuning, std::string_view key, std::int64_t otherwise);

}  // namespace forge::codegen
