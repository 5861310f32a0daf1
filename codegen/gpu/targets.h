#pragma once
// The GPUs that plans can be made for, as data (targets.def).

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/driver/status.h"

namespace forge::codegen {

/// The instruction that adds four products of signed bytes.
enum class DotKind : std::uint8_t { kNone, kSdot4, kSudot4, kDp4a };

/// The instructions that multiply tiles of F16 and BF16 with sums in f32, and of int8 (kernels/gpu/matrix_tile.h).
enum class MatrixKind : std::uint8_t { kNone, kMfmaGfx90a, kMfmaGfx942, kWmmaGfx11, kWmmaGfx12, kMma };

/// One row of targets.def. A unit is what a block runs on and shares LDS in: a compute unit, a work-group processor
/// (RDNA: two compute units), an SM. It has four SIMDs, whoever made it.
struct GpuTarget {
  std::string_view name;
  driver::Vendor vendor;
  std::string_view api;  ///< "HIP", "CUDA": for people
  /// Its compiler (clang) loads what a loop multiplies ahead, for all of its tokens, and so holds more in registers.
  bool loads_ahead;
  bool permutes;         ///< it chooses four of eight bytes by one instruction (the prelude's permute)
  int attention_blocks;  ///< that decode attention wants, so that all units have work
  int wave;              ///< lanes: 32 or 64
  int registers;         ///< vector registers a lane of one SIMD, for all its waves
  int register_granule;  ///< registers are given to a wave in steps of this
  int scalar_registers;  ///< of one SIMD, for all its waves; 0: no limit beyond the wave's own
  int waves_per_simd;    ///< at most
  int blocks_per_unit;   ///< of more than one wave (AMD), of any size (NVIDIA); at most
  int compute_units;     ///< of one unit
  int lds_bytes_per_unit;
  int lds_bytes_per_block;  ///< at most, with opt-in where there is one
  int lds_granule;          ///< LDS is given to a block in steps of this
  int lds_reserved;         ///< bytes that each block costs besides its own
  DotKind dot;
  MatrixKind matrix;
  bool copies;               ///< from memory to LDS behind a lane's back
  bool overlaps;             ///< a kernel can begin before the one that it waits for has ended
  int rtc_since, rtc_until;  ///< first and last hipRTC or NVRTC that knows it, 100 * major + minor; until 0: the newest
  int clang_since;           ///< first LLVM release; 0: not clang's (NVIDIA)
};

/// All rows, AMD's first.
[[nodiscard]] std::span<const GpuTarget> gpu_targets();

/// The row of a target as users and drivers name it: "gfx942", "gfx942:sramecc+:xnack-", "sm_90". Null for any other.
[[nodiscard]] const GpuTarget* find_target(std::string_view name);

/// "gfx900, gfx906, ...": for messages.
[[nodiscard]] std::string target_names();

inline constexpr int kSimdsPerUnit = 4;
inline constexpr int kThreadsPerBlockMax = 1024;

/// Waves that a compute unit (SM) holds at once when nothing else runs there, of a kernel with `threads` a block,
/// `registers` a lane, `scalar_registers` (AMD) a wave and `lds_bytes` a block, dynamic included; unknown ones (-1)
/// limit nothing. Where a unit is two compute units, half of what it holds. 0: not even one block fits.
[[nodiscard]] int occupancy(const GpuTarget& target, int threads, int registers, int scalar_registers,
                            std::int64_t lds_bytes);

}  // namespace forge::codegen
