#pragma once
// A kernel of the GPU self-test: repacks weights with the kernels that load a model (repack.h).

#include "kernels/gpu/repack.h"
#include "kernels/gpu/self_test/self_test_io.h"

namespace forge::gpu {

/// One weight per type, each merged from two sources whose rows alternate every kUnit rows. A part P (one weight) has
/// Kernel, kRows, kBlocksPerRow, kUnit, kSourceWords (words of a source), kStaged (offset of its native rows in `in`)
/// and kPlanes (offset of its planes in `out`), in words.
template <class... Parts>
struct RepackParts {
  static constexpr int kBlocks = (0 + ... + (Parts::kRows * Parts::kBlocksPerRow));

  FORGE_DEVICE static void run(const SelfTestArgs& args) {
    int first = 0;
    (run_part<Parts>(args, first), ...);
  }
  template <class P>
  FORGE_DEVICE static void run_part(const SelfTestArgs& args, int& first) {
    constexpr int kOfSource = P::kRows / 2 * P::kBlocksPerRow;
    const int block = block_id() - first;
    first += 2 * kOfSource;
    if (block < 0 || block >= 2 * kOfSource) return;
    const int source = block / kOfSource;
    const u32* staged = args.in + P::kStaged + source * P::kSourceWords;
    const RepackArgs rows{.weight = reinterpret_cast<u16*>(args.out + P::kPlanes),
                          .staged = reinterpret_cast<const u16*>(staged),
                          .first = 0,
                          .count = P::kRows / 2,
                          .dest_first = source * P::kUnit,
                          .dest_unit = P::kUnit,
                          .dest_stride = 2 * P::kUnit};
    P::Kernel::run(rows, block % kOfSource);
  }
};
template <class C>
struct SelfTestRepack {
  static constexpr int kThreads = C::kThreads, kBlocks = C::Parts::kBlocks;
  using Args = SelfTestArgs;
  FORGE_DEVICE static void run(const Args& args) { C::Parts::run(args); }
};

}  // namespace forge::gpu
