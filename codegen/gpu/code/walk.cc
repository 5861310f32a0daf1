#include "codegen/gpu/code/walk.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "codegen/gpu/code/wave_rules.h"

namespace forge::codegen {
namespace {

/// Where the argument struct lies: below all addresses that arguments hold.
constexpr std::uint64_t kArgumentsAt = 0x10000;

/// Adds the argument struct to the walk's memory.
class WithArguments final : public WalkMemory {
 public:
  WithArguments(const std::vector<std::uint64_t>& arguments, WalkMemory& rest) : arguments_(arguments), rest_(rest) {}
  std::optional<std::uint32_t> load(std::uint64_t address) override {
    const auto at = address - kArgumentsAt;
    if (address < kArgumentsAt || at / 8 >= arguments_.size() || at % 4 != 0) return rest_.load(address);
    return static_cast<std::uint32_t>(arguments_[at / 8] >> (at % 8 * 8));
  }
  void store(std::uint64_t address, std::optional<std::uint32_t> word) override { rest_.store(address, word); }

 private:
  const std::vector<std::uint64_t>& arguments_;
  WalkMemory& rest_;
};

/// An instruction, ready to run.
struct Step {
  enum class Kind : std::uint8_t { kRun, kJump, kOnScc, kOnVcc, kOnExec, kUnseen, kBarrier, kEnd } kind = Kind::kRun;
  bool if_set = false;     ///< branches: taken if the condition is set, or some lane is on
  std::size_t target = 0;  ///< index of the branch's target
  std::vector<Operation> operations;
};

Step step_of(const Function& function, const Instruction& one) {
  Step out;
  const std::string_view name = one.mnemonic;
  if (is_end(one)) {
    out.kind = Step::Kind::kEnd;
  } else if (name == "s_barrier" || name == "s_barrier_wait") {
    out.kind = Step::Kind::kBarrier;
  } else if (is_branch(one)) {
    out.kind = name == "s_branch"                   ? Step::Kind::kJump
               : name.starts_with("s_cbranch_scc")  ? Step::Kind::kOnScc
               : name.starts_with("s_cbranch_vcc")  ? Step::Kind::kOnVcc
               : name.starts_with("s_cbranch_exec") ? Step::Kind::kOnExec
                                                    : Step::Kind::kUnseen;
    out.if_set = name.ends_with("scc1") || name.ends_with("nz");
    const auto target = one.target ? instruction_at(function.instructions, *one.target) : std::nullopt;
    if (!target) out.kind = Step::Kind::kUnseen;
    out.target = target.value_or(0);
  } else if (class_of(name) == InstructionClass::kBranch) {
    out.kind = Step::Kind::kUnseen;
  } else {
    out.operations = decode(one);
    for (Operation& operation : out.operations) operation.rule = find_rule(operation);
  }
  return out;
}

std::size_t vector_count(const std::vector<Step>& steps) {
  std::size_t count = 1;
  for (const Step& step : steps)
    for (const Operation& operation : step.operations)
      for (const DecodedOperand& operand : operation.operands)
        if (operand.kind == DecodedOperand::Kind::kVector)
          count = std::max<std::size_t>(count, std::size_t{operand.at} + operand.words);
  return count;
}

/// A wave and where it is.
struct Walking {
  Wave wave;
  std::size_t at = 0, block = 0;
  bool ended = false;
  std::vector<std::uint64_t> entered;     ///< by loop
  std::vector<std::uint64_t> guessed_at;  ///< by block, whose branch ends it: `entered` of its loop, plus 1
};

class Walker {
 public:
  Walker(const Function& function, const ControlFlow& flow, const WalkLaunch& launch, WalkMemory& memory,
         const WalkOptions& options)
      : flow_(flow), launch_(launch), memory_(launch.arguments, memory), options_(options) {
    for (const Instruction& one : function.instructions) steps_.push_back(step_of(function, one));
    block_at_.assign(steps_.size() + 1, kNoLoop);
    for (std::size_t i = 0; i < flow.blocks.size(); ++i) block_at_[flow.blocks[i].first] = i;
    vectors_ = vector_count(steps_);
    counts_.executed.assign(steps_.size(), 0);
    counts_.entries.assign(flow.loops.size(), 0);
    counts_.guessed_loops.assign(flow.loops.size(), false);
    counts_.complete = !flow.jumps_unseen;
  }

