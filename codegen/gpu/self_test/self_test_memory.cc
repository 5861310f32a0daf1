// Expected results of the kernels in kernels/gpu/self_test/self_test_memory.h.
#include <algorithm>
#include <cstring>

#include "codegen/gpu/self_test/self_test_kernels.h"
#include "kernels/gpu/self_test/self_test_io.h"

namespace forge::codegen {
namespace {

using namespace gpu::self_test;
using Words = std::vector<std::uint32_t>;

KernelText text_of(const char* kernel, int blocks, int threads, bool has_lds) {
  KernelText text{.header = "kernels/gpu/self_test/self_test_memory.h", .kernel = kernel, .defaults = {}, .before = {}};
  text.has_lds = has_lds;
  text.blocks = blocks;
  text.threads = threads;
  return text;
}

Words random_words(std::size_t count, std::uint64_t seed) {
  TestWords random(seed);
  Words out(count);
  for (auto& word : out) word = random.next();
  return out;
}

template <class T>
std::uint32_t part_of(const std::uint32_t* quad, std::size_t index) {
  T part;
  std::memcpy(&part, reinterpret_cast<const char*>(quad) + index * sizeof part, sizeof part);
  return part;
}

/// Computes the results of one block; out: [kMemoryResults][thread of the grid], first: the block's first thread.
void block_of_memory(const std::uint32_t* in, std::vector<Words>& out, std::size_t first) {
  constexpr std::size_t kThreads = kMemoryThreads;
  Words words(kThreads), halves(kThreads / 2), counts(kMemoryBins);
  for (std::size_t t = 0; t < kThreads; ++t) {
    words[t] = in[4 * t];
    halves[t / 2] |= (words[t] & 0xffffU) << t % 2 * 16;
    ++counts[words[t] % kMemoryBins];
  }
  for (std::size_t t = 0; t < kThreads; ++t) {
    const std::size_t mirror = kThreads - 1 - t, at = first + t;
    const std::uint32_t* quad = in + 4 * t;
    const std::uint32_t folded = quad[0] ^ quad[1] << 1 ^ quad[2] << 2 ^ quad[3] << 3;
    out[kLoad1][at] = part_of<std::uint8_t>(quad, t % 16);
    out[kLoad2][at] = part_of<std::uint16_t>(quad, t % 8);
    out[kLoad4][at] = out[kLoadFloat][at] = quad[t % 4];
    out[kLoad8][at] = quad[t % 2 * 2] + quad[t % 2 * 2 + 1] * 3;
    out[kLoad16][at] = out[kLoad16Once][at] = folded;
    out[kCopyAsync][at] = in[4 * mirror + 3];
    out[kCopyGroup][at] = mirror % 4 != 0 ? in[4 * mirror + 1] : 0;
    out[kSharedMirror][at] = words[mirror];
    out[kSharedAdd][at] = counts[t % kMemoryBins];
    out[kSharedHalf][at] = halves[mirror / 2];
    out[kSharedWord][at] = words[mirror] ^ 0x5a5a5a5aU;
    out[kSharedScalar][at] =
        word_of(static_cast<float>(words[mirror / 4 * 4] & 0xffffU) + static_cast<float>(mirror % 4));
  }
  for (std::uint32_t round = 0; round < kMemoryRounds; ++round) {
    Words next(kThreads);
    for (std::size_t t = 0; t < kThreads; ++t) next[t] = gpu::self_test::mixed(words[(t + 61) % kThreads]) + round;
    words = std::move(next);
  }
  std::ranges::copy(words, out[kSharedRounds].begin() + static_cast<std::ptrdiff_t>(first));
}

constexpr const char* kMemoryNames[kMemoryResults] = {
    "load of a byte",
    "load of 16 bits",
    "load4",
    "load of a float",
    "load8",
    "load16",
    "load16_once",
    "copy16_async",
    "copies in groups",
    "Shared::get across waves",
    "barrier between rounds",
    "Shared::add",
    "Shared::set_half",
    "Shared::set_word",
    "Shared::scalar",
};

}  // namespace

SelfTestKernel self_test_memory(const GpuTarget& target) {
  auto text = text_of("SelfTestMemory", kMemoryBlocks, kMemoryThreads, true);
  text.min_blocks = 2;
  auto kernel = self_test_kernel(target, "memory", std::move(text));
  constexpr std::size_t kTotal = std::size_t{kMemoryBlocks} * kMemoryThreads;
  kernel.input = random_words(4 * kTotal, 3);
  for (auto& word : kernel.input) word &= 0x7fffffffU;  // the kernel takes them modulo kMemoryBins
  std::vector<Words> out(kMemoryResults, Words(kTotal));
  for (std::size_t first = 0; first < kTotal; first += kMemoryThreads)
    block_of_memory(&kernel.input[4 * first], out, first);
  kernel.out_words = kMemoryResults * kTotal;
  for (std::size_t r = 0; r < kMemoryResults; ++r)
    kernel.sections.push_back({.name = kMemoryNames[r], .first = r * kTotal, .expected = std::move(out[r])});
  return kernel;
}

SelfTestKernel self_test_blocks(const GpuTarget& target) {
  auto kernel = self_test_kernel(target, "blocks", text_of("SelfTestBlocks", kBlocks, kBlockThreads, true));
  kernel.launches = kArrivalLaunches;
  kernel.input = random_words(std::size_t{kBlocks} * kBlockThreads, 4);
  kernel.out_words = kBlocksOut;
  kernel.work_words = kBlocksWork;
  kernel.host_words = kBlocks;
  SelfTestSection arrivals{.name = "last_arrival and load_fresh", .first = 0};
  for (std::uint32_t launch = 0; launch < kArrivalLaunches; ++launch)
    for (std::size_t t = 0; t < kBlockThreads; ++t) {
      float sum = 0;
      for (std::size_t b = 0; b < kBlocks; ++b)
        sum += static_cast<float>(kernel.input[b * kBlockThreads + t] % 1000 + launch);
      arrivals.expected.push_back(word_of(sum));
    }
  SelfTestSection tickets{.name = "atomic_add", .first = kTickets, .expected = Words(kTicketCount, 1)};
  SelfTestSection stored{.name = "atomic_store", .first = kStored};
  SelfTestSection host{.name = "store_host", .first = 0, .in_host_memory = true};
  for (std::size_t b = 0; b < kBlocks; ++b) {
    const auto word = kernel.input[b * kBlockThreads];
    stored.expected.push_back(word ^ 0x12345678U);
    host.expected.push_back(gpu::self_test::mixed(word));
  }
  for (auto* section : {&arrivals, &tickets, &stored, &host}) kernel.sections.push_back(std::move(*section));
  return kernel;
}

SelfTestKernel self_test_chain(const GpuTarget& target) {
  auto kernel = self_test_kernel(target, "chain", text_of("SelfTestChain", kChainBlocks, kChainThreads, false));
  kernel.launches = kChainLaunches;
  kernel.overlap = true;
  kernel.input = random_words(kChainWords, 5);
  kernel.out_words = std::size_t{kChainLaunches} * kChainWords;
  SelfTestSection chain{.name = "wait_for_producer and release_consumers", .first = 0};
  const Words* before = &kernel.input;
  Words last;
  for (int launch = 0; launch < kChainLaunches; ++launch) {
    Words next(kChainWords);
    for (int index = 0; index < kChainWords; ++index) {
      auto slow = static_cast<std::uint32_t>(index);
      if (index / kChainThreads % 3 == launch % 3)
        for (int i = 0; i < kChainSpin; ++i) slow = gpu::self_test::mixed(slow) ^ slow >> 7;
      const int from = (index * 5 + kChainThreads * 7) % kChainWords;
      next[static_cast<std::size_t>(index)] =
          gpu::self_test::mixed((*before)[static_cast<std::size_t>(from)]) + (slow & 1);
    }
    chain.expected.insert(chain.expected.end(), next.begin(), next.end());
    last = std::move(next);
    before = &last;
  }
  kernel.sections.push_back(std::move(chain));
  return kernel;
}

}  // namespace forge::codegen
