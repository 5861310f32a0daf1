#include "codegen/gpu/code/wave.h"

#include <algorithm>

#include "codegen/gpu/code/wave_rules.h"

namespace forge::codegen {

Known Wave::scalar(Register at, int bits) const {
  Known out = scalars[at].low(32);
  if (bits <= 32) return out;
  const Known high = static_cast<std::size_t>(at) + 1 < scalars.size() ? scalars[at + 1U] : Known{};
  out.value |= high.value << 32;
  out.known = (out.known & Known::low_mask(32)) | high.known << 32;
  return out;
}

void Wave::set_scalar(Register at, int bits, Known value) {
  scalars[at] = value.low(32);
  if (bits > 32 && static_cast<std::size_t>(at) + 1 < scalars.size())
    scalars[at + 1U] = Known{value.value >> 32, value.known >> 32}.low(32);
}

Known Wave::uniform(const Operation& operation, std::size_t index, int bits) const {
  if (index >= operation.operands.size()) return {};
  const DecodedOperand& operand = operation.operands[index];
  if (operand.kind == DecodedOperand::Kind::kConstant) return Known::of(operand.constant & Known::low_mask(bits));
  return operand.kind == DecodedOperand::Kind::kScalar ? scalar(operand.at, bits) : Known{};
}

Lanes Wave::words(const Operation& operation, std::size_t index, int word) const {
  if (index >= operation.operands.size()) return {};
  const DecodedOperand& operand = operation.operands[index];
  if (operand.kind == DecodedOperand::Kind::kVector) {
    const auto at = static_cast<std::size_t>(operand.at) + static_cast<std::size_t>(word);
    return at < vectors.size() ? vectors[at] : Lanes{};
  }
  const Known all = uniform(operation, index, 64);
  const auto one = static_cast<std::uint32_t>(all.value >> (32 * word));
  const auto known = static_cast<std::uint32_t>(all.known >> (32 * word));
  return known == ~std::uint32_t{0} ? Lanes::all(one) : Lanes{};
}

Lanes Wave::moved(const Lanes& from, const Operation& operation) const {
  Lanes out;
  const std::uint64_t on = exec().on();
  for (int lane = 0; lane < lanes; ++lane) {
    const int source = moved_from(operation.move, operation.move_amount, lane);
    if (source < lanes && from.knows(source) && (on >> source & 1) != 0)
      out.set(lane, from.value[static_cast<std::size_t>(source)]);
  }
  return out;
}

void Wave::write(const Operation& operation, std::size_t index, const Lanes& value, int word) {
  if (index >= operation.operands.size() || operation.operands[index].kind != DecodedOperand::Kind::kVector) return;
  const auto at = static_cast<std::size_t>(operation.operands[index].at) + static_cast<std::size_t>(word);
  if (at >= vectors.size()) return;
  Lanes& to = vectors[at];
  const Known on = exec();
  const std::uint64_t certain = on.on(), possible = on.maybe() & Known::low_mask(lanes);
  for (int i = 0; i < lanes; ++i) {
    const auto lane = static_cast<std::size_t>(i);
    const std::uint64_t bit = std::uint64_t{1} << i;
    if ((possible & bit) == 0) continue;
    const bool same = to.knows(i) && value.knows(i) && to.value[lane] == value.value[lane];
    if ((certain & bit) != 0)
      to.known = (to.known & ~bit) | (value.known & bit);
    else if (!same)
      to.known &= ~bit;
    to.value[lane] = value.value[lane];
  }
}

void Wave::write_uniform(const Operation& operation, std::size_t index, Known value, int bits) {
  if (index < operation.operands.size() && operation.operands[index].kind == DecodedOperand::Kind::kScalar)
    set_scalar(operation.operands[index].at, bits, value);
}

void Wave::forget(const Operation& operation, std::size_t index) {
  if (index >= operation.operands.size()) return;
  const DecodedOperand& operand = operation.operands[index];
  for (int word = 0; word < operand.words; ++word) {
    if (operand.kind == DecodedOperand::Kind::kVector) write(operation, index, Lanes{}, word);
    const auto at = static_cast<std::size_t>(operand.at) + static_cast<std::size_t>(word);
    if (operand.kind == DecodedOperand::Kind::kScalar && at < scalars.size()) scalars[at] = Known{}.low(32);
  }
}

void Wave::run(const Operation& operation) {
  operation.rule->run(*this, operation);
}

}  // namespace forge::codegen
