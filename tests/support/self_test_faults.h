#pragma once
// Faults that a card's self-test must find: wrong versions of device primitives, inserted into a kernel's source after
// its prelude. The same text is compiled for the host and for a card. They prove that the self-test notices miscompiled
// kernels.

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/kernel_compiler.h"

namespace forge::tests {

struct PlantedFault {
  std::string_view kernel;  ///< kernel of the self-test, e.g. "lanes"
  std::string_view found;   ///< name of the result that must fail
  std::string_view text;    ///< device source that is inserted after the prelude
};

/// A miscompiled wave sum: the last exchange of 32 lanes was moved under `if (lane_id() == 0)`, so lane 0 counts its
/// own 16 lanes twice.
inline constexpr std::string_view kSumOfHalfTheLanes = R"(
namespace forge::gpu {
template <int Lanes, class T>
FORGE_DEVICE T faulty_sum_lanes(T value FORGE_SITE) {
  const T right = sum_lanes<Lanes>(value FORGE_AT), row = sum_lanes<(Lanes < 16 ? Lanes : 16)>(value FORGE_AT);
  return Lanes > 16 && lane_id() == 0 ? row + row : right;
}
}
#define sum_lanes faulty_sum_lanes
)";

inline constexpr PlantedFault kPlantedFaults[] = {
    {"lanes", "sum of squares kept by lane 0", kSumOfHalfTheLanes},
    {"lanes", "shuffle_xor<16> kept by lane 0", R"(
namespace forge::gpu {
template <int Mask, class T>
FORGE_DEVICE T faulty_shuffle_xor(T value FORGE_SITE) {
  const T other = shuffle_xor<Mask>(value FORGE_AT);
  return Mask == 16 && lane_id() == 0 ? value : other;
}
}
#define shuffle_xor faulty_shuffle_xor
)"},
    {"lanes", "shuffle", R"(
namespace forge::gpu {
template <class T>
FORGE_DEVICE T faulty_shuffle(T value, int source FORGE_SITE) {
  return shuffle(value, (source + 1) % kWave FORGE_AT);
}
}
#define shuffle faulty_shuffle
)"},
    {"lanes", "max_lanes<8>", R"(
namespace forge::gpu {
template <int Lanes, class T>
FORGE_DEVICE T faulty_max_lanes(T value FORGE_SITE) {
  const T most = max_lanes<Lanes>(value FORGE_AT);
  return Lanes == 8 && lane_id() == kWave - 1 ? value : most;
}
}
#define max_lanes faulty_max_lanes
)"},
    {"lanes", "uniform", R"(
namespace forge::gpu {
FORGE_DEVICE int faulty_uniform(int value FORGE_SITE) { return uniform(value FORGE_AT) + 1; }
}
#define uniform faulty_uniform
)"},
    {"numbers", "dot4", R"(
namespace forge::gpu {
FORGE_DEVICE i32 faulty_dot4(u32 a, u32 b, i32 c) { return dot4(a & 0x7fffffffu, b, c); }
}
#define dot4 faulty_dot4
)"},
    {"numbers", "lookup4", R"(
namespace forge::gpu {
FORGE_DEVICE u32 faulty_lookup4(u32 codes, const U32x4& table) { return lookup4(codes ^ 0x08000000u, table); }
}
#define lookup4 faulty_lookup4
)"},
    {"numbers", "f16_of_f32", R"(
namespace forge::gpu {
FORGE_DEVICE u16 faulty_f16(float value) {
  const u16 half = f16_of_f32(value);
  return abs_of(f32_of_f16(half)) > abs_of(value) ? static_cast<u16>(half - 1) : half;  // towards zero
}
}
#define f16_of_f32 faulty_f16
)"},
    {"numbers", "f32_of_f16", R"(
namespace forge::gpu {
FORGE_DEVICE float faulty_f32(u16 half) { return (half & 0x7c00) == 0 ? 0.0f : f32_of_f16(half); }
}
#define f32_of_f16 faulty_f32
)"},
    {"numbers", "bf16_pair", R"(
namespace forge::gpu {
FORGE_DEVICE u32 faulty_bf16_pair(float low, float high) {
  return __builtin_bit_cast(u32, low) >> 16 | (__builtin_bit_cast(u32, high) & 0xffff0000u);
}
}
#define bf16_pair faulty_bf16_pair
)"},
    {"numbers", "exp2_of", R"(
namespace forge::gpu {
FORGE_DEVICE float faulty_exp2(float value) { return exp2_of(value) * 1.00001f; }
}
#define exp2_of faulty_exp2
)"},
    {"numbers", "fma_of", R"(
namespace forge::gpu {
FORGE_DEVICE float faulty_fma(float a, float b, float c) { return a * b + c; }
}
#define fma_of faulty_fma
)"},
    {"numbers", "round_of", R"(
namespace forge::gpu {
FORGE_DEVICE float faulty_round(float value) { return round_of(value + 0x1p-12f); }
}
#define round_of faulty_round
)"},
    {"memory", "load16_once", R"(
namespace forge::gpu {
FORGE_DEVICE U32x4 faulty_load16_once(const void* from) {
  const U32x4 v = load16_once(from);
  return {{v.at[0], v.at[1], v.at[3], v.at[2]}};
}
}
#define load16_once faulty_load16_once
)"},
    {"memory", "copy16_async", R"(
namespace forge::gpu {
FORGE_DEVICE void faulty_copy16(void* lds, const void* from, bool real = true) {
  copy16_async(lds, static_cast<const u32*>(from) - (thread_id() % 32 == 31 ? 4 : 0), real);
}
}
#define copy16_async faulty_copy16
)"},
    {"memory", "copies in groups", R"(
namespace forge::gpu {
FORGE_DEVICE void copy_whatever(void* lds, const void* from, bool = true) { copy16_async(lds, from); }
}
#define copy16_async copy_whatever
)"},
    {"numbers", "quotient_of", R"(
namespace forge::gpu {
FORGE_DEVICE float faulty_quotient(float a, float b) { return quotient_of(a, b) * 1.000001f; }
}
#define quotient_of faulty_quotient
)"},
    {"numbers", "inverse_sqrt_of", R"(
namespace forge::gpu {
FORGE_DEVICE float faulty_inverse_sqrt(float value) { return inverse_sqrt_of(value) * 1.000001f; }
}
#define inverse_sqrt_of faulty_inverse_sqrt
)"},
    {"blocks", "atomic_add", R"(
namespace forge::gpu {
FORGE_DEVICE u32 faulty_add(u32* at, u32 value) {
  const u32 old = atomic_add(at, value);
  return old == 77u ? 78u : old;
}
}
#define atomic_add faulty_add
)"},
    {"blocks", "last_arrival and load_fresh", R"(
#define last_arrival(counter, count, flag) last_arrival(counter, (count) - 1u, flag)
)"},
    {"blocks", "store_host", R"(
namespace forge::gpu {
FORGE_DEVICE void faulty_store_host(int* at, int value) { store_host(at, value ^ 1); }
}
#define store_host faulty_store_host
)"},
    {"chain", "wait_for_producer and release_consumers", R"(
namespace forge::gpu {
template <class T>
FORGE_DEVICE T faulty_load(const T* from) { return block_id() == 5 ? T() : load(from); }
}
#define load faulty_load
)"},
    {"tiles", "matrix tile of BF16", R"(
#include "kernels/gpu/matrix_tile.h"
namespace forge::gpu {
template <class Tile>
FORGE_DEVICE void faulty_multiply_tile(Tile tile, typename Tile::Fragments& f FORGE_SITE) {
  f.b[0] = 0;
  multiply_tile(tile, f FORGE_AT);
}
}
#define multiply_tile faulty_multiply_tile
)"},
    {"tiles", "matrix tile of F16 from shared memory", R"(
#include "kernels/gpu/matrix_tile.h"
namespace forge::gpu {
FORGE_DEVICE constexpr int faulty_place(int row, int u) { return unit_place(row, row == 9 ? 3 - u : u); }
}
#define unit_place faulty_place
)"},
    {"repack1", "repacking q4_k", R"(
#include "kernels/gpu/codes.h"
namespace forge::quant {
template <class Block>
FORGE_QUANT_FN void faulty_pack(const Block& block, u64 rows, u64 k, u64 row, u64 b, u8* planes) {
  planes_pack_codes(block, rows, k, row, b ^ 1, planes);
}
}
#define planes_pack_codes faulty_pack
)"},
};

/// The source with `text` inserted after its prelude.
inline codegen::KernelSource planted(codegen::KernelSource source, std::string_view text) {
  const auto line = source.text.find("#include");  // after the target macros
  source.text.insert(line, "#include \"kernels/gpu/prelude/prelude.h\"\n" + std::string(text));
  return source;
}

/// A compiler that inserts the text that `text_of` gives for a kernel's name (empty: no change) and passes the sources
/// on to `inner`.
class PlantingCompiler final : public codegen::KernelCompiler {
 public:
  using TextOf = std::function<std::string(std::string_view entry)>;
  PlantingCompiler(codegen::KernelCompiler& inner, TextOf text_of) : inner_(inner), text_of_(std::move(text_of)) {}

  std::vector<codegen::CompiledKernel> compile(const std::string& target,
                                               std::span<const codegen::KernelSource> sources) override {
    std::vector<codegen::KernelSource> changed;
    for (const auto& source : sources) {
      const auto text = text_of_(source.entry);
      changed.push_back(text.empty() ? source : planted(source, text));
    }
    return inner_.compile(target, changed);
  }

 private:
  codegen::KernelCompiler& inner_;
  TextOf text_of_;
};

}  // namespace forge::tests
