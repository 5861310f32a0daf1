#pragma once
// What sources of kernels that tests write by hand say of a target, where they know no more of it than its wave.

#include <string>

namespace forge::tests {

/// Of a target like gfx1100 (32) or gfx90a (64); kernel_text.h's target_macros writes a row's.
inline std::string kernel_macros(int wave) {
  return "#define FORGE_WAVE " + std::to_string(wave) +
         "\n#define FORGE_DOT FORGE_DOT_SDOT4\n#define FORGE_MATRIX FORGE_MATRIX_" +
         (wave == 32 ? "WMMA_GFX11" : "MFMA_GFX90A") + "\n#define FORGE_COPIES 0\n#define FORGE_OVERLAPS 0\n";
}

}  // namespace forge::tests
