// Vector operations on whole numbers: those that make lane numbers, addresses, bounds and masks.
#include <algorithm>
#include <array>
#include <bit>

#include "codegen/gpu/code/wave_rules.h"

namespace forge::codegen {
namespace {
namespace vector_operations {

using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i32 = std::int32_t;
using i64 = std::int64_t;

/// Lanes of operand `index`, or known zeros if there is none.
Lanes source(const Wave& wave, const Operation& op, std::size_t index, int word = 0) {
  return index < op.operands.size() ? wave.words(op, index, word) : Lanes::all(0);
}
Known vcc_or(const Wave& wave, const Operation& op, std::size_t index) {
  return index < op.operands.size() ? wave.uniform(op, index, wave.lanes) : wave.mask(kVccLow);
}

/// result = F(a, b, c) in each lane
template <auto F>
void each(Wave& wave, const Operation& op) {
  Lanes a = source(wave, op, 1);
  if (op.move != LaneMove::kNone) a = wave.moved(a, op);
  const Lanes b = source(wave, op, 2), c = source(wave, op, 3);
  Lanes out;
  out.known = a.known & b.known & c.known;
  for (std::size_t i = 0; i < static_cast<std::size_t>(wave.lanes); ++i)
    out.value[i] = F(a.value[i], b.value[i], c.value[i]);
  wave.write(op, 0, out);
}
/// F(a, b) of the low halves. The result's high half is kept (gfx10 and later, which forge runs with 32 lanes) or
/// becomes 0. A high half that is not known is taken for 0: compilers use these operations for numbers of 16 bits, and
/// do not read what is above them.
template <auto F>
void half(Wave& wave, const Operation& op) {
  const Lanes a = source(wave, op, 1), b = source(wave, op, 2);
  const bool keeps = wave.lanes == 32;
  const Lanes before = keeps ? wave.words(op, 0) : Lanes::all(0);
  Lanes out;
  out.known = a.known & b.known;
  for (std::size_t i = 0; i < static_cast<std::size_t>(wave.lanes); ++i) {
    const auto low = F(static_cast<std::uint16_t>(a.value[i]), static_cast<std::uint16_t>(b.value[i]));
    const u32 high = before.knows(static_cast<int>(i)) ? before.value[i] & 0xffff0000U : 0;
    out.value[i] = high | static_cast<std::uint16_t>(low);
  }
  wave.write(op, 0, out);
}
/// Two words: result = F(a, b) of 64 bits each, or of 32 where the operand has so many.
template <int BitsA, int BitsB, int First, auto F>
void wide(Wave& wave, const Operation& op) {
  const auto sources = [&](std::size_t index, int bits) {
    return std::pair(source(wave, op, index), bits > 32 ? source(wave, op, index, 1) : Lanes::all(0));
  };
  const auto [a, a_high] = sources(First, BitsA);
  const auto [b, b_high] = sources(First + 1, BitsB);
  const auto [c, c_high] = sources(First + 2, 64);
  Lanes low, high;
  low.known = high.known = a.known & a_high.known & b.known & b_high.known & c.known & c_high.known;
  for (std::size_t i = 0; i < static_cast<std::size_t>(wave.lanes); ++i) {
    const auto join = [i](const Lanes& one, const Lanes& two) { return u64{one.value[i]} | u64{two.value[i]} << 32; };
    const u64 result = F(join(a, a_high), join(b, b_high), join(c, c_high));
    low.value[i] = static_cast<u32>(result);
    high.value[i] = static_cast<u32>(result >> 32);
  }
  if (First == 2) wave.forget(op, 1);  // the carry
  wave.write(op, 0, low, 0);
  wave.write(op, 0, high, 1);
}

/// Additions that write a carry mask (operand 1), and take one (operand 4) if `Takes`. F: (a, b, carry) -> 33 bits.
template <bool Takes, auto F>
void carrying(Wave& wave, const Operation& op) {
  const Lanes a = source(wave, op, 2), b = source(wave, op, 3);
  const Known in = Takes ? vcc_or(wave, op, 4) : Known::of(0);
  Lanes out;
  Known carry{0, ~wave.exec().maybe()};
  out.known = a.known & b.known & in.known;
  for (int i = 0; i < wave.lanes; ++i) {
    const auto lane = static_cast<std::size_t>(i);
    const u64 sum = F(u64{a.value[lane]}, u64{b.value[lane]}, in.value >> i & 1);
    out.value[lane] = static_cast<u32>(sum);
    if (out.knows(i) && (wave.exec().on() >> i & 1) != 0) {
      carry.value |= (sum >> 32 & 1) << i;
      carry.known |= u64{1} << i;
    }
  }
  wave.write(op, 0, out);
  wave.write_uniform(op, 1, carry, wave.lanes);
}

/// Bits of a mask in lanes that are on; v_cmpx sets exec, and on gfx9 (with a result) that too.
template <auto F>
void compare(Wave& wave, const Operation& op) {
  const bool sets_exec = op.name[5] == 'x';
  const std::size_t first = op.operands.size() - 2;
  const Lanes a = source(wave, op, first), b = source(wave, op, first + 1);
  const Known on = wave.exec();
  Known out{0, ~on.maybe()};
  for (int i = 0; i < wave.lanes; ++i) {
    const auto lane = static_cast<std::size_t>(i);
    if (!a.knows(i) || !b.knows(i)) continue;
    const bool yes = F(a.value[lane], b.value[lane]);
    if (yes && (on.known >> i & 1) == 0) continue;  // depends on whether the lane is on
    out.known |= u64{1} << i;
    if (yes) out.value |= on.value & u64{1} << i;
  }
  if (first > 0) wave.write_uniform(op, 0, out, wave.lanes);
  if (sets_exec) wave.set_mask(kExecLow, out);
}
template <auto F>
constexpr auto kSigned = [](u32 a, u32 b) { return F(a ^ 0x80000000U, b ^ 0x80000000U); };

void choose(Wave& wave, const Operation& op) {
  const Lanes no = source(wave, op, 1), yes = source(wave, op, 2);
  const Known mask = vcc_or(wave, op, 3);
  Lanes out;
  for (int i = 0; i < wave.lanes; ++i) {
    const auto lane = static_cast<std::size_t>(i);
    const bool known = (mask.known >> i & 1) != 0, taken = (mask.value >> i & 1) != 0;
    const Lanes& one = taken ? yes : no;
    const bool alike = no.knows(i) && yes.knows(i) && no.value[lane] == yes.value[lane];
    if ((known && one.knows(i)) || alike) out.set(i, one.value[lane]);
  }
  wave.write(op, 0, out);
}

/// A word of one lane: of the lowest lane that is on, or of all if they hold the same.
void read_first_lane(Wave& wave, const Operation& op) {
  const Lanes from = source(wave, op, 1);
  const Known on = wave.exec();
  const u64 possible = on.maybe() & Known::low_mask(wave.lanes);
  Known out{};
  const int first = possible == 0 ? 0 : std::countr_zero(possible);
  if ((possible & ~from.known) == 0) {
    bool alike = true;
    for (int i = first; i < wave.lanes; ++i)
      alike &= (possible >> i & 1) == 0 ||
               from.value[static_cast<std::size_t>(i)] == from.value[static_cast<std::size_t>(first)];
    if (alike) out = Known::of(from.value[static_cast<std::size_t>(first)]);
  }
  if (from.knows(first) && ((on.on() >> first & 1) != 0 || possible == 0))
    out = Known::of(from.value[static_cast<std::size_t>(first)]);
  wave.write_uniform(op, 0, out);
}
void read_lane(Wave& wave, const Operation& op) {
  const Lanes from = source(wave, op, 1);
  const Known lane = wave.uniform(op, 2);
  const auto at = static_cast<int>(lane.value & static_cast<u64>(wave.lanes - 1));
  const bool known = lane.has(32) && from.knows(at);
  wave.write_uniform(op, 0, known ? Known::of(from.value[static_cast<std::size_t>(at)]) : Known{});
}
/// Writes a lane whether it is on or not; scalar registers are spilled so.
void write_lane(Wave& wave, const Operation& op) {
  const auto& to = op.operands.front();
  if (to.kind != DecodedOperand::Kind::kVector || to.at >= wave.vectors.size()) return;
  const Known word = wave.uniform(op, 1), lane = wave.uniform(op, 2);
  Lanes& lanes = wave.vectors[to.at];
  if (!lane.has(32)) {
    lanes = {};
    return;
  }
  const auto at = static_cast<int>(lane.value & static_cast<u64>(wave.lanes - 1));
  lanes.set(at, static_cast<u32>(word.value));
  if (!word.has(32)) lanes.known &= ~(u64{1} << at);
}
/// Lane i of a row of 16 reads the lane of its own or, if Cross, of the neighbouring row that digit i of 16 says.
template <bool Cross>
void permute_rows(Wave& wave, const Operation& op) {
  const Lanes from = source(wave, op, 1);
  const Known low = wave.uniform(op, 2), high = wave.uniform(op, 3);
  const u64 digits = low.value | high.value << 32, on = wave.exec().on();
  Lanes out;
  for (int lane = 0; lane < wave.lanes && low.has(32) && high.has(32); ++lane) {
    const int row = (lane & ~15) ^ (Cross ? 16 : 0), at = row + static_cast<int>(digits >> (4 * (lane & 15)) & 15);
    if (from.knows(at) && (on >> at & 1) != 0) out.set(lane, from.value[static_cast<std::size_t>(at)]);
  }
  wave.write(op, 0, out);
}
/// c + the number of bits of a mask's half that belong to lower lanes.
template <bool High>
void count_below(Wave& wave, const Operation& op) {
  const Lanes masks = source(wave, op, 1), before = source(wave, op, 2);
  Lanes out;
  out.known = masks.known & before.known;
  for (int i = 0; i < wave.lanes; ++i) {
    const auto lane = static_cast<std::size_t>(i);
    const int bits = High ? std::max(i - 32, 0) : std::min(i, 32);
    out.value[lane] = before.value[lane] +
                      static_cast<u32>(std::popcount(masks.value[lane] & static_cast<u32>(Known::low_mask(bits))));
  }
  wave.write(op, 0, out);
}

constexpr auto low24 = [](u32 a) { return a & 0xffffffU; };
constexpr auto signed24 = [](u32 a) { return (static_cast<i32>(a << 8) >> 8); };
constexpr auto kMedian = [](auto a, auto b, auto c) { return std::max(std::min(a, b), std::min(std::max(a, b), c)); };
constexpr auto kBits = [](u32 width) { return static_cast<u32>(Known::low_mask(static_cast<int>(width & 31))); };

constexpr std::array kRules{
    Rule{"v_mov_b32", each<[](u32 a, u32, u32) { return a; }>},
    Rule{"v_not_b32", each<[](u32 a, u32, u32) { return ~a; }>},
    Rule{"v_add_nc_u32", each<[](u32 a, u32 b, u32) { return a + b; }>},
    Rule{"v_sub_nc_u32", each<[](u32 a, u32 b, u32) { return a - b; }>},
    Rule{"v_subrev_nc_u32", each<[](u32 a, u32 b, u32) { return b - a; }>},
    Rule{"v_add3_u32", each<[](u32 a, u32 b, u32 c) { return a + b + c; }>},
    Rule{"v_mul_lo_u32", each<[](u32 a, u32 b, u32) { return a * b; }>},
    Rule{"v_mul_hi_u32", each<[](u32 a, u32 b, u32) { return static_cast<u32>(u64{a} * b >> 32); }>},
    Rule{"v_mul_hi_i32", each<[](u32 a, u32 b, u32) {
           return static_cast<u32>((i64{static_cast<i32>(a)} * static_cast<i32>(b)) >> 32);
         }>},
    Rule{"v_mul_u32_u24", each<[](u32 a, u32 b, u32) { return low24(a) * low24(b); }>},
    Rule{"v_mul_i32_i24", each<[](u32 a, u32 b, u32) { return static_cast<u32>(i64{signed24(a)} * signed24(b)); }>},
    Rule{"v_mad_u32_u24", each<[](u32 a, u32 b, u32 c) { return low24(a) * low24(b) + c; }>},
    Rule{"v_mad_i32_i24",
         each<[](u32 a, u32 b, u32 c) { return static_cast<u32>(i64{signed24(a)} * signed24(b)) + c; }>},
    Rule{"v_and_b32", each<[](u32 a, u32 b, u32) { return a & b; }>},
    Rule{"v_or_b32", each<[](u32 a, u32 b, u32) { return a | b; }>},
    Rule{"v_xor_b32", each<[](u32 a, u32 b, u32) { return a ^ b; }>},
    Rule{"v_and_or_b32", each<[](u32 a, u32 b, u32 c) { return (a & b) | c; }>},
    Rule{"v_or3_b32", each<[](u32 a, u32 b, u32 c) { return a | b | c; }>},
    Rule{"v_xor3_b32", each<[](u32 a, u32 b, u32 c) { return a ^ b ^ c; }>},
    Rule{"v_xad_u32", each<[](u32 a, u32 b, u32 c) { return (a ^ b) + c; }>},
    Rule{"v_lshlrev_b32", each<[](u32 a, u32 b, u32) { return b << (a & 31); }>},
    Rule{"v_lshrrev_b32", each<[](u32 a, u32 b, u32) { return (b >> (a & 31)); }>},
    Rule{"v_ashrrev_i32", each<[](u32 a, u32 b, u32) { return (static_cast<u32>(static_cast<i32>(b) >> (a & 31))); }>},
    Rule{"v_lshl_add_u32", each<[](u32 a, u32 b, u32 c) { return (a << (b & 31)) + c; }>},
    Rule{"v_add_lshl_u32", each<[](u32 a, u32 b, u32 c) { return (a + b) << (c & 31); }>},
    Rule{"v_lshl_or_b32", each<[](u32 a, u32 b, u32 c) { return (a << (b & 31)) | c; }>},
    Rule{"v_bfe_u32", each<[](u32 a, u32 b, u32 c) { return (a >> (b & 31) & kBits(c)); }>},
    Rule{"v_bfe_i32", each<[](u32 a, u32 b, u32 c) {
           const u32 field = (a >> (b & 31) & kBits(c)), sign = (c & 31) == 0 ? 0 : u32{1} << ((c & 31) - 1);
           return (field ^ sign) - sign;
         }>},
    Rule{"v_bfi_b32", each<[](u32 a, u32 b, u32 c) { return (a & b) | (~a & c); }>},
    Rule{"v_min_u32", each<[](u32 a, u32 b, u32) { return std::min(a, b); }>},
    Rule{"v_max_u32", each<[](u32 a, u32 b, u32) { return std::max(a, b); }>},
    Rule{"v_min_i32",
         each<[](u32 a, u32 b, u32) { return static_cast<u32>(std::min(static_cast<i32>(a), static_cast<i32>(b))); }>},
    Rule{"v_max_i32",
         each<[](u32 a, u32 b, u32) { return static_cast<u32>(std::max(static_cast<i32>(a), static_cast<i32>(b))); }>},
    Rule{"v_med3_u32", each<[](u32 a, u32 b, u32 c) { return kMedian(a, b, c); }>},
    Rule{"v_med3_i32", each<[](u32 a, u32 b, u32 c) {
           return static_cast<u32>(kMedian(static_cast<i32>(a), static_cast<i32>(b), static_cast<i32>(c)));
         }>},
    Rule{"v_add_nc_u16", half<[](u32 a, u32 b) { return a + b; }>},
    Rule{"v_sub_nc_u16", half<[](u32 a, u32 b) { return a - b; }>},
    Rule{"v_mul_lo_u16", half<[](u32 a, u32 b) { return a * b; }>},
    Rule{"v_lshlrev_b16", half<[](u32 a, u32 b) { return b << (a & 15); }>},
    Rule{"v_lshrrev_b16", half<[](u32 a, u32 b) { return (b >> (a & 15)); }>},
    Rule{"v_ashrrev_i16", half<[](u32 a, u32 b) { return (static_cast<std::int16_t>(b) >> (a & 15)); }>},
    Rule{"v_lshlrev_b64", wide<32, 64, 1, [](u64 a, u64 b, u64) { return b << (a & 63); }>},
    Rule{"v_lshrrev_b64", wide<32, 64, 1, [](u64 a, u64 b, u64) { return (b >> (a & 63)); }>},
    Rule{"v_ashrrev_i64",
         wide<32, 64, 1, [](u64 a, u64 b, u64) { return (static_cast<u64>(static_cast<i64>(b) >> (a & 63))); }>},
    Rule{"v_lshl_add_u64", wide<64, 32, 1, [](u64 a, u64 b, u64 c) { return (a << (b & 63)) + c; }>},
    Rule{"v_mad_u64_u32", wide<32, 32, 2, [](u64 a, u64 b, u64 c) { return a * b + c; }>},
    Rule{
        "v_mad_i64_i32",
        wide<32, 32, 2,
             [](u64 a, u64 b, u64 c) { return static_cast<u64>(i64{static_cast<i32>(a)} * static_cast<i32>(b)) + c; }>},
    Rule{"v_add_co_u32", carrying<false, [](u64 a, u64 b, u64 c) { return a + b + c; }>},
    Rule{"v_sub_co_u32", carrying<false, [](u64 a, u64 b, u64 c) { return a - b - c; }>},
    Rule{"v_subrev_co_u32", carrying<false, [](u64 a, u64 b, u64 c) { return b - a - c; }>},
    Rule{"v_add_co_ci_u32", carrying<true, [](u64 a, u64 b, u64 c) { return a + b + c; }>},
    Rule{"v_sub_co_ci_u32", carrying<true, [](u64 a, u64 b, u64 c) { return a - b - c; }>},
    Rule{"v_cndmask_b32", choose},
    Rule{"v_readfirstlane_b32", read_first_lane},
    Rule{"v_readlane_b32", read_lane},
    Rule{"v_writelane_b32", write_lane},
    Rule{"v_permlane16_b32", permute_rows<false>},
    Rule{"v_permlanex16_b32", permute_rows<true>},
    Rule{"v_mbcnt_lo_u32_b32", count_below<false>},
    Rule{"v_mbcnt_hi_u32_b32", count_below<true>},
    Rule{"v_cmp_eq_u32", compare<kEqual>},
    Rule{"v_cmp_ne_u32", compare<kUnequal>},
    Rule{"v_cmp_lt_u32", compare<kLess>},
    Rule{"v_cmp_le_u32", compare<kAtMost>},
    Rule{"v_cmp_gt_u32", compare<kGreater>},
    Rule{"v_cmp_ge_u32", compare<kAtLeast>},
    Rule{"v_cmp_eq_i32", compare<kEqual>},
    Rule{"v_cmp_ne_i32", compare<kUnequal>},
    Rule{"v_cmp_lt_i32", compare<kSigned<kLess>>},
    Rule{"v_cmp_le_i32", compare<kSigned<kAtMost>>},
    Rule{"v_cmp_gt_i32", compare<kSigned<kGreater>>},
    Rule{"v_cmp_ge_i32", compare<kSigned<kAtLeast>>}};

}  // namespace vector_operations
}  // namespace

std::span<const Rule> vector_rules() {
  return vector_operations::kRules;
}

}  // namespace forge::codegen
