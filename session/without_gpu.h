#pragma once
// For the stubs of a build without the GPU back-end, in session and in tools.

#include <string>

namespace forge::session {

/// Throws Error(kUsage): "this forge cannot <what>", built without the GPU back-end.
[[noreturn]] void refuse_without_gpu(const std::string& what);

}  // namespace forge::session
