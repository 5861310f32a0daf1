#pragma once
// Reading a plan's CPU steps: numbers, operands and addresses, each checked as it is taken. Nothing of a plan is
// believed before it went through here.

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "runtime/cpu/cpu_program.h"
#include "runtime/plan/step.h"
#include "support/error.h"

namespace forge::runtime {

/// Rows of floats with their distance in floats.
struct FloatRows {
  std::byte* data = nullptr;
  std::size_t stride = 0;
};

class PlanReader {
 public:
  PlanReader(const plan::VariantT& variant, const plan::ProgramT& program, const Blocks& blocks, const StepIo& io,
             const cpu::Kernels& kernels)
      : in_(variant), program_(program), blocks_(blocks), io_(io), kernels_(kernels) {}

 protected:
  static float* floats(std::byte* address) { return reinterpret_cast<float*>(address); }
  static std::int32_t* ints(std::byte* address) { return reinterpret_cast<std::int32_t*>(address); }

  [[noreturn]] void fail(std::string why) const {
    throw Error(ErrorCode::kPlan,
                fmt::format("plan variant '{}', step '{}' is broken", in_.name, step_ ? step_->label : ""),
                std::move(why), "compile the plan again");
  }

  std::size_t number(std::int64_t value, std::int64_t low, std::int64_t high = kNumberMax) const {
    if (value < low || value > high) fail(fmt::format("a number is out of range: {}", value));
    return static_cast<std::size_t>(value);
  }
  /// A member of an enum of plan.fbs, by its place in `values`.
  template <class Enum, class Value, std::size_t N>
  Value member(Enum which, const Value (&values)[N]) const {
    return values[number(static_cast<std::int64_t>(which), 0, N - 1)];
  }

  static bool given(std::uint16_t role) { return role != plan::kNoOperand; }
  const plan::Operand& operand(std::uint16_t role) const {
    if (role >= step_->operands.size()) fail("an operand is missing");
    return step_->operands[role];
  }

  void want_type(std::uint16_t role, DType wanted) const {
    const auto* type = find_dtype(operand(role).dtype());
    if (type == nullptr || type->type != wanted)
      fail(fmt::format("an operand is {}, not {}", type == nullptr ? "of no type" : type->name, dtype_name(wanted)));
  }

  /// The address of `bytes` bytes behind an operand; writable spaces only when `write`.
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
    if (block == nullptr) fail("an operand is in a space that does not belong there");
    if (of.offset() > block->bytes || bytes > block->bytes - of.offset())
      fail(fmt::format("an operand of {} bytes at {} leaves its block of {}", bytes, of.offset(), block->bytes));
    if (of.offset() % sizeof(float) != 0 && of.space() != plan::Space::File) fail("an operand is not aligned");
    return block->data + of.offset();
  }
  std::byte* read(std::uint16_t role, std::size_t bytes) const { return resolve(operand(role), bytes, false); }
  std::byte* written(std::uint16_t role, std::size_t bytes) const { return resolve(operand(role), bytes, true); }

  /// `rows` rows of `width` floats.
  FloatRows rows_at(const plan::Operand& of, std::size_t rows, std::size_t width, bool write) const {
    const std::size_t stride = of.row_bytes() / sizeof(float);
    if (of.row_bytes() % sizeof(float) != 0 || stride == 0) fail("rows are no whole floats apart");
    if (stride < width) fail("rows overlap");
    return {resolve(of, ((rows - 1) * stride + width) * sizeof(float), write), stride};
  }
  FloatRows read_rows(std::uint16_t role, std::size_t rows, std::size_t width) const {
    return rows_at(operand(role), rows, width, false);
  }
  FloatRows written_rows(std::uint16_t role, std::size_t rows, std::size_t width) const {
    return rows_at(operand(role), rows, width, true);
  }

  const std::int32_t* input(const plan::Operand& of) const {
    if (of.space() != plan::Space::Input || of.offset() != 0) fail("an operand is no step input");
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
  const plan::KvGroup& kv_group(const plan::Operand& of) const {
    if (of.space() != plan::Space::Kv || of.index() >= program_.kv_groups.size()) fail("an operand is no KV group");
    const auto& group = program_.kv_groups[of.index()];
    if (of.offset() >= static_cast<std::uint64_t>(group.layers())) fail("a KV layer is out of range");
    return group;
  }
  /// Where a layer's block begins inside one block over all layers of its group.
  std::size_t layer_offset(const plan::Operand& of) const {
    return of.offset() * static_cast<std::size_t>(program_.kv_groups[of.index()].block_bytes());
  }

  std::size_t tokens_of(const CpuStep& step) const {
    return number(step.rows_are_logits ? in_.bounds.rows() : in_.bounds.tokens(), 1, kRowsMax);
  }
  std::size_t rows_of(const CpuStep& step) const { return tokens_of(step) * step.slots; }
  void take_rows(plan::RowCount rows, CpuStep& out) const {
    constexpr bool kAreLogits[] = {false, true};
    out.rows_are_logits = member(rows, kAreLogits);
  }
  void take_slots(std::int32_t slots, CpuStep& out) const {
    out.slots = number(slots, 1, static_cast<std::int64_t>(cpu::kExpertsMax));
    if (rows_of(out) > kRowsMax) fail("it has too many rows");
  }

  static constexpr unsigned kRowsInput = 3;
  static constexpr std::size_t kRowsMax = 1 << 20;  // with kNumberMax: no product of sizes leaves 64 bits
  static constexpr std::int64_t kNumberMax = std::int64_t{1} << 40;
  static constexpr std::int64_t kColumnsMax = 1 << 28;  // nor of a weight's bytes: rows of 1 << 24 elements

  const plan::VariantT& in_;
  const plan::ProgramT& program_;
  const Blocks& blocks_;
  const StepIo& io_;
  const cpu::Kernels& kernels_;
  const plan::StepT* step_ = nullptr;  ///< being read
};

}  // namespace forge::runtime
