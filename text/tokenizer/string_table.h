#pragma once
// Hash tables over the strings of a GGUF array. The strings stay in the mapped file. A StringList needs 4 bytes a
// string for its offsets, HashSlots 8 bytes a slot; building them takes two allocations, however many strings there
// are.

#define XXH_INLINE_ALL  // for short strings a call would cost as much as the hash itself
#include <xxhash.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "loader/gguf/gguf_value.h"

namespace forge::text {

/// A random seed of this process, so that nobody can craft a file whose strings all collide. No result depends on the
/// order of hashes.
extern const std::uint64_t kHashSeed;

/// The hash that all tables here use. Callers keep it for strings that they look up again and again.
inline std::uint64_t hash_of(std::string_view text) {
  return XXH3_64bits_withSeed(text.data(), text.size(), kHashSeed);
}
/// The hash of an ordered pair, made of the hashes of its two strings without reading them again.
inline std::uint64_t hash_of_pair(std::uint64_t left, std::uint64_t right) {
  return (left ^ (right * 0x9E3779B97F4A7C15U + 0x7F4A7C15U)) * 0xD6E8FEB86659FD93U;
}

/// Random access to the strings of a GGUF array: the offset of each string's length field (u64, then the bytes).
class StringList {
 public:
  StringList() = default;
  /// `array` must be an array of at most 2^31 - 1 strings in less than 4 GiB; the file must outlive this. `key` names
  /// it in errors (kTokenizer).
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

/// A set of 32-bit entries by open addressing with linear probing. It stores no keys: the caller passes the hash and
/// says whether an entry equals what it looks for. At most half full, so a search ends at a free slot.
class HashSlots {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  HashSlots() = default;
  /// Room for `entries` entries; the table does not grow.
  explicit HashSlots(std::size_t entries);

  /// The entry with this hash that `equal(entry)` accepts; kNone if there is none.
  template <class Equal>
  [[nodiscard]] std::uint32_t find(std::uint64_t hash, Equal equal) const {
    for (std::uint64_t at = hash & mask_;; at = (at + 1) & mask_) {
      const Slot slot = slots_[at];
      if (slot.entry == kNone) return kNone;
      if (slot.tag == tag_of(hash) && equal(slot.entry)) return slot.entry;
    }
  }
  /// Adds `entry` and returns kNone, unless `equal` accepts an entry that is already there; that one is returned then.
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
    std::uint32_t tag = 0;  // upper half of the hash; most other entries differ in it
    std::uint32_t entry = kNone;
  };
  static std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }
  std::uint64_t mask_ = 0;
  std::vector<Slot> slots_ = std::vector<Slot>(1);
};

}  // namespace forge::text
