// The exec-mask checker accepts correct control flow as compilers generate it and finds each mistake, on hand-written
// listings.

#include "tests/exec_mask/exec_mask.h"

#include <fmt/format.h>

#include <array>
#include <catch2/catch.hpp>
#include <random>

#include "tests/exec_mask/mask_state.h"

namespace forge::tests {

using namespace codegen;
namespace {

/// Texts of the instructions that the checker reports for `code`.
std::vector<std::string> wrong_in(std::string_view code, int wave = 32) {
  std::vector<std::string> texts;
  for (const MaskFinding& finding : check_masks(parse_listing(code), wave).findings) {
    UNSCOPED_INFO(line_of(finding));
    texts.push_back(finding.text);
  }
  return texts;
}
using Texts = std::vector<std::string>;
const Texts kNone;

}  // namespace

TEST_CASE("exec mask: in straight-line code all lanes are on, and a branch on a scalar does not change that") {
  const char* code = R"(
    v_add_f32_dpp v1, v1, v1 row_xmask:8 row_mask:0xf bank_mask:0xf bound_ctrl:1
    s_cmp_eq_u32 s4, 0
    s_cbranch_scc1 behind
    ds_swizzle_b32 v2, v1 offset:swizzle(SWAP,16)
    v_cmp_lt_f32_e32 vcc_lo, v1, v2
    s_and_b32 vcc_lo, exec_lo, vcc_lo
    s_cbranch_vccnz behind
    v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]
  behind:
    ds_bpermute_b32 v2, v3, v1
    v_readfirstlane_b32 s4, v1
    s_endpgm)";
  CHECK(wrong_in(code) == kNone);
  const auto report = check_masks(parse_listing(code), 32);
  CHECK(report.cross_lane == std::map<std::string, int>{{"bpermute", 1}, {"dpp", 1}, {"matrix", 1}, {"swizzle", 1}});
}

// An instance of the bug that the checker looks for: LLVM moved the lane exchange into the branch, where the other
// lanes are off.
TEST_CASE("exec mask: an instruction sunk into a branch on a lane is found, one after the branch is not") {
  // What LLVM 15 to 19 generated for sum_lanes<32>() before `if (lane_id() == 0)`: the sum moved into the branch.
  const char* code = R"(
    s_mov_b32 s2, exec_lo
    v_cmpx_eq_u32_e32 0, v8
    s_cbranch_execz behind
    v_permlanex16_b32 v2, v2, s0, 0xfedcba98
    v_readfirstlane_b32 s4, v2
  behind:
    s_or_b32 exec_lo, exec_lo, s2
    v_permlanex16_b32 v3, v3, s0, 0xfedcba98
    s_endpgm)";
  const auto findings = check_masks(parse_listing(code), 32).findings;
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].text == "v_permlanex16_b32 v2, v2, s0, 0xfedcba98");
  CHECK(findings[0].address == 12);
  CHECK(findings[0].why == "lanes may be off since +0x4 v_cmpx_eq_u32_e32 0, v8");
}

