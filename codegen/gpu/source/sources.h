#pragma once
// The device sources of kernels/, embedded in the binary when it is built.

#include <span>
#include <string>
#include <string_view>

namespace forge::codegen {

struct EmbeddedSource {
  std::string_view path;  ///< "kernels/gpu/prelude/prelude.h"
  std::string_view text;
};

/// All headers of kernels/elementwise, kernels/gpu and kernels/quant, sorted by path.
[[nodiscard]] std::span<const EmbeddedSource> embedded_sources();

/// `text` with each #include "kernels/..." replaced by the header's text, so that a compiler needs nothing else.
/// Headers come once, as #pragma once would have it, also when the first place is in a branch that this compiler does
/// not take. #line directives name the headers and `name`, so messages point at the files of the source tree. #include
/// <...> is left alone: no branch for a device has one. Errors: Error(kInternal) for a header that is not in the
/// binary.
[[nodiscard]] std::string expand_source(std::string_view text, std::string_view name = "kernel");

}  // namespace forge::codegen
