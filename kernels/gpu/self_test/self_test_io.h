#pragma once
// Layouts of the data that the GPU self-test and its kernels exchange. Free-standing: host and device sources include
// it. Every kernel takes one SelfTestArgs. Its results are sections of `out`, one for each primitive; the host computes
// the same sections by scalar code and compares (codegen/gpu/self_test/self_test.h).

namespace forge::gpu {

/// in: inputs. out: results; filled with a poison value before the first launch. work: counters and data that blocks
/// exchange; zeros before the first launch. host: pinned host memory. number: of this launch of the kernel, from 0 on.
struct SelfTestArgs {
  const unsigned* in;
  unsigned* out;
  unsigned* work;
  int* host;
  long long number;
};

namespace self_test {

// ---- SelfTestLanes: result s of thread t of the grid is out[s * threads + t]; input i of thread t is
// in[t * kLaneInputs + i]
inline constexpr int kLaneWaves = 4, kLaneBlocks = 2, kLaneInputs = 8, kLaneRounds = 6;
enum LaneResult {
  kShuffle,                        ///< shuffle from lane (7 * lane + 3) % wave
  kShuffleByData,                  ///< shuffle from lane in[0] % wave
  kShuffleXor,                     ///< by 1, 2, 4, 8, 16, 32
  kSumOfLanes = kShuffleXor + 6,   ///< sums over groups of 2, 4, 8, 16, 32, 64 lanes, i32
  kSumOfFloats = kSumOfLanes + 6,  ///< the same in f32
  kMaxOfFloats = kSumOfFloats + 6,
  kUniform = kMaxOfFloats + 6,  ///< in[0] of the wave's first lane
  kWaveId,
  kLaneId,
  // Reductions by all lanes whose result only some lanes use. Compilers have moved the last shuffle into the branch
  // that uses it, where the values of other lanes cannot be read.
  kFactor,        ///< 1/rms of the wave's squares: lane 0 stores it, all read it
  kFactorsTwice,  ///< lane 0 combines a maximum and a sum
  kFactorsLoop,   ///< lane 0 stores kLaneRounds sums; each lane adds them up
  kBestOfBlock,   ///< best_of_block of sampling: the lowest index of the largest value
  kLastLane,      ///< a sum that the wave's last lane stores; all read it
  kPartsOfTile,   ///< sum of squares of 16 lanes: the first of them stores it, all 16 read it
  kOneExchange,   ///< one shuffle_xor by 16; lane 0 stores the sum, all read it
  kWaveAlone,     ///< a sum by one wave while the others skip the branch; all read it
  kScan,          ///< inclusive prefix sum over the wave, by shuffles
  kLaneResults
};

// ---- SelfTestNumbers: element i of result s is out[s * kNumbers + i]. Inputs are arrays of kNumbers words, in the
// order of NumberInput: words are any bits, kAny* any floats, kMild* floats of moderate size (kMildX also has edge
// cases).
inline constexpr int kNumbers = 8192, kNumberThreads = 256, kHalfParts = 65536 / kNumbers;
enum NumberInput { kWordA, kWordB, kWordC, kAnyX, kAnyY, kMildX, kMildY, kMildZ, kNumberInputs };
enum NumberResult {
  kHalfToFloat,                              ///< all 65536 f16 values, in kHalfParts arrays
  kFloatToHalf = kHalfToFloat + kHalfParts,  ///< any x
  kHalfPair,                                 ///< any x, mild y
  kBf16Pair,                                 ///< mild x and y
  kDot4,                                     ///< words a, b, c
  kPermute,                                  ///< words a, b; the selector is c with its bytes masked to 0..7
  kLookup4,                                  ///< the codes are c's low nibbles; the table is a, b, ~a, ~b
  kByte,                                     ///< byte_number<0..3> of a, minus kByteBias
  kExp2 = kByte + 4,                         ///< mild x
  kLog2,                                     ///< |mild x|
  kSqrt,                                     ///< |any x|
  kDivide,                                   ///< any x / mild y
  kQuotient,                                 ///< mild x / mild y, by quotient_of
  kInverseSqrt,                              ///< |mild x| + 2^-20
  kFma,                                      ///< any x, mild y, mild z
  kMulAdd,                                   ///< mild x * y + z, two roundings
  kSubnormal,                                ///< mild x * 2^-120: subnormals must not be flushed to zero
  kRound,                                    ///< mild x
  kAbs,
  kMin,  ///< any x and y
  kMax,
  kOpaque,  ///< word a
  // Only of targets with 8-bit floats.
  kFp8Pair,                      ///< any x and mild y, as 8-bit floats and back
  kFp8Numbers = kFp8Pair + 2,    ///< the four of word a
  kFp8Halves = kFp8Numbers + 4,  ///< the same in two pairs of f16
  kNumberResults = kFp8Halves + 2
};

// ---- SelfTestMemory: result s of thread t of the grid is out[s * threads + t]; inputs: 16 bytes per thread
inline constexpr int kMemoryThreads = 256, kMemoryBlocks = 4, kMemoryRounds = 8, kMemoryBins = 37;
enum MemoryResult {
  kLoad1,  ///< byte number thread % 16 of the thread's 16 bytes
  kLoad2,
  kLoad4,
  kLoadFloat,
  kLoad8,   ///< first word + 3 * second word
  kLoad16,  ///< exclusive or of the four words, word i shifted left by i
  kLoad16Once,
  kCopyAsync,     ///< last word of the 16 bytes that the mirrored thread (block size - 1 - thread) copied
  kCopyGroup,     ///< second word of what it copied in the group before; every fourth thread copied zeros instead
  kSharedMirror,  ///< the first input word of the mirrored thread, through shared memory
  kSharedRounds,  ///< kMemoryRounds exchanges between threads, with barriers in between
  kSharedAdd,     ///< histogram of the block's first input words modulo kMemoryBins
  kSharedHalf,    ///< a word whose two halves two threads have set
  kSharedWord,
  kSharedScalar,
  kMemoryResults
};

// ---- SelfTestBlocks: kArrivalLaunches launches; the last block of each writes out[launch * kBlockThreads + t]
inline constexpr int kBlockThreads = 128, kBlocks = 96, kArrivalLaunches = 16, kLateSpin = 2048;
/// A value that the late block's delay loop never ends with. Comparing with it keeps the compiler from removing the
/// loop.
inline constexpr unsigned kNeverMixed = 0xdeadbeefU;
/// Behind the sums, `out` has a 1 for each ticket that atomic_add gave out, then a word per block by atomic_store.
inline constexpr int kTickets = kArrivalLaunches * kBlockThreads, kTicketCount = kBlocks * kBlockThreads,
                     kStored = kTickets + kTicketCount, kBlocksOut = kStored + kBlocks;
/// `work` has the counters of arrivals and of tickets, then each block's partial sums.
inline constexpr int kArrivals = 0, kTicket = 1, kPartials = 64, kBlocksWork = kPartials + kBlocks * kBlockThreads;

// ---- SelfTestChain: launches that each read what the one before wrote; out is [launch][kChainWords]
inline constexpr int kChainThreads = 128, kChainBlocks = 48, kChainLaunches = 12,
                     kChainWords = kChainThreads * kChainBlocks, kChainSpin = 64;

// ---- SelfTestTiles: C[16][16] of each native tile, from A[16][kTileDepth] and Bt[16][kTileDepth] of small integers
inline constexpr int kTileSide = 16, kTileDepth = 64;
enum TileResult { kHalfTile, kBf16Tile, kInt8Tile, kHalfUnits, kBf16Units, kTileResults };

/// A pseudo-random function of a word (a linear congruential step), used wherever a result should depend on another
/// word.
constexpr unsigned mixed(unsigned word) {
  return word * 1664525u + 1013904223u;
}

}  // namespace self_test
}  // namespace forge::gpu
