// What a kernel executes, counted on hand-written listings whose counts are known: loops, early ends, branches on
// lanes, waves of 32 and 64, counters, barriers; and what is said where a count is not known.

#include "codegen/gpu/code/walk.h"

#include <catch2/catch.hpp>
#include <map>
#include <numeric>

#include "codegen/gpu/code/estimate.h"

namespace forge::codegen {
namespace {

/// Memory of words that a case sets; others are unknown.
class FakeMemory final : public WalkMemory {
 public:
  std::map<std::uint64_t, std::uint32_t> words;
  std::optional<std::uint32_t> load(std::uint64_t address) override {
    const auto found = words.find(address);
    return found == words.end() ? std::nullopt : std::optional(found->second);
  }
  void store(std::uint64_t address, std::optional<std::uint32_t> word) override {
    if (word)
      words[address] = *word;
    else
      words.erase(address);
  }
};

/// Arguments in s[0:1], the block's number in s15, as forge's kernels have them.
constexpr EntryRegisters kEntry{.arguments = 0, .block = 15};

struct Walked {
  Function function;
  ControlFlow flow;
  WalkCounts counts;
  [[nodiscard]] double total() const { return std::accumulate(counts.executed.begin(), counts.executed.end(), 0.0); }
  /// How often the first instruction that starts so was executed.
  [[nodiscard]] double of(std::string_view start) const {
    for (std::size_t i = 0; i < function.instructions.size(); ++i)
      if (function.instructions[i].text.starts_with(start)) return counts.executed[i];
    return -1;
  }
};
Walked walked(std::string_view code, WalkLaunch launch = {}, WalkOptions options = {}) {
  launch.entry = kEntry;
  FakeMemory memory;
  Walked out{.function = parse_listing(code).at(0), .flow = {}, .counts = {}};
  out.flow = control_flow(out.function);
  out.counts = walk(out.function, out.flow, launch, memory, options);
  return out;
}

/// An outer loop of 3 turns around an inner one of 5.
constexpr std::string_view kNested = R"(
    s_mov_b32 s2, 0
outer:
    s_mov_b32 s3, 5
inner:
    v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]
    v_add_f32_e32 v1, v1, v2
    s_add_i32 s3, s3, -1
    s_cmp_lg_u32 s3, 0
    s_cbranch_scc1 inner
    s_add_i32 s2, s2, 1
    s_cmp_lt_i32 s2, 3
    s_cbranch_scc1 outer
    s_endpgm
)";

}  // namespace

TEST_CASE("loops: nested ones are found, the outer first, and blocks belong to the innermost") {
  const auto flow = control_flow(parse_listing(kNested).at(0));
  REQUIRE(flow.blocks.size() == 5);
  REQUIRE(flow.loops.size() == 2);
  CHECK(flow.loops[0].header == 1);
  CHECK(flow.loops[0].blocks == std::vector<std::size_t>{1, 2, 3});
  CHECK(flow.loops[1].header == 2);
  CHECK(flow.loops[1].blocks == std::vector<std::size_t>{2});
  CHECK(flow.loops[1].parent == 0);
  CHECK(flow.blocks[2].loop == 1);
  CHECK(flow.blocks[3].loop == 0);
  CHECK(flow.blocks[4].loop == kNoLoop);
  CHECK(flow.contains(0, 2));
  CHECK_FALSE(flow.contains(1, 3));
}

TEST_CASE("loops: a branch back into the middle of code that is entered elsewhere is no natural loop") {
  const auto flow = control_flow(parse_listing(R"(
    s_cbranch_scc1 second
first:
    s_nop 0
second:
    s_nop 0
    s_cbranch_vccnz first
    s_endpgm
)")
                                     .at(0));
  CHECK(flow.loops.empty());
}

TEST_CASE("walk: turns of nested loops are counted, and classes and the matrix loop follow") {
  const auto out = walked(kNested, {.blocks = 4, .threads = 64});
  CHECK(out.of("v_wmma") == 4 * 2 * 15);
  CHECK(out.total() == 4 * 2 * (1 + 3 * (1 + 5 * 5 + 3) + 1));
  CHECK(out.counts.entries == std::vector<double>{8, 24});
  CHECK(out.counts.guesses == 0);
  FakeMemory memory;
  const auto estimate = estimate_kernel(out.function, {.blocks = 4, .threads = 64, .entry = kEntry}, memory);
  CHECK(estimate.of(InstructionClass::kMatrix) == 120);
  CHECK(estimate.of(InstructionClass::kVector) == 120);
  CHECK(estimate.of(InstructionClass::kBranch) == 8 * (15 + 3 + 1));
  CHECK(estimate.total() == out.total());
  REQUIRE(estimate.matrix_loop);
  CHECK(estimate.matrix_loop->turns == 5);
  CHECK(estimate.matrix_loop->others_per_matrix == 4);
}

