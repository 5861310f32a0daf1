#pragma once
// The device sources of kernels/, which embed_sources.py embeds in the binary when forge is built, so that kernels can
// be compiled on machines without forge's source tree.

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

/// Replaces each #include "kernels/..." in `text` by the header's text, so that a compiler needs no include path. Each
/// header is used once, like with #pragma once, even if its first include is in a preprocessor branch that is not
/// taken. #line directives refer to the headers and to `name`, so compiler messages point into the source tree.
/// #include <...> is kept; only the host's branches have any. Errors: kInternal for a header that is not in the binary.
[[nodiscard]] std::string expand_source(std::string_view text, std::string_view name = "kernel");

}  // namespace forge::codegen
