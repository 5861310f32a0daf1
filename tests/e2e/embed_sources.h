#pragma once
// Plans whose weights are slices of larger tensors, like the shards of a model that is split over several devices.

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/plan/plan_generated.h"

namespace forge::tests {

/// Returns the bytes of a second file of the model. It holds every weight source of the program as the inner part of a
/// larger tensor: random rows before and after it, random blocks of columns left and right of it. The program's sources
/// are changed to name file 1 and that part.
[[nodiscard]] std::vector<std::byte> embed_sources(plan::ProgramT& program, std::span<const std::byte> model);

}  // namespace forge::tests