TEST_CASE("walk: a block that has nothing to do ends early, and arguments decide it") {
  // Block b works if b < constant: the second member of the argument struct.
  const auto out = walked(R"(
    s_load_b64 s[4:5], s[0:1], 0x8
    s_cmp_ge_i32 s15, s4
    s_cbranch_scc1 end
    v_mov_b32_e32 v1, 0
end:
    s_endpgm
)",
                          {.blocks = 10, .arguments = {0, 3}});
  CHECK(out.of("v_mov") == 3);
  CHECK(out.of("s_endpgm") == 10);
}

TEST_CASE("walk: 16-bit constants of scalar instructions are signed, but for those of unsigned comparisons") {
  const auto out = walked(R"(
    s_movk_i32 s2, 0xffc0
    s_cmpk_eq_i32 s2, 0xffc0
    s_cbranch_scc0 wrong
    s_addk_i32 s2, 0xffff
    s_cmp_eq_u32 s2, 0xffffffbf
    s_cbranch_scc0 wrong
    s_movk_i32 s3, 0x7f
    s_cmpk_gt_i32 s3, 0xffc0
    s_cbranch_scc0 wrong
    s_cmpk_lt_u32 s3, 0xffc0
    s_cbranch_scc0 wrong
    s_endpgm
wrong:
    s_nop 0
    s_endpgm
)");
  CHECK(out.total() == 12);
  CHECK(out.of("s_nop") == 0);
}

TEST_CASE("walk: a wave takes a branch over code of lanes that it does not have, for 32 and 64 lanes") {
  // Threads below 40 work: of 128, two waves of 32 or one of 64.
  const auto narrow = walked(R"(
    s_mov_b32 s2, exec_lo
    v_cmpx_gt_u32_e32 40, v0
    s_cbranch_execz end
    v_mov_b32_e32 v1, 0
end:
    s_or_b32 exec_lo, exec_lo, s2
    s_endpgm
)",
                             {.threads = 128});
  CHECK(narrow.of("v_mov") == 2);
  CHECK(narrow.of("s_endpgm") == 4);
  const auto wide = walked(R"(
    v_cmp_gt_u32_e32 vcc, 40, v0
    s_and_saveexec_b64 s[2:3], vcc
    s_cbranch_execz end
    v_mov_b32_e32 v1, 0
end:
    s_or_b64 exec, exec, s[2:3]
    s_endpgm
)",
                           {.threads = 128, .wave = 64});
  CHECK(wide.of("v_mov") == 1);
  CHECK(wide.of("s_endpgm") == 2);
  CHECK(wide.counts.guesses == 0);
}

TEST_CASE("walk: lanes leave a loop one by one, and a wave turns as often as its last lane") {
  // Lane i of wave w starts at 32 w + i and goes on in steps of 100 to 300: 3 turns, or 2 where all begin at 100.
  const auto out = walked(R"(
    s_mov_b32 s2, 0
again:
    v_add_nc_u32_e32 v0, 0x64, v0
    v_cmp_le_u32_e32 vcc_lo, 0x12c, v0
    s_or_b32 s2, vcc_lo, s2
    s_and_not1_b32 exec_lo, exec_lo, s2
    s_cbranch_execnz again
    s_endpgm
)",
                          {.threads = 128});
  CHECK(out.of("v_add_nc_u32") == 3 + 3 + 3 + 3);
  CHECK(out.counts.guesses == 0);
  const auto late = walked(R"(
    v_add_nc_u32_e32 v0, 0x64, v0
    s_mov_b32 s2, 0
again:
    v_add_nc_u32_e64 v0, v0, 0x64
    v_cmp_le_u32_e32 vcc_lo, 0x12c, v0
    s_or_b32 s2, vcc_lo, s2
    s_and_not1_b32 exec_lo, exec_lo, s2
    s_cbranch_execnz again
    s_endpgm
)",
                           {.threads = 128});
  CHECK(late.of("v_add_nc_u32_e64") == 4 * 2);
}

