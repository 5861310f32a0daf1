#pragma once
// Base class of all readers of a plan's CPU steps. It takes numbers, operands and addresses from the plan and checks
// each one; a plan file is untrusted input, and nothing of it is used without passing through here.

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "runtime/cpu/cpu_program.h"
#include "runtime/plan/step.h"
#include "support/error.h"

namespace forge::runtime {

/// Rows of floats: the address of row 0, and the distance of rows in floats.
struct FloatRows {
  std::byte* data = nullptr;
  std::size_t stride = 0;
};

/// References the plan and the executor's memory, which must outlive it. Every function throws Error(kPlan), naming the
/// variant and the step, if the plan is invalid.
class PlanReader {
 public:
  PlanReader(const plan::VariantT& variant, const plan::ProgramT& program, const Blocks& blocks, const StepIo& io,
             const cpu::Kernels& kernels)
      : in_(variant), program_(program), blocks_(blocks), io_(io), kernels_(kernels) {}

 protected:
  static float* floats(std::byte* address) { return reinterpret_cast<float*>(address); }
  static std::int32_t* ints(std::byte* address) { return reinterpret_cast<std::int32_t*>(address); }

  /// Throws; `why` states what is wrong with the step.
  [[noreturn]] void fail(std::string why) const {
    throw Error(ErrorCode::kPlan,
                fmt::format("plan variant '{}', step '{}' is broken", in_.name, step_ ? step_->label : ""),
                std::move(why), "compile the plan again");
  }

  /// `value` if it is in [low, high].
  std::size_t number(std::int64_t value, std::int64_t low, std::int64_t high = kNumberMax) const {
    if (value < low || value > high) fail(fmt::format("a number is out of range: {}", value));
    return static_cast<std::size_t>(value);
  }
  /// The entry of `values` for an enum value of plan.fbs; rejects values that the enum does not have.
  template <class Enum, class Value, std::size_t N>
  Value member(Enum which, const Value (&values)[N]) const {
    return values[number(static_cast<std::int64_t>(which), 0, N - 1)];
  }

  /// True if an optional operand is present. `role` is an index into the step's operands.
  static bool has_operand(std::uint16_t role) { return role != plan::kNoOperand; }
  /// The operand with this role.
  const plan::Operand& operand(std::uint16_t role) const {
    if (role >= step_->operands.size()) fail("an operand is missing");
    return step_->operands[role];
  }

  /// Checks an operand's element type.
  void require_type(std::uint16_t role, DType wanted) const {
    const auto* type = find_dtype(operand(role).dtype());
    if (type == nullptr || type->type != wanted)
      fail(fmt::format("an operand has type {}, not {}", type == nullptr ? "unknown" : type->name, dtype_name(wanted)));
  }

  /// The address of `bytes` bytes at an operand. Checks the memory space (only arena and output may be written), the
  /// bounds and the alignment of floats.
  std::byte* resolve(const plan::Operand& of, std::size_t bytes, bool write) const {
    const Blocks::Block* block = nullptr;
    switch (of.space()) {
      case plan::Space::Arena:
        block = &blocks_.arena;
        break;
      case plan::Space::Output:
        block = &blocks_.output;
        break;
      case plan::Space::Weights:
        block = write ? nullptr : &blocks_.weights;
        break;
      case plan::Space::Constants:
        block = write ? nullptr : &blocks_.constants;
        break;
      case plan::Space::File:
        if (of.index() >= blocks_.files.size()) fail("an operand is in a file that the model does not have");
        block = write ? nullptr : &blocks_.files[of.index()];
        break;
      default:
        break;
    }
    if (block == nullptr) fail("an operand is in a memory space that is not allowed here");
    // Written so that no sum can overflow: offset and size are numbers of the plan.
    if (of.offset() > block->bytes || bytes > block->bytes - of.offset())
      fail(fmt::format("an operand of {} bytes at offset {} exceeds its block of {} bytes", bytes, of.offset(),
                       block->bytes));
    if (of.offset() % sizeof(float) != 0 && of.space() != plan::Space::File) fail("an operand is not aligned");
    return block->data + of.offset();
  }
  /// Address of an operand that the step reads, or writes.
  std::byte* read(std::uint16_t role, std::size_t bytes) const { return resolve(operand(role), bytes, false); }
  std::byte* writable(std::uint16_t role, std::size_t bytes) const { return resolve(operand(role), bytes, true); }

