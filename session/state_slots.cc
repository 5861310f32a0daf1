#include "session/state_slots.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/program_bounds.h"
#include "session/executors.h"
#include "support/error.h"
#include "support/os/console.h"

namespace forge::session {
namespace {

constexpr std::int64_t kIntervalMin = 256;
constexpr std::int64_t kSnapshotsForIntervals = 8;
constexpr std::uint64_t kShare = 8;  ///< of the memory that is left, one part is for snapshots

}  // namespace

std::int64_t state_slots_for(const plan::ProgramT& program, std::int64_t kv_blocks, std::int64_t sequences,
                             std::optional<std::int64_t> wanted, std::int64_t snapshots_max, const MemoryLimit& limit) {
  if (program.recurrent_groups.empty()) return 0;
  if (wanted && *wanted != 0) {
    if (*wanted < sequences)
      throw Error(ErrorCode::kUsage, fmt::format("{} slots of recurrent state are too few", *wanted),
                  fmt::format("each of {} sequences needs one, and each snapshot one more", sequences),
                  fmt::format("give at least {}, or 0 for no snapshots", sequences));
    return *wanted;
  }
  if (wanted) return sequences;
  const std::uint64_t need = memory_need_of(program, kv_blocks, sequences).total();
  const std::uint64_t slot = std::max<std::uint64_t>(runtime::recurrent_bytes(program, 1), 1);
  const std::uint64_t left = limit.bytes - std::min<std::uint64_t>(limit.bytes, need);
  return sequences + static_cast<std::int64_t>(
                         std::min<std::uint64_t>(left / kShare / slot, static_cast<std::uint64_t>(snapshots_max)));
}

std::int64_t state_interval_for(std::int64_t context, std::int64_t snapshots) {
  if (snapshots < kSnapshotsForIntervals) return 0;
  return std::max(kIntervalMin, (2 * context + snapshots - 1) / snapshots);
}

std::string state_slots_line(const plan::ProgramT& program, std::int64_t slots, std::int64_t sequences) {
  return fmt::format("recurrent state: {} slots of {}, {}; {} for {}, {} for snapshots", slots,
                     human_bytes(runtime::recurrent_bytes(program, 1)),
                     human_bytes(runtime::recurrent_bytes(program, slots)), sequences,
                     sequences == 1 ? "the sequence" : "sequences", slots - sequences);
}

}  // namespace forge::session
