#pragma once
// Plans whose weights are parts of larger tensors, as slices of a model that several devices share will be.

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/plan/plan_generated.h"

namespace forge::tests {

/// Bytes of a second file of the model, in which each source of the program's weights lies amid noise: rows before and
/// behind those that it takes, and blocks of columns left and right of them. The sources name that file and their part.
[[nodiscard]] std::vector<std::byte> embed_sources(plan::ProgramT& program, std::span<const std::byte> model);

}  // namespace forge::tests
