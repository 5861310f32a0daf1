#pragma once
// A number that nobody can foresee, for names and hashes. No key: where the kernel has none yet, time and process do.

#include <cstdint>

namespace forge {

[[nodiscard]] std::uint64_t random_number() noexcept;

}  // namespace forge
