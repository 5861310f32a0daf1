#pragma once
// The version of what plan.fbs and gpu_io.h say.

#include <cstdint>

namespace forge::plan {

/// A plan of another version is refused (docs/plan-format.md: what raises it).
inline constexpr std::uint32_t kPlanVersion = 9;

}  // namespace forge::plan