TEST_CASE("exec mask: every kind of cross-lane instruction is found after every kind of narrowing") {
  for (const char* one :
       {"v_add_f32_dpp v1, v1, v1 row_xmask:1 row_mask:0xf bank_mask:0xf", "v_mov_b32 v1, v2 quad_perm:[1,0,3,2]",
        "v_max_f32_e64_dpp v1, v1, v1 dpp8:[1,0,3,2,5,4,7,6]", "v_mov_b32_dpp v1, v2 row_ror:8",
        "v_mov_b32 v0, v1 wave_shr:1", "v_permlane64_b32 v1, v2", "v_permlane16_b32 v1, v2, s0, s1",
        "ds_swizzle_b32 v1, v2 offset:swizzle(SWAP,4)", "ds_bpermute_b32 v1, v2, v3", "ds_permute_b32 v1, v2, v3",
        "v_mfma_f32_16x16x16f16 v[0:3], v[4:5], v[6:7], v[0:3]",
        "v_swmmac_f32_16x16x32_f16 v[0:7], v[8:11], v[12:19], v20", "v_readlane_b32 s9, v1, s3",
        "v_readlane_b32 s9, v1, 3"})
    for (const char* narrowing :
         {"v_cmpx_eq_u32_e32 0, v8", "s_and_saveexec_b32 s2, vcc_lo", "s_and_b32 exec_lo, exec_lo, s4",
          "s_mov_b32 exec_lo, s4", "s_andn2_b32 exec_lo, exec_lo, s4", "s_and_not1_b32 exec_lo, exec_lo, s4",
          "s_xor_b32 exec_lo, exec_lo, s4", "s_and_not1_saveexec_b32 s2, vcc_lo", "s_andn1_wrexec_b32 s2, s4",
          "s_bfm_b32 exec_lo, s4, 0", "s_wqm_b32 exec_lo, exec_lo", "s_cselect_b32 exec_lo, s4, exec_lo",
          "s_cmov_b32 exec_lo, s4", "s_nand_saveexec_b32 s2, s4", "s_mov_b32 exec_lo, 1",
          "s_load_dword exec_lo, s[0:1], 0x0"}) {
      INFO(narrowing << "; " << one);
      CHECK(wrong_in(std::string(one) + "\n s_endpgm") == kNone);
      CHECK(wrong_in(std::string(narrowing) + "\n" + one + "\n s_endpgm") == Texts{one});
      CHECK(wrong_in(std::string(narrowing) + "\n s_mov_b32 exec_lo, -1\n" + one + "\n s_endpgm") == kNone);
    }
}

TEST_CASE("exec mask: if and else, with waves of 32 and 64") {
  const char* code = R"(
    v_cmp_eq_u32_e32 vcc_lo, 0, v8
    s_and_saveexec_b32 s4, vcc_lo
    s_xor_b32 s4, exec_lo, s4
    s_cbranch_execz flip
    v_mov_b32_e32 v1, 0
  flip:
    s_or_saveexec_b32 s4, s4
    s_xor_b32 exec_lo, exec_lo, s4
    s_cbranch_execz behind
    IN_ELSE
  behind:
    s_or_b32 exec_lo, exec_lo, s4
    v_add_f32_dpp v1, v1, v1 row_xmask:1
    s_endpgm)";
  const auto with = [](std::string text, std::string_view from, std::string_view to) {
    for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
    return text;
  };
  CHECK(wrong_in(with(code, "IN_ELSE", "v_mov_b32_e32 v1, 1")) == kNone);
  CHECK(wrong_in(with(code, "IN_ELSE", "ds_swizzle_b32 v1, v1 offset:4")) == Texts{"ds_swizzle_b32 v1, v1 offset:4"});
  CHECK(wrong_in(with(code, "s_or_b32 exec_lo, exec_lo, s4", "s_nop 0")).size() == 1);
  CHECK(wrong_in(with(code, "s_or_b32 exec_lo, exec_lo, s4", "s_or_b32 exec_lo, exec_lo, s5")).size() == 1);
  std::string wide = with(with(with(code, "exec_lo", "exec"), "vcc_lo", "vcc"), "_b32 s4", "_b64 s[4:5]");
  wide = with(with(with(wide, "_b32 exec", "_b64 exec"), ", s4", ", s[4:5]"), "IN_ELSE", "v_mov_b32_e32 v1, 1");
  CHECK(wrong_in(wide, 64) == kNone);
  // Another instruction overwrites half of the saved mask.
  CHECK(wrong_in(with(wide, "v_mov_b32_e32 v1, 1", "s_mov_b32 s5, 7"), 64).size() == 1);
  CHECK(wrong_in(with(wide, "v_mov_b32_e32 v1, 1", "s_load_dwordx4 s[0:3], s[8:9], 0x0"), 64) == kNone);
  CHECK(wrong_in(with(wide, "v_mov_b32_e32 v1, 1", "s_load_dwordx4 s[4:7], s[8:9], 0x0"), 64).size() == 1);
  CHECK(wrong_in(with(wide, "v_mov_b32_e32 v1, 1", "v_cmp_eq_u32_e64 s[4:5], 0, v1"), 64).size() == 1);
  CHECK(wrong_in(with(wide, "v_mov_b32_e32 v1, 1", "v_div_scale_f32 v1, s[4:5], v1, v2, v3"), 64).size() == 1);
}

