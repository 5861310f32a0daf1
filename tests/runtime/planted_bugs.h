#pragma once
// Selects one of the bugs that plant_bugs.py writes into a copy of the scheduler's sources for planted_bugs_test.

#include <cstdint>

namespace forge::test {

enum class PlantedBug : std::uint8_t {
  kNone,
  kLeakOnCancel,
  kDoubleReleaseOnPreemption,
  kStarvingPriority,
  kSnapshotNotCopied,
  kStateReleasedTwice,
  kStaleSnapshotReused,
};

/// The active bug.
inline PlantedBug planted = PlantedBug::kNone;

}  // namespace forge::test
