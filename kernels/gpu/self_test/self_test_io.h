#pragma once
// Layouts of what the card's self-test and its kernels exchange. Free-standing: both sides include it. Every kernel
// takes one SelfTestArgs; its results are sections of `out`, one for each primitive, which the host computes by itself
// (codegen/gpu/self_test/self_test.h).

namespace forge::gpu {

/// in: the kernel's inputs; out: poisoned before the first launch; work: zeros before the first launch, for counters
/// and what blocks tell each other; host: pinned memory; number: which of its launches this is, from 0 on.
struct SelfTestArgs {
  const unsigned* in;
  unsigned* out;
  unsigned* work;
  int* host;
  long long number;
};

namespace self_test {

// ---- lanes: result s of thread t of the whole grid is out[s * threads + t]. Inputs: in[t * kLaneInputs + i].
inline constexpr int kLaneWaves = 4, kLaneBlocks = 2, kLaneInputs = 8, kLaneRounds = 6;
enum LaneResult {
  kShuffle,                        ///< of lane (7 lane + 3) % wave
  kShuffleByData,                  ///< of lane in[0] % wave
  kShuffleXor,                     ///< by 1, 2, 4, 8, 16, 32
  kSumOfLanes = kShuffleXor + 6,   ///< of 2, 4, 8, 16, 32, 64 lanes; i32
  kSumOfFloats = kSumOfLanes + 6,  ///< the same of floats
  kMaxOfFloats = kSumOfFloats + 6,
  kUniform = kMaxOfFloats + 6,  ///< in[0] of the wave's first lane
  kWaveId,
  kLaneId,
  // What only some lanes take of what all lanes made together. Compilers have moved the last exchange under the
  // branch, where other lanes' values can't be read.
  kFactor,        ///< 1/rms of the wave's squares, made by lane 0 and read by all
  kFactorsTwice,  ///< max and sum, then one number of both by lane 0
  kFactorsLoop,   ///< lane 0 keeps kLaneRounds sums; each lane adds them up
  kBestOfBlock,   ///< sampling's largest value and the first index that has it: the index
  kLastLane,      ///< a sum that the wave's last lane keeps; read by all
  kPartsOfTile,   ///< squares of 16 lanes, kept by the first of them; read by the others
  kOneExchange,   ///< shuffle_xor of 16 that lane 0 keeps; read by all
  kWaveAlone,     ///< a sum that one wave makes while the others go past; read by all
  kScan,          ///< sum over the lanes up to this one, by shuffles
  kLaneResults
};

// ---- numbers: element i of result s is out[s * kNumbers + i]; inputs: arrays of kNumbers words, in order
inline constexpr int kNumbers = 8192, kNumberThreads = 256, kHalfParts = 65536 / kNumbers;
enum NumberInput { kWordA, kWordB, kWordC, kAnyX, kAnyY, kMildX, kMildY, kMildZ, kNumberInputs };
enum NumberResult {
  kHalfToFloat,                              ///< all halves, kHalfParts arrays
  kFloatToHalf = kHalfToFloat + kHalfParts,  ///< of any x
  kHalfPair,                                 ///< of any x, mild y
  kBf16Pair,                                 ///< of mild x and y
  kDot4,                                     ///< words a, b, c
  kPermute,                                  ///< words a, b by bytes 0 to 7 of c
  kLookup4,                                  ///< codes of c; the table is a, b, ~a, ~b
  kByte,                                     ///< byte_number of 0 to 3 of a, less the bias
  kExp2 = kByte + 4,                         ///< mild x
  kLog2,                                     ///< |mild x|
  kSqrt,                                     ///< |any x|
  kDivide,                                   ///< any x by mild y
  kFma,                                      ///< any x, mild y, mild z
  kMulAdd,                                   ///< mild x * y + z, two roundings
  kSubnormal,                                ///< mild x * 2^-120: none becomes zero
  kRound,                                    ///< mild x
  kAbs,
  kMin,  ///< any x and y
  kMax,
  kAnew,  ///< word a
  kNumberResults
};

// ---- memory: result s of thread t of the grid is out[s * threads + t]; inputs: 16 bytes a thread
inline constexpr int kMemoryThreads = 256, kMemoryBlocks = 4, kMemoryRounds = 8, kMemoryBins = 37;
enum MemoryResult {
  kLoad1,  ///< a byte, of the thread's 16 the (thread % 16)-th
  kLoad2,
  kLoad4,
  kLoadFloat,
  kLoad8,   ///< both words added
  kLoad16,  ///< four words, exclusive or
  kLoad16Once,
  kCopyAsync,     ///< the last word of the 16 bytes of the block's thread that mirrors this one
  kSharedMirror,  ///< a word through shared memory, from the mirrored thread
  kSharedRounds,  ///< kMemoryRounds exchanges, a barrier between each
  kSharedAdd,     ///< counts of the block's first words % kMemoryBins
  kSharedHalf,    ///< word of two halves that two threads set
  kSharedWord,
  kSharedScalar,
  kMemoryResults
};

// ---- blocks: kArrivalLaunches launches, out[launch * kBlockThreads + t] by the last block of each
inline constexpr int kBlockThreads = 128, kBlocks = 96, kArrivalLaunches = 16, kLateSpin = 2048;
inline constexpr unsigned kNeverMixed = 0xdeadbeefU;  ///< what no lane of the late block comes to
/// Behind the sums: a 1 for each ticket that atomic_add gave out; then a word for each block by atomic_store.
inline constexpr int kTickets = kArrivalLaunches * kBlockThreads, kTicketCount = kBlocks * kBlockThreads,
                     kStored = kTickets + kTicketCount, kBlocksOut = kStored + kBlocks;
/// work: the counters of arrivals and tickets, then each block's partial sums.
inline constexpr int kArrivals = 0, kTicket = 1, kPartials = 64, kBlocksWork = kPartials + kBlocks * kBlockThreads;

// ---- chain: launches that each read what the one before wrote; out[launch][kChainWords]
inline constexpr int kChainThreads = 128, kChainBlocks = 48, kChainLaunches = 12,
                     kChainWords = kChainThreads * kChainBlocks, kChainSpin = 64;

// ---- tiles: C[16][16] of each native tile, from A[16][kTileDepth] and Bt[16][kTileDepth] of small whole numbers
inline constexpr int kTileSide = 16, kTileDepth = 64;
enum TileResult { kHalfTile, kBf16Tile, kInt8Tile, kHalfUnits, kBf16Units, kTileResults };

/// A step of the chain's arithmetic, and of every other place that wants a word that depends on another.
constexpr unsigned mixed(unsigned word) {
  return word * 1664525u + 1013904223u;
}

}  // namespace self_test
}  // namespace forge::gpu
