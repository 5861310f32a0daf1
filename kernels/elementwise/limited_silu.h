#pragma once

#include "kernels/elementwise/clamp.h"
#include "kernels/elementwise/silu.h"

namespace forge::elementwise {

/// SwiGLU with a limit on both factors (Step 3.5, arXiv 2602.10604): min(SiLU(gate), limit) times `up` clamped to
/// [-limit, limit].
template <class V>
FORGE_FORMULA V limited_silu(V gate, V up, V limit) {
  return min(limit, silu(gate)) * clamp(up, limit);  // min returns its second argument for NaN, so NaN passes
}

}  // namespace forge::elementwise