TEST_CASE("walk: shuffles, shared memory and barriers pass on what is known") {
  // Each wave writes its number; behind the barrier, lane 0's maximum over four waves decides.
  const auto out = walked(R"(
    v_lshrrev_b32_e32 v1, 5, v0
    v_lshlrev_b32_e32 v2, 2, v1
    ds_store_b32 v2, v1
    s_waitcnt lgkmcnt(0)
    s_barrier
    v_and_b32_e32 v3, 3, v0
    v_lshlrev_b32_e32 v3, 2, v3
    ds_load_b32 v4, v3
    v_max_i32_dpp v4, v4, v4 row_xmask:1 row_mask:0xf bank_mask:0xf bound_ctrl:1
    v_max_i32_dpp v4, v4, v4 row_xmask:2 row_mask:0xf bank_mask:0xf bound_ctrl:1
    v_readfirstlane_b32 s2, v4
    s_cmp_eq_u32 s2, 3
    s_cbranch_scc0 end
    v_mov_b32_e32 v5, 0
end:
    s_endpgm
)",
                          {.threads = 128, .lds_bytes = 16});
  CHECK(out.of("v_mov") == 4);
  CHECK(out.counts.guesses == 0);
}

TEST_CASE("walk: the last block to count itself goes on alone") {
  FakeMemory memory;
  memory.words[0x50000] = 0;
  const auto function = parse_listing(R"(
    s_load_b64 s[4:5], s[0:1], null
    v_mov_b32_e32 v1, 0
    v_mov_b32_e32 v2, 1
    v_cmpx_eq_u32_e32 0, v0
    global_atomic_add_u32 v3, v1, v2, s[4:5] glc
    v_readfirstlane_b32 s2, v3
    s_cmp_lt_u32 s2, 5
    s_cbranch_scc1 end
    ds_store_b32 v1, v2
end:
    s_endpgm
)")
                            .at(0);
  const auto estimate =
      estimate_kernel(function, {.blocks = 6, .lds_bytes = 4, .entry = kEntry, .arguments = {0x50000}}, memory);
  CHECK(estimate.of(InstructionClass::kLds) == 1);
  CHECK(estimate.guesses == 0);
  CHECK(memory.words[0x50000] == 6);
}

TEST_CASE("walk: what depends on data is guessed and said so") {
  const auto branch = walked(R"(
    s_load_b32 s4, s[0:1], 0x100
    s_cmp_lt_i32 s4, 7
    s_cbranch_scc1 end
    v_mov_b32_e32 v1, 0
end:
    s_endpgm
)");
  CHECK(branch.of("v_mov") == 1);
  CHECK(branch.counts.decisions == 1);
  CHECK(branch.counts.guesses == 1);
  // What a lane may ask of its wave is left out, wherever it lies.
  for (const char* code : {R"(
    global_load_b32 v1, v0, s[4:5]
    v_cmp_lt_i32_e32 vcc_lo, 7, v1
    s_cbranch_vccz end
    v_mov_b32_e32 v1, 0
end:
    s_endpgm
)",
                           R"(
    global_load_b32 v1, v0, s[4:5]
    v_cmp_lt_i32_e32 vcc_lo, 7, v1
    s_cbranch_vccnz rare
again:
    s_endpgm
rare:
    v_mov_b32_e32 v1, 0
    s_branch again
)"}) {
    const auto rare = walked(code);
    CAPTURE(code);
    CHECK(rare.of("v_mov") == 0);
    CHECK(rare.counts.guesses == 1);
  }
  // The bound is unknown at the loop's end, and at its begin: one turn each.
  for (const char* code : {R"(
    s_load_b32 s4, s[0:1], 0x100
again:
    v_mov_b32_e32 v1, 0
    s_add_i32 s4, s4, -1
    s_cmp_lg_u32 s4, 0
    s_cbranch_scc1 again
    s_endpgm
)",
                           R"(
    s_load_b32 s4, s[0:1], 0x100
again:
    s_cmp_eq_u32 s4, 0
    s_cbranch_scc1 end
    v_mov_b32_e32 v1, 0
    s_add_i32 s4, s4, -1
    s_branch again
end:
    s_endpgm
)"}) {
    const auto loop = walked(code);
    CAPTURE(code);
    CHECK(loop.of("v_mov") == 1);
    CHECK(loop.counts.guessed_loops == std::vector<bool>{true});
    CHECK(loop.counts.complete);
  }
}

