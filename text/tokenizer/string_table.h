#pragma once
// A GGUF array of strings as a hash table: string -> position. The strings stay in the mapped file; the table holds 4
// bytes of offset a string and 8 bytes a slot, and building it allocates twice, whatever the file holds.

#define XXH_INLINE_ALL  // short strings: a call would cost as much as the hash
#include <xxhash.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "loader/gguf/gguf_value.h"

namespace forge::text {

/// Of this process alone: whoever writes a file cannot choose strings of one hash. Nothing depends on the order of
/// hashes.
extern const std::uint64_t kHashSeed;

/// The hash of every string here; kept beside strings that are looked up again and again.
inline std::uint64_t hash_of(std::string_view text) {
  return XXH3_64bits_withSeed(text.data(), text.size(), kHashSeed);
}
inline std::uint64_t hash_of_pair(std::uint64_t left, std::uint64_t right) {
  return (left ^ (right * 0x9E3779B97F4A7C15U + 0x7F4A7C15U)) * 0xD6E8FEB86659FD93U;
}

/// Offsets of the strings of a GGUF array, for random access.
class StringList {
 public:
  StringList() = default;
  /// `array`: an array of strings, at most 2^31 - 1 of them in less than 4 GiB. `key` names it in errors (kTokenizer).
  StringList(const loader::GgufValue& array, std::string_view key);

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(offsets_.size()); }
  [[nodiscard]] std::string_view operator[](std::uint32_t i) const {
    const std::byte* at = base_ + offsets_[i];
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, at, sizeof bytes);
    return {reinterpret_cast<const char*>(at) + sizeof bytes, bytes};
  }

 private:
  const std::byte* base_ = nullptr;
  std::vector<std::uint32_t> offsets_;
};

/// Open addressing over positions; the owner says what a position's hash and equality are.
class HashSlots {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  HashSlots() = default;
  explicit HashSlots(std::size_t entries);

  /// The position that `equal(position)` accepts among those with this hash, kNone when there is none.
  template <class Equal>
  [[nodiscard]] std::uint32_t find(std::uint64_t hash, Equal equal) const {
    for (std::uint64_t at = hash & mask_;; at = (at + 1) & mask_) {
      const Slot slot = slots_[at];
      if (slot.entry == kNone) return kNone;
      if (slot.tag == tag_of(hash) && equal(slot.entry)) return slot.entry;
    }
  }
  /// Adds `entry`, or returns the one already there that `equal` accepts.
  template <class Equal>
  std::uint32_t insert(std::uint64_t hash, std::uint32_t entry, Equal equal) {
    for (std::uint64_t at = hash & mask_;; at = (at + 1) & mask_) {
      Slot& slot = slots_[at];
      if (slot.entry == kNone) {
        slot = {tag_of(hash), entry};
        return kNone;
      }
      if (slot.tag == tag_of(hash) && equal(slot.entry)) return slot.entry;
    }
  }

 private:
  struct Slot {
    std::uint32_t tag = 0;
    std::uint32_t entry = kNone;
  };
  static std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }
  std::uint64_t mask_ = 0;
  std::vector<Slot> slots_ = std::vector<Slot>(1);
};

}  // namespace forge::text
