#pragma once
// Bugs of the scheduler that planted_bugs_test is built with: plant_bugs.py writes each into a copy of the source.

#include <cstdint>

namespace forge::test {

enum class PlantedBug : std::uint8_t { kNone, kLeakOnCancel, kDoubleReleaseOnPreemption, kStarvingPriority };

/// The one that is active now.
inline PlantedBug planted = PlantedBug::kNone;

}  // namespace forge::test
