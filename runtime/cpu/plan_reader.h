#pragma once
// Reading a plan's CPU steps: numbers, references and addresses, each checked as it is taken. Nothing of a plan is
// believed before it went through here.

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cpu/cpu_program.h"
#include "support/error.h"

namespace forge::runtime {

class PlanReader {
 public:
  PlanReader(const plan::VariantT& variant, const plan::ProgramT& program, const Blocks& blocks, const StepIo& io)
      : in_(variant), program_(program), blocks_(blocks), io_(io) {}

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
  std::size_t int_at(const std::vector<std::int64_t>& ints, std::size_t i, std::int64_t low,
                     std::int64_t high = kNumberMax) const {
    if (i >= ints.size()) fail("a number is missing");
    return number(ints[i], low, high);
  }
  float float_at(const std::vector<float>& floats, std::size_t i) const {
    if (i >= floats.size()) fail("a number is missing");
    return floats[i];
  }
  const plan::Ref& ref_at(const std::vector<plan::Ref>& refs, std::size_t i) const {
    if (i >= refs.size()) fail("a reference is missing");
    return refs[i];
  }

  /// The address of `bytes` bytes behind a ref; writable spaces only when `write`.
  std::byte* resolve(const plan::Ref& ref, std::size_t bytes, bool write) const {
    const Blocks::Block* block = nullptr;
    switch (ref.space()) {
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
        block = write ? nullptr : &blocks_.file;
        break;
      default:
        break;
    }
    if (block == nullptr) fail("a reference is to a space that does not belong there");
    if (ref.offset() > block->bytes || bytes > block->bytes - ref.offset())
      fail(fmt::format("a reference of {} bytes at {} leaves its block of {}", bytes, ref.offset(), block->bytes));
    if (ref.offset() % sizeof(float) != 0 && ref.space() != plan::Space::File) fail("a reference is not aligned");
    return block->data + ref.offset();
  }
  /// `rows` rows of `width` floats, `stride` floats apart.
  std::byte* resolve_rows(const plan::Ref& ref, std::size_t rows, std::size_t width, std::size_t stride,
                          bool write) const {
    if (stride < width) fail("rows overlap");
    return resolve(ref, ((rows - 1) * stride + width) * sizeof(float), write);
  }
  /// Step inputs have an entry a token, but for the rows of logits: a step of other rows would read behind them.
  void check_inputs(const plan::TileOpT& op, bool rows_are_logits, std::size_t slots) const {
    using plan::TileOpKind;
    const auto kind = static_cast<TileOpKind>(op.kind);
    const auto is_rows = [&] { return ref_at(op.refs, 1).index() == kRowsInput; };
    const bool tokens_own = !rows_are_logits && slots == 1;
    if (kind == TileOpKind::kGather && (!rows_are_logits || slots != 1 || !is_rows()))
      fail("it gathers by other numbers than the rows of logits");
    if (kind == TileOpKind::kEmbed && (!tokens_own || is_rows())) fail("it embeds other rows than the tokens");
    if ((kind == TileOpKind::kStoreK || kind == TileOpKind::kStoreV) && !tokens_own)
      fail("it stores keys or values of other rows than the tokens");
  }
  const std::int32_t* input(const plan::Ref& ref) const {
    if (ref.space() != plan::Space::Input || ref.offset() != 0) fail("a reference is no step input");
    switch (ref.index()) {
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
  const plan::KvGroup& kv_group(const plan::Ref& ref) const {
    if (ref.space() != plan::Space::Kv || ref.index() >= program_.kv_groups.size()) fail("a reference is no KV group");
    const auto& group = program_.kv_groups[ref.index()];
    if (ref.offset() >= static_cast<std::uint64_t>(group.layers())) fail("a KV layer is out of range");
    return group;
  }

  static constexpr unsigned kRowsInput = 3;
  static constexpr std::int64_t kNumberMax = std::int64_t{1} << 40;

  const plan::VariantT& in_;
  const plan::ProgramT& program_;
  const Blocks& blocks_;
  const StepIo& io_;
  const plan::StepT* step_ = nullptr;  ///< being read, for messages
};

}  // namespace forge::runtime
