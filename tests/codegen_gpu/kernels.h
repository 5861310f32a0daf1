#pragma once
// Small device sources for the compile service's tests.

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>

#include "codegen/gpu/compilers.h"
#include "codegen/gpu/kernel_compiler.h"
#include "codegen/gpu/targets.h"
#include "support/error.h"

namespace forge::codegen::tests {

/// False where no compiler of this machine knows the target, which is told.
inline bool is_compilable(const GpuTarget& target) {
  try {
    static_cast<void>(choose_compiler(find_compilers(target.vendor), target));
    return true;
  } catch (const Error& error) {
    WARN("skipped " << target.name << ": " << error.line());
    return false;
  }
}

/// y[i] = sum of four int8 products, and a sum over the wave, of 256 threads; 4 KiB of shared memory.
inline KernelSource dot_kernel(const GpuTarget& target, const std::string& entry = "dots") {
  return {entry, "#define FORGE_WAVE " + std::to_string(target.wave) + R"(
#include "kernels/gpu/prelude.h"
using namespace forge::gpu;
struct Args {
  const u32* a;
  const u32* b;
  float* y;
  long long count;
};
struct Lds {
  Shared<float, 1024> values;
};
FORGE_KERNEL()" + entry +
                     R"(, 1, 256, Args) {
  FORGE_LDS(Lds, lds);
  const int t = thread_id();
  lds.values.set(t, static_cast<float>(dot4(load(args.a + t), load(args.b + t), 3)));
  barrier();
  args.y[t] = sum_lanes<kWave>(lds.values.get(255 - t)) + static_cast<float>(args.count);
}
)"};
}

/// y[i] = y[i] * x[i] + y[i + 1] of 64 threads: two roundings, unless a compiler contracts it.
inline KernelSource scale_kernel(const GpuTarget& target, const std::string& entry = "scale") {
  return {entry, "#define FORGE_WAVE " + std::to_string(target.wave) + R"(
#include "kernels/gpu/prelude.h"
using namespace forge::gpu;
struct Args {
  float* y;
  const float* x;
};
FORGE_KERNEL()" + entry +
                     R"(, 1, 64, Args) {
  const int t = thread_id();
  args.y[t] = args.y[t] * args.x[t] + args.y[t + 1];
}
)"};
}

/// out[i] = the sum of in over lanes that differ in one bit of their number, for masks 1 to 16 in turn.
inline KernelSource exchange_kernel(const GpuTarget& target, const std::string& entry = "exchange") {
  return {entry, fmt::format(R"(#define FORGE_WAVE {}
#include "kernels/gpu/prelude.h"

namespace forge::gpu {{
struct ExchangeArgs {{
  const float* in;
  float* out;
}};
FORGE_KERNEL({}, 1, FORGE_WAVE, ExchangeArgs) {{
  float value = load(args.in + lane_id());
  value += shuffle_xor<1>(value);
  value += shuffle_xor<2>(value);
  value += shuffle_xor<4>(value);
  value += shuffle_xor<8>(value);
  value += shuffle_xor<16>(value);
  args.out[lane_id()] = value;
}}
}}  // namespace forge::gpu
)",
                             target.wave, entry)};
}

}  // namespace forge::codegen::tests