  WalkCounts run() {
    if (steps_.empty() || launch_.blocks <= 0) return std::move(counts_);
    walk_block(0);
    const auto cost = std::max<std::uint64_t>(executed_, 1);
    const auto most = std::max<std::int64_t>(2, static_cast<std::int64_t>(options_.budget / cost));
    const auto walked = std::min(launch_.blocks, most);
    for (std::int64_t i = 1; i < walked && counts_.complete; ++i)
      walk_block(walked == launch_.blocks ? i : sampled_block(i, walked));
    scale(static_cast<double>(launch_.blocks) / static_cast<double>(counts_.blocks_walked));
    return std::move(counts_);
  }

 private:
  /// A block of the i-th of `count` equal parts of the grid. It is not always the same place in a part, because what
  /// blocks do may repeat with a period.
  [[nodiscard]] std::int64_t sampled_block(std::int64_t i, std::int64_t count) const {
    const auto begin = i * launch_.blocks / count, end = (i + 1) * launch_.blocks / count;
    const auto mixed = (static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15U) >> 33;  // Fibonacci hashing
    return begin +
           static_cast<std::int64_t>(mixed % static_cast<std::uint64_t>(std::max<std::int64_t>(end - begin, 1)));
  }

  void scale(double by) {
    for (double& count : counts_.executed) count *= by;
    for (double& count : counts_.entries) count *= by;
    counts_.decisions *= by;
    counts_.guesses *= by;
  }

  void walk_block(std::int64_t number) {
    WalkLds lds(launch_.lds_bytes);
    const int lanes = launch_.wave, waves = (launch_.threads + lanes - 1) / lanes;
    std::vector<Walking> all;
    for (int i = 0; i < waves; ++i) {
      Walking one{.wave = Wave(lanes, vectors_, lds, memory_),
                  .entered = std::vector<std::uint64_t>(flow_.loops.size()),
                  .guessed_at = std::vector<std::uint64_t>(flow_.blocks.size())};
      one.wave.set_mask(kExecLow, Known::of(Known::low_mask(std::min(lanes, launch_.threads - i * lanes))));
      one.wave.set_scalar(launch_.entry.arguments, 64, Known::of(kArgumentsAt));
      one.wave.set_scalar(launch_.entry.block, 32, Known::of(static_cast<std::uint64_t>(number)));
      for (int lane = 0; lane < lanes; ++lane)
        one.wave.vectors[0].set(lane, static_cast<std::uint32_t>(i * lanes + lane));
      enter(one, 0, true);
      all.push_back(std::move(one));
    }
    const auto before = executed_;
    for (bool some = true; some && counts_.complete;) {
      some = false;
      for (Walking& one : all) {
        if (one.ended) continue;
        run_to_barrier(one);
        some |= !one.ended;
        if (executed_ - before > options_.block_budget) counts_.complete = false;
        if (!counts_.complete) break;
      }
    }
    ++counts_.blocks_walked;
  }

  /// Goes on at an instruction that starts a block.
  void enter(Walking& one, std::size_t at, bool begins = false) {
    one.at = at;
    if (at >= steps_.size() || block_at_[at] == kNoLoop) return;
    const auto block = block_at_[at];
    const auto loop = flow_.blocks[block].loop;
    if (loop != kNoLoop && flow_.loops[loop].header == block && (begins || !flow_.contains(loop, one.block))) {
      ++one.entered[loop];
      ++counts_.entries[loop];
    }
    one.block = block;
  }

  void run_to_barrier(Walking& one) {
    const auto limit = executed_ + options_.block_budget;
    while (executed_ <= limit) {
      if (one.at >= steps_.size()) {
        one.ended = true;
        return;
      }
      const Step& step = steps_[one.at];
      ++counts_.executed[one.at];
      ++executed_;
      switch (step.kind) {
        case Step::Kind::kRun:
          run(one.wave, step);
          break;
        case Step::Kind::kEnd:
          one.ended = true;
          return;
        case Step::Kind::kUnseen:
          counts_.complete = false;
          return;
        case Step::Kind::kBarrier:
          enter(one, one.at + 1);
          return;
        default:
          enter(one, taken(one, step) ? step.target : one.at + 1);
          continue;
      }
      enter(one, one.at + 1);
    }
    counts_.complete = false;
  }

