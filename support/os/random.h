#pragma once
// An unpredictable number for temporary file names and hash seeds. Not for cryptographic keys: until the kernel's
// random generator is ready, the number is derived from the time and the process id.

#include <cstdint>

namespace forge {

[[nodiscard]] std::uint64_t random_number() noexcept;

}  // namespace forge