  /// An operand that is `rows` rows of `width` floats.
  FloatRows rows_at(const plan::Operand& of, std::size_t rows, std::size_t width, bool write) const {
    const std::size_t stride = of.row_bytes() / sizeof(float);
    if (of.row_bytes() % sizeof(float) != 0 || stride == 0)
      fail("the distance between rows is not a multiple of 4 bytes");
    if (stride < width) fail("rows overlap");
    return {resolve(of, ((rows - 1) * stride + width) * sizeof(float), write), stride};
  }
  FloatRows read_rows(std::uint16_t role, std::size_t rows, std::size_t width) const {
    return rows_at(operand(role), rows, width, false);
  }
  FloatRows writable_rows(std::uint16_t role, std::size_t rows, std::size_t width) const {
    return rows_at(operand(role), rows, width, true);
  }

  /// The address of a step input (StepIo), by its number in the plan.
  const std::int32_t* input(const plan::Operand& of) const {
    if (of.space() != plan::Space::Input || of.offset() != 0) fail("an operand is not a step input");
    switch (of.index()) {
      case 0:
        return io_.ids.data();
      case 1:
        return io_.positions.data();
      case 2:
        return io_.sequence.data();
      case kRowsInput:
        return io_.rows.data();
      default:
        fail("an unknown step input");
    }
  }
  /// The KV group of an operand; checks its layer too.
  const plan::KvGroup& kv_group(const plan::Operand& of) const {
    if (of.space() != plan::Space::Kv || of.index() >= program_.kv_groups.size()) fail("an operand is not a KV group");
    const auto& group = program_.kv_groups[of.index()];
    if (of.offset() >= static_cast<std::uint64_t>(group.layers())) fail("a KV layer is out of range");
    return group;
  }
  /// Byte offset of the operand's layer in one block of its group: a block has all layers.
  std::size_t layer_offset(const plan::Operand& of) const {
    return of.offset() * static_cast<std::size_t>(program_.kv_groups[of.index()].block_bytes());
  }

  /// The largest number of tokens, or of logit rows, that the step has in this variant; rows_of counts slots too.
  std::size_t tokens_of(const CpuStep& step) const {
    return number(step.rows_are_logits ? in_.bounds.rows() : in_.bounds.tokens(), 1, kRowsMax);
  }
  std::size_t rows_of(const CpuStep& step) const { return tokens_of(step) * step.slots; }
  /// Reads whether the step's rows are tokens or logit rows.
  void take_rows(plan::RowCount rows, CpuStep& out) const {
    constexpr bool kAreLogits[] = {false, true};
    out.rows_are_logits = member(rows, kAreLogits);
  }
  /// Reads the number of slots per token.
  void take_slots(std::int32_t slots, CpuStep& out) const {
    out.slots = number(slots, 1, static_cast<std::int64_t>(cpu::kExpertsMax));
    if (rows_of(out) > kRowsMax) fail("the step has too many rows");
  }

  static constexpr unsigned kRowsInput = 3;
  static constexpr std::size_t kRowsMax = 1 << 20;  // with kNumberMax: products of sizes fit 64 bits
  static constexpr std::int64_t kNumberMax = std::int64_t{1} << 40;
  static constexpr std::int64_t kColumnsMax = 1 << 28;  // of a step; a weight's bytes fit 64 bits as well

  const plan::VariantT& in_;
  const plan::ProgramT& program_;
  const Blocks& blocks_;
  const StepIo& io_;
  const cpu::Kernels& kernels_;
  const plan::StepT* step_ = nullptr;  ///< the step being read
};

}  // namespace forge::runtime
