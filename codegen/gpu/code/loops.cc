#include "codegen/gpu/code/loops.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace forge::codegen {
namespace {

/// Far above what kernels have (some 500): dominators take memory by the square of it.
constexpr std::size_t kBlocksMax = 8192;

std::vector<BasicBlock> blocks_of(const Function& function, bool& unseen) {
  const auto& code = function.instructions;
  std::set<std::size_t> starts{0};
  for (std::size_t i = 0; i < code.size(); ++i) {
    unseen |= jumps_unseen(code[i]);
    if (!is_branch(code[i]) && !is_end(code[i])) continue;
    starts.insert(i + 1);
    if (!is_branch(code[i])) continue;
    const auto to = code[i].target ? instruction_at(code, *code[i].target) : std::nullopt;
    unseen |= !to;
    if (to) starts.insert(*to);
  }
  starts.erase(code.size());
  std::vector<BasicBlock> blocks;
  std::map<std::size_t, std::size_t> block_at;
  for (auto start = starts.begin(); start != starts.end(); ++start) {
    const auto end = std::next(start);
    block_at.emplace(*start, blocks.size());
    blocks.push_back({.first = *start, .end = end == starts.end() ? code.size() : *end, .next = {}});
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Instruction& last = code[blocks[i].end - 1];
    const bool falls = !is_end(last) && last.mnemonic != "s_branch";
    if (falls && i + 1 < blocks.size()) blocks[i].next.push_back(i + 1);
    if (!is_branch(last) || !last.target) continue;
    if (const auto to = instruction_at(code, *last.target)) {
      const auto target = block_at.at(*to);
      if (std::ranges::find(blocks[i].next, target) == blocks[i].next.end()) blocks[i].next.push_back(target);
    }
  }
  return blocks;
}

/// dominates[b][a]: every path from the entry to b passes a. Iterates until nothing changes.
std::vector<std::vector<bool>> dominators(const std::vector<BasicBlock>& blocks) {
  const std::size_t count = blocks.size();
  std::vector<std::vector<std::size_t>> before(count);
  for (std::size_t i = 0; i < count; ++i)
    for (const auto next : blocks[i].next) before[next].push_back(i);
  std::vector<std::vector<bool>> by(count, std::vector<bool>(count, true));
  by[0].assign(count, false);
  by[0][0] = true;
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 1; i < count; ++i) {
      std::vector<bool> all(count, true);
      for (const auto one : before[i])
        for (std::size_t a = 0; a < count; ++a) all[a] = all[a] && by[one][a];
      all[i] = true;
      if (all == by[i]) continue;
      by[i] = std::move(all);
      changed = true;
    }
  }
  return by;
}

/// The blocks from which `latch` can be reached without `header`.
void collect(const std::vector<std::vector<std::size_t>>& before, std::size_t header, std::size_t latch,
             std::set<std::size_t>& members) {
  std::vector<std::size_t> pending{latch};
  while (!pending.empty()) {
    const auto one = pending.back();
    pending.pop_back();
    if (one == header || !members.insert(one).second) continue;
    pending.insert(pending.end(), before[one].begin(), before[one].end());
  }
}

std::vector<bool> reachable(const std::vector<BasicBlock>& blocks) {
  std::vector<bool> seen(blocks.size(), false);
  std::vector<std::size_t> pending{0};
  while (!pending.empty()) {
    const auto one = pending.back();
    pending.pop_back();
    if (seen[one]) continue;
    seen[one] = true;
    pending.insert(pending.end(), blocks[one].next.begin(), blocks[one].next.end());
  }
  return seen;
}

}  // namespace

bool is_branch(const Instruction& one) {
  return one.mnemonic == "s_branch" || one.mnemonic.starts_with("s_cbranch_");
}
bool is_end(const Instruction& one) {
  return one.mnemonic.starts_with("s_endpgm");
}
bool jumps_unseen(const Instruction& one) {
  for (const char* stem : {"s_setpc", "s_swappc", "s_call", "s_rfe", "s_subvector", "s_cbranch_g_fork",
                           "s_cbranch_i_fork", "s_cbranch_join"})
    if (one.mnemonic.starts_with(stem)) return true;
  return false;
}
std::optional<std::size_t> instruction_at(std::span<const Instruction> code, std::uint64_t address) {
  const auto at = std::ranges::lower_bound(code, address, {}, &Instruction::address);
  if (at == code.end() || at->address != address) return std::nullopt;
  return static_cast<std::size_t>(at - code.begin());
}

bool ControlFlow::contains(std::size_t loop, std::size_t block) const {
  for (auto around = blocks[block].loop; around != kNoLoop; around = loops[around].parent)
    if (around == loop) return true;
  return false;
}

std::size_t ControlFlow::block_of(std::size_t instruction) const {
  const auto after = std::ranges::upper_bound(blocks, instruction, {}, &BasicBlock::first);
  return static_cast<std::size_t>(after - blocks.begin()) - 1;
}

ControlFlow control_flow(const Function& function) {
  ControlFlow out;
  if (function.instructions.empty()) return out;
  out.blocks = blocks_of(function, out.jumps_unseen);
  if (out.blocks.size() > kBlocksMax) {
    out.jumps_unseen = true;
    return out;
  }
  const auto by = dominators(out.blocks);
  const auto seen = reachable(out.blocks);
  std::vector<std::vector<std::size_t>> before(out.blocks.size());
  for (std::size_t i = 0; i < out.blocks.size(); ++i)
    for (const auto next : out.blocks[i].next)
      if (seen[i]) before[next].push_back(i);
  std::map<std::size_t, std::set<std::size_t>> members;  // of each header's loop
  for (std::size_t i = 0; i < out.blocks.size(); ++i)
    for (const auto next : out.blocks[i].next) {
      if (!seen[i] || !by[i][next]) continue;
      members[next].insert(next);
      collect(before, next, i, members[next]);
    }
  for (const auto& [header, blocks] : members)
    out.loops.push_back({.header = header, .blocks = {blocks.begin(), blocks.end()}});
  std::ranges::stable_sort(out.loops, std::greater<>(), [](const NaturalLoop& loop) { return loop.blocks.size(); });
  for (std::size_t i = 0; i < out.loops.size(); ++i) {
    out.loops[i].parent = out.blocks[out.loops[i].header].loop;
    for (const auto block : out.loops[i].blocks) out.blocks[block].loop = i;
  }
  return out;
}

}  // namespace forge::codegen
