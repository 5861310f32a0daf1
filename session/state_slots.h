#pragma once
// How many slots of recurrent state a model gets, and how far apart its regular snapshots are.

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/plan/plan_generated.h"
#include "session/memory_limit.h"

namespace forge::session {

/// Most slots for snapshots that are chosen by memory.
inline constexpr std::int64_t kStateSnapshotsMax = 64;

/// Slots of recurrent state for `sequences` sequences: `wanted`, or one for each sequence if that is 0. If it is empty,
/// one for each, and as many for snapshots, up to `snapshots_max`, as an eighth of the memory holds that is left of
/// `limit`. 0 for a program without recurrent state. Errors: kUsage if fewer are wanted than there are sequences; kPlan
/// for sizes out of range.
[[nodiscard]] std::int64_t state_slots_for(const plan::ProgramT& program, std::int64_t kv_blocks,
                                           std::int64_t sequences, std::optional<std::int64_t> wanted,
                                           std::int64_t snapshots_max, const MemoryLimit& limit);

/// Tokens between regular snapshots: two contexts of them fill the slots of `snapshots`, at least 256; 0, none, for
/// fewer than 8 snapshots.
[[nodiscard]] std::int64_t state_interval_for(std::int64_t context, std::int64_t snapshots);

/// "recurrent state: 80 slots of 19.2 MiB, 1.5 GiB; 16 for sequences, 64 for snapshots"
[[nodiscard]] std::string state_slots_line(const plan::ProgramT& program, std::int64_t slots, std::int64_t sequences);

}  // namespace forge::session
