#pragma once
// The version of the plan format, i.e. of plan.fbs and gpu_io.h.

#include <cstdint>

namespace forge::plan {

/// Plans of other versions are refused. docs/plan-format.md lists the changes that raise it.
inline constexpr std::uint32_t kPlanVersion = 14;

}  // namespace forge::plan
