#pragma once
// The GPU targets that plans can be made for, as data (targets.def), and the occupancy that their resources allow.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/driver/status.h"

namespace forge::codegen {

/// The instruction that sums four products of signed bytes.
enum class DotKind : std::uint8_t { kNone, kSdot4, kSudot4, kDp4a };

/// The matrix instructions for F16 and BF16 with f32 sums, and for int8 (kernels/gpu/matrix_tile.h).
enum class MatrixKind : std::uint8_t { kNone, kMfmaGfx90a, kMfmaGfx942, kWmmaGfx11, kWmmaGfx12, kMma };
[[nodiscard]] constexpr bool is_wmma(MatrixKind kind) {
  return kind == MatrixKind::kWmmaGfx11 || kind == MatrixKind::kWmmaGfx12;
}

/// The encoding of 8-bit floats with three bits of mantissa (E4M3) that conversion instructions know
/// (kernels/quant/fp8.h).
enum class Fp8Kind : std::uint8_t { kNone, kOcp, kFnuz };

/// One row of targets.def. A unit is the hardware that runs a block and holds its shared memory: a compute unit, a
/// work-group processor (RDNA: two compute units) or an SM. Each has four SIMDs.
struct GpuTarget {
  std::string_view name;  ///< "gfx1100", "sm_90"
  driver::Vendor vendor;
  std::string_view api;  ///< "HIP" or "CUDA", for messages
  /// The compiler (clang) hoists the loads of a loop over tokens, so kernels with many tokens need more registers.
  bool loads_ahead;
  bool permutes;            ///< has an instruction that selects four of eight bytes (the prelude's permute)
  int attention_blocks;     ///< blocks that decode attention should have, so that all units have work
  int wave;                 ///< lanes of a wave: 32 or 64
  int registers;            ///< vector registers per lane of one SIMD, shared by all its waves
  int register_granule;     ///< allocation step of vector registers
  int scalar_registers;     ///< scalar registers of one SIMD, shared by all its waves; 0: no such limit
  int waves_per_simd;       ///< most waves of a SIMD
  int blocks_per_unit;      ///< most blocks of a unit (AMD: counts only blocks of more than one wave)
  int compute_units;        ///< compute units of one unit
  int lds_bytes_per_unit;   ///< shared memory of a unit
  int lds_bytes_per_block;  ///< most shared memory of a block, with opt-in if there is one
  int lds_granule;          ///< allocation step of shared memory, bytes
  int lds_reserved;         ///< shared memory that the system takes for each block, bytes
  DotKind dot;
  MatrixKind matrix;
  Fp8Kind fp8;
  bool copies;               ///< has asynchronous copies from global to shared memory
  bool overlaps;             ///< a kernel can start before the kernel that it depends on has ended
  int rtc_since, rtc_until;  ///< first and last hipRTC or NVRTC that supports it, 100 * major + minor; until 0: newest
  int clang_since;           ///< first LLVM release that supports it; 0: not compiled by clang (NVIDIA)
};

/// All rows, AMD's first.
[[nodiscard]] std::span<const GpuTarget> gpu_targets();

/// The row of a target by a name that users or drivers give it: "gfx942", "gfx942:sramecc+:xnack-" (features are
/// ignored), "sm_90". Null if there is none.
[[nodiscard]] const GpuTarget* find_target(std::string_view name);

/// All names, for messages: "gfx900, gfx906, ...".
[[nodiscard]] std::string target_names();

inline constexpr int kSimdsPerUnit = 4;
inline constexpr int kThreadsPerBlockMax = 1024;

/// Occupancy: waves of a kernel that a compute unit (SM) holds at once if nothing else runs there. threads: per block;
/// registers: per lane; scalar_registers: per wave (AMD); lds_bytes: per block, dynamic included. Unknown ones (-1) are
/// no limit. If a unit is two compute units, this is half of what the unit holds. 0: not even one block fits.
[[nodiscard]] int occupancy(const GpuTarget& target, int threads, int registers, int scalar_registers,
                            std::int64_t lds_bytes);

}  // namespace forge::codegen