  /// The halves of a dual instruction read their operands before either writes.
  static void run(Wave& wave, const Step& step) {
    if (step.operations.size() < 2) return wave.run(step.operations.front());
    const auto& to = step.operations[0].operands.front();
    const bool vector = to.kind == DecodedOperand::Kind::kVector;
    const Lanes before = vector ? wave.vectors[to.at] : Lanes{};
    wave.run(step.operations[0]);
    if (!vector) return wave.run(step.operations[1]);
    const Lanes first = std::exchange(wave.vectors[to.at], before);
    wave.run(step.operations[1]);
    wave.vectors[to.at] = first;
  }

  bool taken(Walking& one, const Step& step) {
    if (step.kind == Step::Kind::kJump) return true;
    ++counts_.decisions;
    const Wave& wave = one.wave;
    const Maybe condition = step.kind == Step::Kind::kOnScc   ? wave.scc
                            : step.kind == Step::Kind::kOnVcc ? any(wave.mask(kVccLow), wave.lanes)
                                                              : any(wave.exec(), wave.lanes);
    if (condition != Maybe::kUnknown) return (condition == Maybe::kYes) == step.if_set;
    ++counts_.guesses;
    return guess(one, step);
  }

  bool guess(Walking& one, const Step& step) {
    const auto loop = flow_.blocks[one.block].loop;
    const auto target = block_at_[step.target], behind = block_at_[one.at + 1];
    if (loop != kNoLoop && behind != kNoLoop) {
      const bool stays = flow_.contains(loop, target), falls_out = !flow_.contains(loop, behind);
      if (stays == falls_out) {  // one of the two ways leaves the loop
        counts_.guessed_loops[loop] = true;
        const auto inside = stays ? target : behind;
        const bool turned = one.guessed_at[one.block] == one.entered[loop] + 1 || inside == flow_.loops[loop].header;
        one.guessed_at[one.block] = one.entered[loop] + 1;
        return turned != stays;
      }
    }
    if (step.kind == Step::Kind::kOnVcc) {
      const bool aside = leads_to(behind, target, loop);
      if (aside != leads_to(target, behind, loop)) return aside;
    }
    return step.kind == Step::Kind::kOnExec && step.if_set;
  }

  /// True if a way leads from one block to another, within one turn of the loop.
  bool leads_to(std::size_t from, std::size_t to, std::size_t loop) {
    if (from == kNoLoop || to == kNoLoop) return false;
    const auto [known, added] = ways_.try_emplace({from, to, loop}, false);
    if (!added) return known->second;
    const auto header = loop == kNoLoop ? kNoLoop : flow_.loops[loop].header;
    std::vector<bool> seen(flow_.blocks.size());
    std::vector<std::size_t> open{from};
    while (!open.empty()) {
      const auto block = open.back();
      open.pop_back();
      if (block == to) return known->second = true;
      if (block == header || seen[block]) continue;
      seen[block] = true;
      open.insert(open.end(), flow_.blocks[block].next.begin(), flow_.blocks[block].next.end());
    }
    return false;
  }

  const ControlFlow& flow_;
  const WalkLaunch& launch_;
  WithArguments memory_;
  WalkOptions options_;
  std::vector<Step> steps_;
  std::vector<std::size_t> block_at_;  ///< by instruction: the block that it starts
  std::map<std::tuple<std::size_t, std::size_t, std::size_t>, bool> ways_;  ///< what leads_to() has found
  std::size_t vectors_ = 1;
  std::uint64_t executed_ = 0;
  WalkCounts counts_;
};

}  // namespace

WalkCounts walk(const Function& function, const ControlFlow& flow, const WalkLaunch& launch, WalkMemory& memory,
                const WalkOptions& options) {
  return Walker(function, flow, launch, memory, options).run();
}

}  // namespace forge::codegen
