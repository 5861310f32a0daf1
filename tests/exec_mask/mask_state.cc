// The ISA model of the exec-mask checker: how each instruction changes exec and mask registers (mask_state.h).
#include "tests/exec_mask/mask_state.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace forge::tests {

using namespace codegen;
namespace {

using Kind = MaskOperand::Kind;
constexpr Register kScratch = 0xfffe;  // holds the old exec while an instruction writes both

struct NamedOp {
  std::string_view name;
  MaskOp op;
  bool swapped = false;  ///< op(b, a)
};
/// Two-operand s_NAME_b32 and s_NAME_b64; gfx11 renamed some of them.
constexpr std::array kOps{
    NamedOp{"and", MaskOp::kAnd},       NamedOp{"or", MaskOp::kOr},           NamedOp{"xor", MaskOp::kXor},
    NamedOp{"andn2", MaskOp::kAndNot},  NamedOp{"and_not1", MaskOp::kAndNot}, NamedOp{"orn2", MaskOp::kOrNot},
    NamedOp{"or_not1", MaskOp::kOrNot}, NamedOp{"nand", MaskOp::kNand},       NamedOp{"nor", MaskOp::kNor},
    NamedOp{"xnor", MaskOp::kXnor},     NamedOp{"cselect", MaskOp::kSelect}};
/// Operations that exist only as s_NAME_saveexec and s_NAME_wrexec.
constexpr std::array kExecOps{NamedOp{"andn1", MaskOp::kAndNot, true}, NamedOp{"and_not0", MaskOp::kAndNot, true},
                              NamedOp{"orn1", MaskOp::kOrNot, true}, NamedOp{"or_not0", MaskOp::kOrNot, true}};

template <std::size_t Count>
const NamedOp* find_op(const std::array<NamedOp, Count>& ops, std::string_view name) {
  const auto at = std::ranges::find(ops, name, &NamedOp::name);
  return at == ops.end() ? nullptr : &*at;
}

/// The half of an operand with number `index`: 0 for lanes 0 to 31, 1 for lanes 32 to 63.
MaskOperand mask_operand(std::string_view text, std::size_t index) {
  const auto registers = scalar_registers(text);
  if (index < registers.size()) return {Kind::kRegister, registers[index]};
  if (text == "0") return {Kind::kZeros};
  if (text == "-1" || (index == 0 && text == "0xffffffff")) return {Kind::kOnes};
  return {};
}

std::optional<int> lane_of(std::string_view text) {
  int lane = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), lane);
  if (failed != std::errc{} || end != text.data() + text.size() || lane < 0 || lane > 63) return std::nullopt;
  return lane;
}

/// Scalar instructions whose first operand is not a destination.
bool writes_nothing(std::string_view mnemonic) {
  for (const char* stem :
       {"s_cmp", "s_bitcmp", "s_branch", "s_cbranch", "s_waitcnt", "s_wait_", "s_store", "s_buffer_store",
        "s_scratch_store", "s_setreg", "s_sendmsg", "s_prefetch", "s_buffer_prefetch"})
    if (mnemonic.starts_with(stem) && !mnemonic.starts_with("s_sendmsg_rtn")) return true;
  return false;
}

}  // namespace

MaskState::MaskState(int wave, const std::set<int>* spills)
    : wave_(wave), spills_(spills), low_(Covers::at_entry(kExecLow)), high_(Covers::at_entry(kExecHigh)) {}

bool MaskState::all_on() const {
  return low_.has_all(kExecLow) && (wave_ == 32 || high_.has_all(kExecHigh));
}

void MaskState::assign(Register to, MaskOp op, MaskOperand a, MaskOperand b) {
  low_.assign(to, op, a, b);
  high_.assign(to, op, a, b);
}

void MaskState::forget(std::string_view operand) {
  for (const Register at : scalar_registers(operand)) {
    low_.forget(at);
    high_.forget(at);
  }
}

bool MaskState::none_on() {
  low_.set_zero(kExecLow);
  if (wave_ == 64) high_.set_zero(kExecHigh);
  return !low_.impossible() && (wave_ == 32 || !high_.impossible());
}

bool MaskState::meet(const MaskState& other) {
  const MaskState before = *this;
  low_.meet(other.low_);
  high_.meet(other.high_);
  std::erase_if(written_, [&](Register slot) { return !other.written_.contains(slot); });
  if (all_on())
    narrowed_by_ = nullptr;
  else if (narrowed_by_ == nullptr)
    narrowed_by_ = other.narrowed_by_;
  return low_ != before.low_ || high_ != before.high_ || written_ != before.written_;
}

void MaskState::run(const Instruction& instruction) {
  const bool were_on = all_on();
  if (instruction.mnemonic.starts_with("s_"))
    run_scalar(instruction);
  else
    run_vector(instruction);
  if (all_on())
    narrowed_by_ = nullptr;
  else if (were_on || narrowed_by_ == nullptr)
    narrowed_by_ = &instruction;
}