TEST_CASE("walk: an operation that is not known makes its results unknown") {
  const auto out = walked(R"(
    s_mov_b32 s2, 4
    s_strange_b32 s2, s2
    s_cmp_eq_u32 s2, 4
    s_cbranch_scc0 end
    v_mov_b32_e32 v1, 0
    v_strange_f32 v1, v1
    v_cmp_eq_u32_e32 vcc_lo, 0, v1
    s_cbranch_vccz end
    v_nop
end:
    s_endpgm
)");
  CHECK(out.counts.guesses == 2);
}

TEST_CASE("walk: lanes that are off keep what they hold") {
  const auto out = walked(R"(
    v_mov_b32_e32 v1, 1
    s_mov_b32 exec_lo, 0xffff
    v_mov_b32_e32 v1, 2
    s_mov_b32 exec_lo, -1
    v_readlane_b32 s2, v1, 20
    s_cmp_eq_u32 s2, 1
    s_cbranch_scc0 end
    v_readlane_b32 s2, v1, 15
    s_cmp_eq_u32 s2, 2
    s_cbranch_scc0 end
    v_nop
end:
    s_endpgm
)");
  CHECK(out.of("v_nop") == 1);
  CHECK(out.counts.guesses == 0);
}

TEST_CASE("walk: the halves of a dual instruction read before they write") {
  const auto out = walked(R"(
    v_mov_b32_e32 v1, 1
    v_mov_b32_e32 v2, 2
    v_dual_mov_b32 v1, v2 :: v_dual_mov_b32 v2, v1
    v_cmp_eq_u32_e32 vcc_lo, 1, v2
    s_cbranch_vccz end
    v_nop
end:
    s_endpgm
)");
  CHECK(out.of("v_nop") == 1);
  CHECK(out.counts.guesses == 0);
}

TEST_CASE("walk: a loop without an end and a jump to a register give incomplete counts") {
  CHECK_FALSE(walked("again:\n s_nop 0\n s_branch again\n", {}, {.block_budget = 1000}).counts.complete);
  CHECK_FALSE(walked("s_nop 0\n s_setpc_b64 s[2:3]\n").counts.complete);
}

TEST_CASE("walk: a large grid is sampled, whatever the period of its blocks") {
  // Every 8th block has work: 1000 turns, 3005 instructions. Of each 64 blocks one is walked.
  const auto out = walked(R"(
    s_and_b32 s2, s15, 7
    s_cmp_lg_u32 s2, 0
    s_cbranch_scc1 end
    s_mov_b32 s3, 1000
again:
    s_add_i32 s3, s3, -1
    s_cmp_lg_u32 s3, 0
    s_cbranch_scc1 again
end:
    s_endpgm
)",
                          {.blocks = 1 << 16}, {.budget = 3005 * 1024});
  CHECK(out.counts.blocks_walked == 1024);
  CHECK(out.of("s_add_i32") == Approx(1000.0 * (1 << 13)).epsilon(0.2));
}

TEST_CASE("classes: units by mnemonic, of all generations") {
  using enum InstructionClass;
  const std::pair<std::string_view, InstructionClass> rows[] = {{"v_dual_mov_b32", kVector},
                                                                {"v_mfma_f32_32x32x8_f16", kMatrix},
                                                                {"v_wmma_i32_16x16x16_iu8", kMatrix},
                                                                {"s_load_dwordx4", kScalar},
                                                                {"s_and_saveexec_b64", kScalar},
                                                                {"buffer_load_dword", kLoad},
                                                                {"global_atomic_add_u32", kLoad},
                                                                {"global_store_b32", kStore},
                                                                {"ds_write_b32", kLds},
                                                                {"ds_swizzle_b32", kLds},
                                                                {"s_waitcnt", kWait},
                                                                {"s_wait_loadcnt", kWait},
                                                                {"s_barrier", kWait},
                                                                {"s_delay_alu", kWait},
                                                                {"buffer_gl0_inv", kWait},
                                                                {"s_cbranch_execz", kBranch},
                                                                {"s_endpgm", kBranch}};
  for (const auto& [mnemonic, wanted] : rows) {
    CAPTURE(mnemonic);
    CHECK(class_name(class_of(mnemonic)) == class_name(wanted));
  }
}

}  // namespace forge::codegen
