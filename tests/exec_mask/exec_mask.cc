// The exec-mask checker: a data-flow analysis over the blocks of a kernel (exec_mask.h).
#include "tests/exec_mask/exec_mask.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <set>

#include "codegen/gpu/code/loops.h"
#include "tests/exec_mask/mask_state.h"

namespace forge::tests {

using namespace codegen;
namespace {

struct Stem {
  std::string_view text, name;
};
/// Cross-lane instructions by the start of their mnemonic, and DPP instructions by the modifiers after their operands.
constexpr std::array kStems{Stem{"v_permlane", "permlane"},     Stem{"ds_swizzle", "swizzle"},
                            Stem{"ds_permute", "bpermute"},     Stem{"ds_bpermute", "bpermute"},
                            Stem{"v_wmma", "matrix"},           Stem{"v_swmmac", "matrix"},
                            Stem{"v_mfma", "matrix"},           Stem{"v_smfmac", "matrix"},
                            Stem{"v_readlane", "readlane"},     Stem{"global_load_tr", "transpose"},
                            Stem{"ds_load_tr", "transpose"},    Stem{"ds_read_b64_tr", "transpose"},
                            Stem{"ds_read_b96_tr", "transpose"}};
constexpr std::array kDppModifiers{"quad_perm:", "row_", "wave_", "dpp8:"};

/// A control-flow edge, by what it implies for exec: nothing, no lane on, or some lane on.
enum class Edge : std::uint8_t { kAny, kNoneOn, kSomeOn };

class Checker {
 public:
  Checker(const Function& function, int wave) : function_(function), code_(function.instructions), wave_(wave) {
    for (const Instruction& one : code_)
      if (one.mnemonic.starts_with("v_writelane"))
        if (const auto to = vector_registers(one.operand(0))) spills_.insert(to->first);
    find_blocks();
  }

  MaskReport run() {
    report_.kernels = 1;
    if (code_.empty()) return std::move(report_);
    enter(0, MaskState(wave_, &spills_));
    while (!pending_.empty()) {
      const std::size_t first = *pending_.begin();
      pending_.erase(pending_.begin());
      follow(first, false);
    }
    for (const auto& [first, state] : states_) follow(first, true);
    return std::move(report_);
  }

 private:
  [[nodiscard]] std::optional<std::size_t> target_of(const Instruction& one) const {
    return one.target ? instruction_at(code_, *one.target) : std::nullopt;
  }
  void find_blocks() {
    starts_.insert(0);
    for (std::size_t i = 0; i < code_.size(); ++i) {
      if (!is_branch(code_[i])) continue;
      starts_.insert(i + 1);
      if (const auto to = target_of(code_[i])) starts_.insert(*to);
    }
  }

  void enter(std::size_t first, const MaskState& state) {
    const auto at = states_.find(first);
    if (at == states_.end())
      states_.emplace(first, state);
    else if (!at->second.meet(state))
      return;
    pending_.insert(first);
  }

  /// Analyses the block that starts at `first`. Either reports its findings, or passes the facts on to its successors.
  void follow(std::size_t first, bool reports) {
    MaskState state = states_.at(first);
    for (std::size_t i = first; i < code_.size(); ++i) {
      const Instruction& one = code_[i];
      if (i != first && starts_.contains(i)) {
        if (!reports) enter(i, state);
        return;
      }
      if (reports) look_at(one, state);
      if (is_end(one)) return;
      if (jumps_unseen(one)) return;
      if (is_branch(one)) {
        if (!reports) branch(i, state);
        return;
      }
      state.run(one);
    }
    if (reports) find(code_.back(), "the code goes on behind its end");
  }

  void branch(std::size_t i, const MaskState& state) {
    const std::string_view mnemonic = code_[i].mnemonic;
    const auto go = [&](std::size_t to, bool none_on) {
      MaskState next = state;
      if (!none_on || next.none_on()) enter(to, next);
    };
    if (const auto to = target_of(code_[i])) go(*to, mnemonic == "s_cbranch_execz");
    if (mnemonic != "s_branch" && i + 1 < code_.size()) go(i + 1, mnemonic == "s_cbranch_execnz");
  }

  void find(const Instruction& one, std::string why) {
    report_.findings.push_back({function_.name, one.address, one.text, std::move(why)});
  }
  void look_at(const Instruction& one, const MaskState& state) {
    if (jumps_unseen(one)) find(one, "nobody knows where this goes");
    if (is_branch(one) && !target_of(one)) find(one, "it goes out of the code");
    const auto kind = cross_lane_class(one);
    if (kind.empty()) return;
    if (kind == "readlane") {
      // Scalar registers are restored from the vector lanes that they were spilled to.
      const auto from = vector_registers(one.operand(1));
      const auto lane = one.operand(2);
      int number = 0;
      for (const char c : lane) number = c >= '0' && c <= '9' && number < 64 ? 10 * number + (c - '0') : 64;
      if (from && !lane.empty() && number < 64 && state.is_spilled(from->first, number)) return;
    }
    ++report_.cross_lane[std::string(kind)];
    if (state.all_on()) return;
    const Instruction* by = state.narrowed_by();
    find(one, by == nullptr
                  ? std::string("lanes may be off")
                  : fmt::format("lanes may be off since +0x{:x} {}", by->address - code_.front().address, by->text));
  }

  const Function& function_;
  const std::vector<Instruction>& code_;
  const int wave_;
  std::set<int> spills_;
  std::set<std::size_t> starts_, pending_;
  std::map<std::size_t, MaskState> states_;
  MaskReport report_;
};

}  // namespace

std::string_view cross_lane_class(const Instruction& instruction) {
  const std::string_view mnemonic = instruction.mnemonic;
  for (const Stem& stem : kStems)
    if (mnemonic.starts_with(stem.text)) return stem.name;
  if (!mnemonic.starts_with("v_")) return {};
  if (mnemonic.find("_dpp") != std::string_view::npos) return "dpp";
  const std::string_view text = instruction.text;
  for (const char* modifier : kDppModifiers)
    if (const auto at = text.find(modifier); at != std::string_view::npos && at > mnemonic.size()) return "dpp";
  return {};
}

void MaskReport::add(const MaskReport& more) {
  findings.insert(findings.end(), more.findings.begin(), more.findings.end());
  kernels += more.kernels;
  for (const auto& [kind, count] : more.cross_lane) cross_lane[kind] += count;
}

MaskReport check_masks(const std::vector<Function>& functions, int wave) {
  MaskReport all;
  for (const Function& function : functions) {
    MaskReport one = Checker(function, wave).run();
    for (MaskFinding& finding : one.findings) finding.address -= function.instructions.front().address;
    all.add(one);
  }
  return all;
}

std::string line_of(const MaskFinding& finding) {
  return fmt::format("{}+0x{:x}: {}: {}", finding.kernel, finding.address, finding.text, finding.why);
}

}  // namespace forge::tests
