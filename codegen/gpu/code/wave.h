#pragma once
// One wave of a kernel whose registers are partly known (known.h): the lanes' numbers, the block's number and the
// kernel's arguments are; what memory holds is where the walk's memory says so. An operation that is not in the rules
// (wave_rules.h) makes its results unknown. Source: AMD's ISA guides for Vega, CDNA 1-3 and RDNA 1-4.

#include <optional>
#include <span>
#include <vector>

#include "codegen/gpu/code/decode.h"
#include "codegen/gpu/code/known.h"

namespace forge::codegen {

/// Global memory as far as it is known. Addresses are those that the kernel's arguments give.
class WalkMemory {
 public:
  WalkMemory() = default;
  WalkMemory(const WalkMemory&) = delete;
  WalkMemory& operator=(const WalkMemory&) = delete;
  virtual ~WalkMemory() = default;
  /// The word at an address.
  [[nodiscard]] virtual std::optional<std::uint32_t> load(std::uint64_t address) = 0;
  /// Writes a word; nothing: an unknown one.
  virtual void store(std::uint64_t address, std::optional<std::uint32_t> word) = 0;
};

/// The shared memory of a block, in words.
class WalkLds {
 public:
  explicit WalkLds(std::size_t bytes) : words_(bytes / 4) {}
  [[nodiscard]] std::optional<std::uint32_t> load(std::uint64_t address) const {
    return address % 4 == 0 && address / 4 < words_.size() ? words_[address / 4] : std::nullopt;
  }
  void store(std::uint64_t address, std::optional<std::uint32_t> word) {
    if (address / 4 < words_.size()) words_[address / 4] = address % 4 == 0 ? word : std::nullopt;
  }
  void forget() { words_.assign(words_.size(), std::nullopt); }

 private:
  std::vector<std::optional<std::uint32_t>> words_;
};

/// The registers of a wave.
struct Wave {
  Wave(int lanes, std::size_t vector_count, WalkLds& lds, WalkMemory& memory)
      : lanes(lanes), scalars(128), vectors(vector_count), lds(&lds), memory(&memory) {
    set_mask(kExecLow, Known::of(Known::low_mask(lanes)));
  }

  int lanes;
  std::vector<Known> scalars;  ///< 32 bits each
  std::vector<Lanes> vectors;
  Maybe scc = Maybe::kUnknown;
  WalkLds* lds;
  WalkMemory* memory;

  /// A lane mask in one or, for 64 lanes, two registers.
  [[nodiscard]] Known mask(Register at) const { return scalar(at, lanes); }
  void set_mask(Register at, Known value) { set_scalar(at, lanes, value); }
  [[nodiscard]] Known exec() const { return mask(kExecLow); }

  [[nodiscard]] Known scalar(Register at, int bits) const;
  void set_scalar(Register at, int bits, Known value);
  /// Operand `index`, which is uniform; a vector register or a missing operand is unknown.
  [[nodiscard]] Known uniform(const Operation& operation, std::size_t index, int bits = 32) const;
  /// Word `word` of operand `index` in each lane.
  [[nodiscard]] Lanes words(const Operation& operation, std::size_t index, int word = 0) const;
  /// A register whose lanes are moved as the operation says. A lane that may be off gives nothing.
  [[nodiscard]] Lanes moved(const Lanes& from, const Operation& operation) const;
  /// Writes word `word` of operand `index` in the lanes that are on. Operands that are no registers are ignored.
  void write(const Operation& operation, std::size_t index, const Lanes& value, int word = 0);
  void write_uniform(const Operation& operation, std::size_t index, Known value, int bits = 32);
  /// Makes the registers of operand `index` unknown.
  void forget(const Operation& operation, std::size_t index);

  /// Runs one operation that is no branch.
  void run(const Operation& operation);
};

}  // namespace forge::codegen
