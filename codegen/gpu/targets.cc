#include "codegen/gpu/targets.h"

#include <algorithm>
#include <array>

namespace forge::codegen {
namespace {

using driver::Vendor;

constexpr int kKiB = 1024;
/// Barriers of a compute unit: a block of more than one wave needs one, so they limit the number of such blocks.
constexpr int kBarriersPerComputeUnit = 16;
/// Per lane of an SM's partition: 16,384 registers for 32 lanes, allocated to a warp in steps of 256.
constexpr int kNvidiaRegisters = 512, kNvidiaGranule = 8, kNvidiaSharedGranule = 128;
constexpr int kScalarGranule = 16;

constexpr auto kTargets = std::to_array<GpuTarget>({
#define FORGE_AMD(name, wave, registers, granule, scalars, waves, cus, lds_unit, lds_block, lds_granule, dot, matrix, \
                  fp8, hiprtc, clang)                                                                                 \
  {#name,                                                                                                             \
   Vendor::kAmd,                                                                                                      \
   "HIP",                                                                                                             \
   true,                                                                                                              \
   true,                                                                                                              \
   256,                                                                                                               \
   wave,                                                                                                              \
   registers,                                                                                                         \
   granule,                                                                                                           \
   scalars,                                                                                                           \
   waves,                                                                                                             \
   kBarriersPerComputeUnit * (cus),                                                                                   \
   cus,                                                                                                               \
   (lds_unit) * kKiB,                                                                                                 \
   (lds_block) * kKiB,                                                                                                \
   lds_granule,                                                                                                       \
   0,                                                                                                                 \
   DotKind::dot,                                                                                                      \
   MatrixKind::matrix,                                                                                                \
   Fp8Kind::fp8,                                                                                                      \
   false,                                                                                                             \
   false,                                                                                                             \
   hiprtc,                                                                                                            \
   0,                                                                                                                 \
   clang},
#define FORGE_NVIDIA(name, waves, blocks, lds_unit, lds_block, reserved, matrix, fp8, copies, overlaps, since, until) \
  {#name,                                                                                                             \
   Vendor::kNvidia,                                                                                                   \
   "CUDA",                                                                                                            \
   false,                                                                                                             \
   false,                                                                                                             \
   384,                                                                                                               \
   32,                                                                                                                \
   kNvidiaRegisters,                                                                                                  \
   kNvidiaGranule,                                                                                                    \
   0,                                                                                                                 \
   waves,                                                                                                             \
   blocks,                                                                                                            \
   1,                                                                                                                 \
   (lds_unit) * kKiB,                                                                                                 \
   (lds_block) * kKiB,                                                                                                \
   kNvidiaSharedGranule,                                                                                              \
   reserved,                                                                                                          \
   DotKind::kDp4a,                                                                                                    \
   MatrixKind::matrix,                                                                                                \
   Fp8Kind::fp8,                                                                                                      \
   copies,                                                                                                            \
   overlaps,                                                                                                          \
   since,                                                                                                             \
   until,                                                                                                             \
   0},
#include "codegen/gpu/targets.def"
#undef FORGE_AMD
#undef FORGE_NVIDIA
});

std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace

std::span<const GpuTarget> gpu_targets() {
  return kTargets;
}

const GpuTarget* find_target(std::string_view name) {
  name = name.substr(0, name.find(':'));
  const auto found = std::ranges::find(kTargets, name, &GpuTarget::name);
  return found == kTargets.end() ? nullptr : &*found;
}

std::string target_names() {
  std::string names;
  for (const GpuTarget& target : kTargets) names.append(names.empty() ? "" : ", ").append(target.name);
  return names;
}

// The smallest of three limits: waves by registers of a SIMD, blocks by barriers (or block slots), blocks by shared
// memory.
int occupancy(const GpuTarget& target, int threads, int registers, int scalar_registers, std::int64_t lds_bytes) {
  if (threads <= 0 || threads > kThreadsPerBlockMax || lds_bytes > target.lds_bytes_per_block) return 0;
  const int waves_per_block = (threads + target.wave - 1) / target.wave;

  std::int64_t waves_per_simd = target.waves_per_simd;
  if (registers > 0)
    waves_per_simd = std::min(waves_per_simd, target.registers / round_up(registers, target.register_granule));
  if (scalar_registers > 0 && target.scalar_registers > 0)
    waves_per_simd = std::min(waves_per_simd, target.scalar_registers / round_up(scalar_registers, kScalarGranule));

  std::int64_t blocks = waves_per_simd * kSimdsPerUnit / waves_per_block;
  if (target.vendor == Vendor::kNvidia || waves_per_block > 1)
    blocks = std::min<std::int64_t>(blocks, target.blocks_per_unit);
  const std::int64_t lds = round_up(std::max<std::int64_t>(lds_bytes, 0), target.lds_granule) + target.lds_reserved;
  if (lds > 0) blocks = std::min(blocks, target.lds_bytes_per_unit / lds);
  return static_cast<int>(blocks * waves_per_block / target.compute_units);
}

}  // namespace forge::codegen
