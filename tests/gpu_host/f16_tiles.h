#pragma once

namespace forge::gpu_host {

/// The tiles of all vendors' matrix instructions, and their waves.
struct Instruction {
  const char* name;
  int wave;
};
inline constexpr Instruction kInstructions[] = {
    {"MfmaF16Tile", 64}, {"WmmaF16Gfx11Tile", 32}, {"WmmaF16Gfx12Tile", 32}, {"MmaF16Tile", 32}};

}  // namespace forge::gpu_host