TEST_CASE("exec mask: nested loops that lanes leave one by one") {
  const std::string code = R"(
    s_mov_b32 s4, 0
  outer:
    ds_bpermute_b32 v9, v2, v1
    s_mov_b32 s5, 0
  inner:
    v_cmp_lt_i32_e32 vcc_lo, v1, v2
    s_or_b32 s5, vcc_lo, s5
    s_andn2_b32 exec_lo, exec_lo, s5
    s_cbranch_execnz inner
    s_or_b32 exec_lo, exec_lo, s5
    v_cmp_lt_i32_e32 vcc_lo, v3, v4
    s_and_b32 s6, exec_lo, vcc_lo
    s_or_b32 s4, s6, s4
    s_andn2_b32 exec_lo, exec_lo, s4
    s_cbranch_execnz outer
    s_or_b32 exec_lo, exec_lo, s4
    ds_swizzle_b32 v1, v1 offset:swizzle(SWAP,16)
    s_endpgm)";
  // The swizzle after both loops is right; the instruction in the outer loop is wrong from the second iteration on.
  CHECK(wrong_in(code) == Texts{"ds_bpermute_b32 v9, v2, v1"});
  std::string broken = code;
  broken.replace(broken.find("s_or_b32 exec_lo, exec_lo, s5"), 29, "s_mov_b32 s5, 0");
  CHECK(wrong_in(broken).size() == 2);
  broken = code;
  broken.replace(broken.find("s_or_b32 s4, s6, s4"), 19, "s_mov_b32 s4, s6");
  CHECK(wrong_in(broken).size() == 2);
}

TEST_CASE("exec mask: a break out of a loop joins after it") {
  // From clang 19 for gfx1100: `for (...) { if (a) break; ... }`, where the break also enters the latch.
  const char* code = R"(
    s_mov_b32 s2, exec_lo
    v_cmpx_gt_i32_e64 s1, v0
    s_cbranch_execz behind
    s_mov_b32 s3, 0
    s_branch body
  latch:
    s_or_b32 exec_lo, exec_lo, s9
    s_and_b32 s0, exec_lo, s8
    s_or_b32 s3, s0, s3
    s_and_not1_b32 exec_lo, exec_lo, s3
    s_cbranch_execz out
  body:
    s_or_b32 s8, s8, exec_lo
    s_mov_b32 s9, exec_lo
    v_cmpx_nlt_f32_e32 0x40400000, v7
    s_cbranch_execz latch
    v_add_co_u32 v7, vcc_lo, s4, v7
    s_and_not1_b32 s0, s8, exec_lo
    v_cmp_le_i32_e32 vcc_lo, s1, v6
    s_and_b32 s8, vcc_lo, exec_lo
    s_or_b32 s8, s0, s8
    s_branch latch
  out:
    s_or_b32 exec_lo, exec_lo, s3
  behind:
    s_or_b32 exec_lo, exec_lo, s2
    v_permlane16_b32 v1, v1, s0, s1
    s_endpgm)";
  CHECK(wrong_in(code) == kNone);
}

TEST_CASE("exec mask: masks are restored from the lanes that they were spilled to, and from no others") {
  const std::string code = R"(
    s_and_saveexec_b64 s[4:5], vcc
    v_writelane_b32 v40, s4, 0
    v_writelane_b32 v40, s5, 1
    s_mov_b64 s[4:5], 0
    global_store_dword v0, v40, s[0:1]
    v_readlane_b32 s6, v40, 0
    v_readlane_b32 s7, v40, 1
    s_or_b64 exec, exec, s[6:7]
    v_readlane_b32 s8, v1, 5
    v_mov_b32_dpp v1, v1 row_ror:8
    s_endpgm)";
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string text = code;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  CHECK(wrong_in(code, 64) == kNone);
  // The spill lane was overwritten, was never written, or belongs to the other half of the mask.
  CHECK(wrong_in(with("global_store_dword v0, v40, s[0:1]", "v_mov_b32_e32 v40, v1"), 64).size() == 4);
  CHECK(wrong_in(with("global_store_dword v0, v40, s[0:1]", "global_load_dwordx2 v[39:40], v0, s[0:1]"), 64).size() ==
        4);
  CHECK(wrong_in(with("global_store_dword v0, v40, s[0:1]", "v_writelane_b32 v40, s5, s6"), 64).size() == 2);
  CHECK(wrong_in(with("v_readlane_b32 s7, v40, 1", "v_readlane_b32 s7, v40, 2"), 64).size() == 3);
  CHECK(wrong_in(with("v_readlane_b32 s7, v40, 1", "v_readlane_b32 s7, v40, 0"), 64).size() == 2);
  CHECK(wrong_in(with("v_writelane_b32 v40, s5, 1", "v_writelane_b32 v40, s6, 1"), 64).size() == 2);
}

