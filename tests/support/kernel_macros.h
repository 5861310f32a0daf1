#pragma once
// Target macros for kernel sources that tests write by hand. Such sources depend only on the target's wave size.

#include <string>

namespace forge::tests {

/// Macros of a target like gfx1100 (wave 32) or gfx90a (wave 64), with 8-bit floats. For real targets kernel_text.h's
/// target_macros writes them.
inline std::string kernel_macros(int wave) {
  return "#define FORGE_WAVE " + std::to_string(wave) +
         "\n#define FORGE_DOT FORGE_DOT_SDOT4\n#define FORGE_MATRIX FORGE_MATRIX_" +
         (wave == 32 ? "WMMA_GFX11\n#define FORGE_FP8 FORGE_FP8_OCP"
                     : "MFMA_GFX90A\n#define FORGE_FP8 FORGE_FP8_FNUZ") +
         "\n#define FORGE_COPIES 0\n#define FORGE_OVERLAPS 0\n";
}

}  // namespace forge::tests
