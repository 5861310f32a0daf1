// Loads, stores and atomics of words whose addresses are known. Others leave unknown registers behind.
#include <array>

#include "codegen/gpu/code/wave_rules.h"

namespace forge::codegen {
namespace {
namespace memory_operations {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

template <int Words>
void load_scalars(Wave& wave, const Operation& op) {
  const Known base = wave.uniform(op, 1, 64);
  Known offset = Known::of(0);
  if (op.operands.size() > 2 && op.operands[2].kind != DecodedOperand::Kind::kNone) offset = wave.uniform(op, 2);
  const auto& to = op.operands.front();
  for (int word = 0; word < Words; ++word) {
    const u64 address = base.value + offset.value + static_cast<u64>(op.offset) + 4U * static_cast<u64>(word);
    const auto value = base.has(64) && offset.has(32) ? wave.memory->load(address) : std::nullopt;
    const auto at = static_cast<std::size_t>(to.at) + static_cast<std::size_t>(word);
    if (to.kind == DecodedOperand::Kind::kScalar && at < wave.scalars.size())
      wave.set_scalar(static_cast<Register>(at), 32, value ? Known::of(*value) : Known{});
  }
}

/// Addresses of a global access: operand `at` holds 64 bits, or 32 on top of the scalar pair `at_base`.
struct Addresses {
  std::array<u64, kLanesMax> at{};
  u64 known = 0;
};
Addresses addresses_of(const Wave& wave, const Operation& op, std::size_t at, std::size_t at_base) {
  const bool on_base = at_base < op.operands.size() && op.operands[at_base].kind == DecodedOperand::Kind::kScalar;
  const Known base = on_base ? wave.uniform(op, at_base, 64) : Known::of(0);
  const Lanes low = wave.words(op, at), high = on_base ? Lanes::all(0) : wave.words(op, at, 1);
  Addresses out;
  if (base.has(64)) out.known = low.known & high.known;
  for (std::size_t i = 0; i < static_cast<std::size_t>(wave.lanes); ++i)
    out.at[i] = base.value + (u64{low.value[i]} | u64{high.value[i]} << 32) + static_cast<u64>(op.offset);
  return out;
}

template <int Words>
void load_lanes(Wave& wave, const Operation& op) {
  const Addresses addresses = addresses_of(wave, op, 1, 2);
  const u64 on = wave.exec().maybe();
  for (int word = 0; word < Words; ++word) {
    Lanes out;
    for (int i = 0; i < wave.lanes; ++i)
      if ((addresses.known & on) >> i & 1)
        if (const auto value =
                wave.memory->load(addresses.at[static_cast<std::size_t>(i)] + 4U * static_cast<u64>(word)))
          out.set(i, *value);
    wave.write(op, 0, out, word);
  }
}

/// Nothing for a lane that may be off: memory is unknown then.
std::optional<u32> stored(const Wave& wave, const Lanes& data, int lane) {
  const bool certain = (wave.exec().on() >> lane & 1) != 0;
  return certain && data.knows(lane) ? std::optional(data.value[static_cast<std::size_t>(lane)]) : std::nullopt;
}

template <int Words>
void store_lanes(Wave& wave, const Operation& op) {
  const Addresses addresses = addresses_of(wave, op, 0, 2);
  const u64 on = wave.exec().maybe();
  for (int word = 0; word < Words; ++word) {
    const Lanes data = wave.words(op, 1, word);
    for (int i = 0; i < wave.lanes; ++i)
      if ((addresses.known & on) >> i & 1)
        wave.memory->store(addresses.at[static_cast<std::size_t>(i)] + 4U * static_cast<u64>(word),
                           stored(wave, data, i));
  }
}

/// The old word is returned if there are four operands; lanes take turns in their order.
void add_atomically(Wave& wave, const Operation& op) {
  const std::size_t returns = op.operands.size() > 3 ? 1 : 0;
  const Addresses addresses = addresses_of(wave, op, returns, returns + 2);
  const Lanes data = wave.words(op, returns + 1);
  const u64 on = wave.exec().maybe();
  Lanes out;
  for (int i = 0; i < wave.lanes; ++i) {
    if (((addresses.known & on) >> i & 1) == 0) continue;
    const u64 address = addresses.at[static_cast<std::size_t>(i)];
    const auto old = wave.memory->load(address), more = stored(wave, data, i);
    wave.memory->store(address, old && more ? std::optional(*old + *more) : std::nullopt);
    if (old) out.set(i, *old);
  }
  if (returns != 0) wave.write(op, 0, out);
}

// ---- shared memory ----
/// Runs use(address, lane) for each lane that may be on. False if some address is unknown.
template <class Use>
bool each_lds(const Wave& wave, const Lanes& base, std::int64_t offset, const Use& use) {
  const u64 on = wave.exec().maybe() & Known::low_mask(wave.lanes);
  if ((on & ~base.known) != 0) return false;
  for (int i = 0; i < wave.lanes; ++i)
    if (on >> i & 1) use(u64{base.value[static_cast<std::size_t>(i)]} + static_cast<u64>(offset), i);
  return true;
}
/// Words at base + offset and following go to words `first` and following of operand 0.
void load_run(Wave& wave, const Operation& op, const Lanes& base, std::int64_t offset, int first, int words) {
  for (int word = 0; word < words; ++word) {
    Lanes out;
    (void)each_lds(wave, base, offset + 4 * word, [&](u64 address, int lane) {
      if (const auto value = wave.lds->load(address)) out.set(lane, *value);
    });
    wave.write(op, 0, out, first + word);
  }
}
void store_run(Wave& wave, const Operation& op, std::int64_t offset, std::size_t data_at, int words) {
  const Lanes base = wave.words(op, 0);
  for (int word = 0; word < words; ++word) {
    const Lanes data = wave.words(op, data_at, word);
    const bool known = each_lds(wave, base, offset + 4 * word,
                                [&](u64 address, int lane) { wave.lds->store(address, stored(wave, data, lane)); });
    if (!known) wave.lds->forget();
  }
}
template <int Words>
void load_lds(Wave& wave, const Operation& op) {
  load_run(wave, op, wave.words(op, 1), op.offset, 0, Words);
}
template <int Words>
void store_lds(Wave& wave, const Operation& op) {
  store_run(wave, op, op.offset, 1, Words);
}
/// Two runs of `Words` words, at offset0 and offset1, which count in runs times Stride.
template <int Words, int Stride>
void load_two(Wave& wave, const Operation& op) {
  const Lanes base = wave.words(op, 1);
  load_run(wave, op, base, op.first_slot * 4 * Words * Stride, 0, Words);
  load_run(wave, op, base, op.second_slot * 4 * Words * Stride, Words, Words);
}
template <int Words, int Stride>
void store_two(Wave& wave, const Operation& op) {
  store_run(wave, op, op.first_slot * 4 * Words * Stride, 1, Words);
  store_run(wave, op, op.second_slot * 4 * Words * Stride, 2, Words);
}
void swizzle(Wave& wave, const Operation& op) {
  const bool known = op.move == LaneMove::kXor;
  wave.write(op, 0, known ? wave.moved(wave.words(op, 1), op) : Lanes{});
}
/// Each lane reads the lane that its address / 4 names.
void permute_back(Wave& wave, const Operation& op) {
  const Lanes at = wave.words(op, 1), from = wave.words(op, 2);
  const u64 on = wave.exec().on();
  Lanes out;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    if (!at.knows(lane)) continue;
    const auto source = static_cast<int>((u64{at.value[static_cast<std::size_t>(lane)]} + static_cast<u64>(op.offset)) /
                                         4 % static_cast<u64>(wave.lanes));
    if (from.knows(source) && (on >> source & 1) != 0) out.set(lane, from.value[static_cast<std::size_t>(source)]);
  }
  wave.write(op, 0, out);
}
/// Bytes and halves make the words around them unknown.
void store_part(Wave& wave, const Operation& op) {
  const bool known = each_lds(wave, wave.words(op, 0), op.offset,
                              [&](u64 address, int) { wave.lds->store(address / 4 * 4, std::nullopt); });
  if (!known) wave.lds->forget();
}

constexpr std::array kRules{Rule{"s_load_b32", load_scalars<1>},
                            Rule{"s_load_b64", load_scalars<2>},
                            Rule{"s_load_b96", load_scalars<3>},
                            Rule{"s_load_b128", load_scalars<4>},
                            Rule{"s_load_b256", load_scalars<8>},
                            Rule{"s_load_b512", load_scalars<16>},
                            Rule{"global_load_b32", load_lanes<1>},
                            Rule{"global_load_b64", load_lanes<2>},
                            Rule{"global_load_b96", load_lanes<3>},
                            Rule{"global_load_b128", load_lanes<4>},
                            Rule{"global_store_b32", store_lanes<1>},
                            Rule{"global_store_b64", store_lanes<2>},
                            Rule{"global_atomic_add_u32", add_atomically},
                            Rule{"ds_swizzle_b32", swizzle},
                            Rule{"ds_bpermute_b32", permute_back},
                            Rule{"ds_load_b32", load_lds<1>},
                            Rule{"ds_load_b64", load_lds<2>},
                            Rule{"ds_load_b96", load_lds<3>},
                            Rule{"ds_load_b128", load_lds<4>},
                            Rule{"ds_load_2addr_b32", load_two<1, 1>},
                            Rule{"ds_load_2addr_b64", load_two<2, 1>},
                            Rule{"ds_load_2addr_stride64_b32", load_two<1, 64>},
                            Rule{"ds_load_2addr_stride64_b64", load_two<2, 64>},
                            Rule{"ds_store_b8", store_part},
                            Rule{"ds_store_b16", store_part},
                            Rule{"ds_store_b8_d16_hi", store_part},
                            Rule{"ds_store_b16_d16_hi", store_part},
                            Rule{"ds_store_b32", store_lds<1>},
                            Rule{"ds_store_b64", store_lds<2>},
                            Rule{"ds_store_b96", store_lds<3>},
                            Rule{"ds_store_b128", store_lds<4>},
                            Rule{"ds_store_2addr_b32", store_two<1, 1>},
                            Rule{"ds_store_2addr_b64", store_two<2, 1>},
                            Rule{"ds_store_2addr_stride64_b32", store_two<1, 64>},
                            Rule{"ds_store_2addr_stride64_b64", store_two<2, 64>}};

}  // namespace memory_operations
}  // namespace

std::span<const Rule> memory_rules() {
  return memory_operations::kRules;
}

}  // namespace forge::codegen