void MaskState::run_scalar(const Instruction& instruction) {
  if (writes_nothing(instruction.mnemonic) || run_mask_op(instruction)) return;
  // s_movrel's destination is given by another register, so all facts are lost.
  if (instruction.mnemonic.starts_with("s_movrel")) low_ = high_ = Covers();
  forget(instruction.operand(0));
}

bool MaskState::run_mask_op(const Instruction& instruction) {
  std::string_view name = instruction.mnemonic;
  if (!name.ends_with("_b32") && !name.ends_with("_b64")) return false;
  name = name.substr(2, name.size() - 6);
  if (name.ends_with("_saveexec")) return run_save_exec(instruction, name.substr(0, name.size() - 9), true);
  if (name.ends_with("_wrexec")) return run_save_exec(instruction, name.substr(0, name.size() - 7), false);
  const bool copies = name == "mov" || name == "not" || name == "cmov";
  const NamedOp* op = find_op(kOps, name);
  if (!copies && op == nullptr) return false;
  const auto to = scalar_registers(instruction.operand(0));
  for (std::size_t half = 0; half < to.size(); ++half) {
    const MaskOperand a = mask_operand(instruction.operand(1), half), b = mask_operand(instruction.operand(2), half);
    if (name == "cmov")
      assign(to[half], MaskOp::kSelect, a, {Kind::kRegister, to[half]});
    else if (copies)
      assign(to[half], name == "mov" ? MaskOp::kCopy : MaskOp::kNot, a);
    else
      assign(to[half], op->op, a, b);
  }
  return true;
}

/// D = old exec (s_*_saveexec) or new exec (s_*_wrexec); exec = S op exec.
bool MaskState::run_save_exec(const Instruction& instruction, std::string_view name, bool saves_old) {
  const NamedOp* op = find_op(kOps, name);
  if (op == nullptr) op = find_op(kExecOps, name);
  if (op == nullptr || op->op == MaskOp::kSelect) {
    forget(instruction.operand(0));
    forget("exec");
    return true;
  }
  const auto to = scalar_registers(instruction.operand(0));
  for (std::size_t half = 0; half < to.size(); ++half) {
    const auto exec = static_cast<Register>(kExecLow + half);
    const MaskOperand source = mask_operand(instruction.operand(1), half), old{Kind::kRegister, kScratch};
    assign(kScratch, MaskOp::kCopy, {Kind::kRegister, exec});
    assign(exec, op->op, op->swapped ? old : source, op->swapped ? source : old);
    assign(to[half], MaskOp::kCopy, saves_old ? old : MaskOperand{Kind::kRegister, exec});
    low_.forget(kScratch);
    high_.forget(kScratch);
  }
  return true;
}

void MaskState::run_vector(const Instruction& instruction) {
  const std::string_view mnemonic = instruction.mnemonic;
  const auto vector = [&](std::size_t index) { return vector_registers(instruction.operand(index)); };
  const auto lane = lane_of(instruction.operand(2));
  if (mnemonic.starts_with("v_writelane") && vector(0)) {
    const int to = vector(0)->first;
    for (int i = lane.value_or(0); i <= lane.value_or(63); ++i)
      assign(spill_slot(to, i), MaskOp::kCopy, lane ? mask_operand(instruction.operand(1), 0) : MaskOperand{});
    if (lane) written_.insert(spill_slot(to, *lane));
    return;
  }
  if (mnemonic.starts_with("v_readlane") && vector(1) && lane && is_spilled(vector(1)->first, *lane)) {
    for (const Register to : scalar_registers(instruction.operand(0)))
      assign(to, MaskOp::kCopy, {Kind::kRegister, spill_slot(vector(1)->first, *lane)});
    return;
  }
  forget_spills(instruction);
  // The scalar result of a vector instruction is its first operand, or the second if the first is a vector register.
  forget(instruction.operand(0));
  forget(instruction.operand(1));
  if (mnemonic.starts_with("v_cmpx")) forget("exec");
}

/// Any instruction that names such a vector register and is not a store may overwrite it.
void MaskState::forget_spills(const Instruction& instruction) {
  if (spills_->empty() || instruction.mnemonic.find("_store") != std::string::npos) return;
  for (const std::string& operand : instruction.operands) {
    const auto range = vector_registers(operand);
    if (!range) continue;
    for (auto at = spills_->lower_bound(range->first); at != spills_->end() && *at <= range->second; ++at)
      for (int lane = 0; lane < 64; ++lane) {
        low_.forget(spill_slot(*at, lane));
        high_.forget(spill_slot(*at, lane));
        written_.erase(spill_slot(*at, lane));
      }
  }
}

}  // namespace forge::tests