namespace {

using Mask = std::uint32_t;
struct Operation {
  const char* name;
  Mask (*run)(Mask a, Mask b);
};
/// The ISA guides' definitions: S0 op S1, and S0 op exec.
constexpr std::array kTwo{Operation{"s_and", [](Mask a, Mask b) { return a & b; }},
                          Operation{"s_or", [](Mask a, Mask b) { return a | b; }},
                          Operation{"s_xor", [](Mask a, Mask b) { return a ^ b; }},
                          Operation{"s_andn2", [](Mask a, Mask b) { return a & ~b; }},
                          Operation{"s_or_not1", [](Mask a, Mask b) { return a | ~b; }},
                          Operation{"s_nand", [](Mask a, Mask b) { return ~(a & b); }},
                          Operation{"s_nor", [](Mask a, Mask b) { return ~(a | b); }},
                          Operation{"s_xnor", [](Mask a, Mask b) { return ~(a ^ b); }},
                          Operation{"s_cselect", [](Mask a, Mask b) { return (a & 1U) != 0 ? a : b; }}};
constexpr std::array kSave{Operation{"s_and", [](Mask a, Mask exec) { return a & exec; }},
                           Operation{"s_or", [](Mask a, Mask exec) { return a | exec; }},
                           Operation{"s_xor", [](Mask a, Mask exec) { return a ^ exec; }},
                           Operation{"s_and_not1", [](Mask a, Mask exec) { return a & ~exec; }},
                           Operation{"s_and_not0", [](Mask a, Mask exec) { return ~a & exec; }},
                           Operation{"s_orn2", [](Mask a, Mask exec) { return a | ~exec; }},
                           Operation{"s_orn1", [](Mask a, Mask exec) { return ~a | exec; }},
                           Operation{"s_nor", [](Mask a, Mask exec) { return ~(a | exec); }}};

/// Executes instructions on the values of s0 to s3 and exec, for comparison with the checker's facts.
class Machine {
 public:
  explicit Machine(std::mt19937& random) : random_(random) {
    for (Mask& one : registers_) one = random_();
    registers_[kExec] = ~Mask{0};
  }
  /// Executes a random mask instruction and returns its text.
  std::string step() {
    const auto pick = [&](std::size_t count) { return random_() % count; };
    const std::size_t to = pick(5), a = pick(5), b = pick(5);
    switch (pick(6)) {
      case 0:
        registers_[to] = registers_[a];
        return fmt::format("s_mov_b32 {}, {}", name(to), name(a));
      case 1:
        registers_[to] = ~registers_[a];
        return fmt::format("s_not_b32 {}, {}", name(to), name(a));
      case 2: {
        const auto& op = kSave.at(pick(kSave.size()));
        const std::size_t saved = pick(4);
        const Mask old = registers_[kExec];
        registers_[kExec] = op.run(registers_[a], old);
        registers_[saved] = old;
        return fmt::format("{}_saveexec_b32 {}, {}", op.name, name(saved), name(a));
      }
      case 3: {
        const std::size_t saved = pick(4);
        registers_[kExec] = registers_[a] & ~registers_[kExec];
        registers_[saved] = registers_[kExec];
        return fmt::format("s_andn2_wrexec_b32 {}, {}", name(saved), name(a));
      }
      default: {
        const auto& op = kTwo.at(pick(kTwo.size()));
        registers_[to] = op.run(registers_[a], registers_[b]);
        return fmt::format("{}_b32 {}, {}, {}", op.name, name(to), name(a), name(b));
      }
    }
  }
  [[nodiscard]] bool all_on() const { return registers_[kExec] == ~Mask{0}; }

 private:
  static constexpr std::size_t kExec = 4;
  static std::string name(std::size_t at) { return at == kExec ? "exec_lo" : fmt::format("s{}", at); }
  std::mt19937& random_;
  std::array<Mask, 5> registers_{};
};

}  // namespace

// Soundness of the analysis: runs random mask instructions on random values beside the checker. Whenever the checker
// concludes that all lanes are on, the values must agree.
TEST_CASE("exec mask: whenever the checker finds all lanes on, they are on") {
  std::mt19937 random(5);  // NOLINT(bugprone-random-generator-seed): the same each time
  const std::set<int> spills;
  int known = 0, lost = 0;
  for (int run = 0; run < 3000; ++run) {
    Machine machine(random);
    MaskState state(32, &spills);
    std::string code;
    for (int i = 0; i < 9; ++i) {
      const std::string text = machine.step();
      code += text + "\n";
      state.run(parse_listing(text).at(0).instructions.at(0));
      if (state.all_on() && !machine.all_on()) FAIL(code);
      ++(state.all_on() ? known : lost);
    }
  }
  CHECK(known > 3000);  // otherwise the test could pass without any facts
  CHECK(lost > 3000);
}

TEST_CASE("exec mask: unresolvable jumps and code that runs past its end are findings") {
  CHECK(wrong_in("s_setpc_b64 s[30:31]") == Texts{"s_setpc_b64 s[30:31]"});
  CHECK(wrong_in("s_swappc_b64 s[30:31], s[4:5]\n s_endpgm").size() == 1);
  CHECK(wrong_in("s_cbranch_scc0 nowhere\n s_endpgm").size() == 1);
  CHECK(wrong_in("s_nop 0") == Texts{"s_nop 0"});
  CHECK(wrong_in("s_endpgm\n v_cmpx_eq_u32_e32 0, v8\n v_permlane64_b32 v1, v2") == kNone);  // unreachable code
}

TEST_CASE("exec mask: llvm-objdump listings: symbols, addresses, branch offsets in words") {
  const char* text =
      "\nk.o:\tfile format elf64-amdgpu\n\nDisassembly of section .text:\n\n0000000000001600 <first>:\n"
      "\ts_mov_b64 s[2:3], exec                                     // 000000001600: BE82017E\n"
      "\tv_cmpx_gt_i32_e32 vcc, s1, v0                              // 000000001604: D4C4007E 00020001\n"
      "\ts_cbranch_execz 2                                          // 00000000160C: BFA50002 <first+0x18>\n"
      "\tv_add_f32_dpp v1, v1, v1 row_ror:8 row_mask:0xf bank_mask:0xf bound_ctrl:1// 000000001610: 060202FA FF096101\n"
      "\ts_or_b64 exec, exec, s[2:3]                                // 000000001618: 8C7E027E\n"
      "\ts_cbranch_scc1 65534                                       // 00000000161C: BFA0FFFE <first+0x18>\n"
      "\ts_endpgm                                                   // 000000001620: BFB00000\n"
      "\t\t...\n0000000000001700 <second>:\n"
      "\tds_swizzle_b32 v1, v2 offset:swizzle(SWAP,16)              // 000000001700: D8D4401F 01000002\n"
      "\ts_endpgm                                                   // 000000001708: BFB00000\n";
  const auto functions = parse_listing(text);
  REQUIRE(functions.size() == 2);
  CHECK(functions[0].name == "first");
  CHECK(functions[0].instructions.size() == 7);
  CHECK(functions[0].instructions[2].target == 0x1618);
  CHECK(functions[0].instructions[5].target == 0x1618);
  CHECK(wave_of(functions) == 64);
  const auto report = check_masks(functions, 64);
  REQUIRE(report.findings.size() == 1);
  CHECK(
      line_of(report.findings[0]) ==
      "first+0x10: v_add_f32_dpp v1, v1, v1 row_ror:8 row_mask:0xf bank_mask:0xf bound_ctrl:1: lanes may be off since "
      "+0x4 v_cmpx_gt_i32_e32 vcc, s1, v0");
  CHECK(report.kernels == 2);
}

}  // namespace forge::tests
