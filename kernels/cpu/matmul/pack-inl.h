#pragma once
// Packs weights into layout x16 (kernels/quant/x16.h, x16_codes.h) when a model is loaded. It is compiled per class,
// because the compiler vectorises its loops (Zen 5, GB/s in L2, generic and AVX-512: Q4_K 9 and 13, Q6_K 8 and 16, Q8_0
// 33 and 34).
//
// Packing is a transposition: rows become lanes. It works on squares (Square). A line of a square is a register of
// 16-byte pieces, each from a different row. A square has as many lines as a piece has elements, and transposing it
// piece by piece turns each line into one column:
//   lines before (4-byte elements, one piece)   lines after
//   row 0:  a0 a1 a2 a3                         column 0:  a0 b0 c0 d0
//   row 1:  b0 b1 b2 b3                         column 1:  a1 b1 c1 d1
//   row 2:  c0 c1 c2 c3                         column 2:  a2 b2 c2 d2
//   row 3:  d0 d1 d2 d3                         column 3:  a3 b3 c3 d3

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cpu/simd-inl.h"
#include "kernels/quant/x16.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// Pieces per register. AVX2 registers could hold two, but that is slower than one, because joining them costs more
/// than it saves (F16: two pieces 19 GB/s, one 29).
#if defined(__AVX512F__)
inline constexpr std::size_t kPackPieces = 4;
#else
inline constexpr std::size_t kPackPieces = 1;
#endif

/// The compiler's vector type of kBytes bytes of Element.
template <class Element, std::size_t kBytes>
struct VectorOf {
  typedef Element Type __attribute__((vector_size(kBytes)));  // NOLINT: g++ 12 takes no such attribute in `using`
};

/// A square of elements of `kRows` rows, and its transposition.
template <class Element>
struct Square {
  static constexpr std::size_t kSize = 16 / sizeof(Element);  ///< lines, and elements of a piece
  static constexpr std::size_t kPieces = std::min(kPackPieces, quant::kX16Rows / kSize);
  static constexpr std::size_t kRows = kSize * kPieces;  ///< piece p of line i is row kSize * p + i
  template <std::size_t kBytes>
  using Vector = typename VectorOf<Element, kBytes>::Type;
  using Line = Vector<16 * kPieces>;
  Line lines[kSize];

  /// Loads 16 bytes of each row; piece_of(row) returns their address.
  template <class PieceOf>
  FORGE_INLINE void load(PieceOf&& piece_of) {
    for (std::size_t i = 0; i < kSize; ++i) {
      const auto piece = [&](std::size_t p) FORGE_INLINE_BODY {
        Vector<16> v;
        std::memcpy(&v, piece_of(kSize * p + i), 16);
        return v;
      };
      if constexpr (kPieces == 1)
        lines[i] = piece(0);
      else if constexpr (kPieces == 2)
        lines[i] = joined<16>(piece(0), piece(1));
      else
        lines[i] = joined<32>(joined<16>(piece(0), piece(1)), joined<16>(piece(2), piece(3)));
    }
  }

  /// Afterwards line i is element i of all rows. Each pass interleaves line i with line i + kSize/2, which rotates the
  /// bits of (line, column) by one; log2(kSize) passes exchange line and column.
  FORGE_INLINE void transpose() {
    constexpr std::size_t kHalf = kSize / 2;
    for (std::size_t pass = 1; pass < kSize; pass *= 2) {
      Line out[kSize];
      for (std::size_t i = 0; i < kHalf; ++i) {
        out[2 * i] = interleaved<0>(lines[i], lines[i + kHalf]);
        out[2 * i + 1] = interleaved<kHalf>(lines[i], lines[i + kHalf]);
      }
      for (std::size_t i = 0; i < kSize; ++i) lines[i] = out[i];
    }
  }

 private:
  /// a and b as one vector of twice the width.
  template <std::size_t kBytes>
  FORGE_INLINE static Vector<2 * kBytes> joined(Vector<kBytes> a, Vector<kBytes> b) {
    return [&]<int... i>(std::integer_sequence<int, i...>) FORGE_INLINE_BODY {
      return __builtin_shufflevector(a, b, i...);
    }(std::make_integer_sequence<int, static_cast<int>(2 * kBytes / sizeof(Element))>{});
  }
  /// Within each piece: elements kFrom, kFrom + 1, ... of a and b alternately.
  template <std::size_t kFrom>
  FORGE_INLINE static Line interleaved(Line a, Line b) {
    constexpr int kPiece = static_cast<int>(kSize), kAll = static_cast<int>(kRows), kFirst = static_cast<int>(kFrom);
    return [&]<int... i>(std::integer_sequence<int, i...>) FORGE_INLINE_BODY {
      return __builtin_shufflevector(a, b, (i / kPiece * kPiece + kFirst + i % kPiece / 2 + i % 2 * kAll)...);
    }(std::make_integer_sequence<int, kAll>{});
  }
};

/// Packs a group of F32, F16 or BF16; Element has the type's size. The columns after the last whole square are copied
/// element by element.
template <class Element>
void pack_elements(const std::byte* const* rows, std::size_t k, std::byte* group) {
  using Of = Square<Element>;
  alignas(16) constexpr std::byte kZeros[16]{};
  std::size_t at = 0;
  for (; at + Of::kSize <= k; at += Of::kSize)
    for (std::size_t first = 0; first < quant::kX16Rows; first += Of::kRows) {
      Of square;
      square.load([&](std::size_t r) FORGE_INLINE_BODY {
        const std::byte* row = rows[first + r];
        return row != nullptr ? row + at * sizeof(Element) : kZeros;
      });
      square.transpose();
      for (std::size_t i = 0; i < Of::kSize; ++i)
        std::memcpy(group + ((at + i) * quant::kX16Rows + first) * sizeof(Element), &square.lines[i],
                    sizeof(typename Of::Line));
    }
  for (; at < k; ++at)
    for (std::size_t r = 0; r < quant::kX16Rows; ++r) {
      Element element = 0;
      if (rows[r] != nullptr) std::memcpy(&element, rows[r] + at * sizeof(Element), sizeof(Element));
      std::memcpy(group + (at * quant::kX16Rows + r) * sizeof(Element), &element, sizeof(Element));
    }
}

/// Packs a group of Q8_0, Q4_0 or Q4_1 (the layout of x16.h).
template <class Block>
void pack_blocks(const std::byte* const* rows, std::size_t k, std::byte* group) {
  using Parts = quant::X16Block<Block>;
  using Of = Square<std::uint32_t>;
  static_assert(Parts::kWords % Of::kSize == 0);
  constexpr std::byte kZeros[sizeof(Block)]{};
  const std::size_t blocks = k / Block::kElems;
  for (std::size_t b = 0; b < blocks; ++b) {
    const auto place = quant::x16_place<Block>(blocks, b);
    const std::byte* native[quant::kX16Rows];
    for (std::size_t r = 0; r < quant::kX16Rows; ++r)
      native[r] = rows[r] != nullptr ? rows[r] + b * sizeof(Block) : kZeros;
    for (std::size_t j = 0; j < Parts::kWords; j += Of::kSize)
      for (std::size_t first = 0; first < quant::kX16Rows; first += Of::kRows) {
        Of square;
        square.load([&](std::size_t r) FORGE_INLINE_BODY { return native[first + r] + Parts::kQuantsAt + 4 * j; });
        square.transpose();
        for (std::size_t i = 0; i < Of::kSize; ++i) {
          const Of::Line line = square.lines[i] ^ Parts::kFlip;
          std::memcpy(group + place.quants + 64 * (j + i) + 4 * first, &line, sizeof(line));
        }
      }
    for (std::size_t part = 0; part < Parts::kParts; ++part)
      for (std::size_t r = 0; r < quant::kX16Rows; ++r)
        std::memcpy(group + place.scales + quant::X16Unit<Block>::kPlaneBytes * part + Parts::kPartBytes * r,
                    native[r] + Parts::kScalesAt + Parts::kPartBytes * part, Parts::kPartBytes);
  }
}

/// Packs 32 columns of 16 rows of codes; the codes of row r begin at rows + r * stride. First the words of all rows are
/// transposed, then several words are combined per line (x16_codes.h).
template <class Block>
FORGE_INLINE void pack_part(const quant::u8* rows, std::size_t stride, quant::u8* out) {
  using Of = Square<std::uint32_t>;
  constexpr quant::u32 kLow = Block::kPacking.low, kHigh = Block::kPacking.high;
  alignas(64) quant::u32 words[8][quant::kX16Rows];
  for (std::size_t w = 0; w < 8; w += Of::kSize)
    for (std::size_t first = 0; first < quant::kX16Rows; first += Of::kRows) {
      Of square;
      square.load([&](std::size_t r) FORGE_INLINE_BODY { return rows + (first + r) * stride + 4 * w; });
      square.transpose();
      for (std::size_t i = 0; i < Of::kSize; ++i)
        std::memcpy(&words[w + i][first], &square.lines[i], sizeof(typename Of::Line));
    }
  // Writes `lines` lines. Line i combines `per` words, i * next, i * next + step, ..: `bits` bits of each from bit
  // `from`.
  const auto plane = [&](quant::u32 lines, quant::u32 per, quant::u32 step, quant::u32 next, quant::u32 bits,
                         quant::u32 from, quant::u8* to) FORGE_INLINE_BODY {
    const quant::u32 mask = ((1u << bits) - 1) * 0x01010101u;
    for (quant::u32 line = 0; line < lines; ++line) {
      quant::u32 packed[quant::kX16Rows]{};
      for (quant::u32 q = 0; q < per; ++q)
        for (std::size_t r = 0; r < quant::kX16Rows; ++r)
          packed[r] |= (words[line * next + q * step][r] >> from & mask) << (q * bits);
      std::memcpy(to + 64 * line, packed, 64);
    }
  };
  if constexpr (kLow == 4)
    plane(4, 2, 4, 1, 4, 0, out);
  else
    plane(2, 4, 1, 4, 2, 0, out);
  if constexpr (kHigh == 1) plane(1, 8, 1, 8, 1, kLow, out + 64 * kLow);
  if constexpr (kHigh == 2) plane(2, 4, 1, 4, 2, kLow, out + 64 * kLow);
}

/// Packs the small integers of a unit. numbers[i][r] is number i of row r; the format of the lines is in x16_codes.h.
template <class Block>
FORGE_INLINE void pack_numbers(const quant::u8 (*numbers)[quant::kX16Rows], quant::u8* lines) {
  using Line = typename VectorOf<quant::u8, quant::kX16Rows>::Type;
  constexpr quant::u32 kNumbers = quant::X16Codes<Block>::kNumbers, kBits = Block::kPacking.number_bits;
  const auto number = [&](quant::u32 i) FORGE_INLINE_BODY {
    Line line;
    std::memcpy(&line, numbers[i], sizeof(line));
    return line;
  };
  const auto put = [&](quant::u32 at, Line line)
                       FORGE_INLINE_BODY { std::memcpy(lines + 16 * at, &line, sizeof(line)); };
  if constexpr (kBits == 8) {
    for (quant::u32 i = 0; i < kNumbers; ++i) put(i, number(i));
  } else {
    for (quant::u32 i = 0; i < kNumbers; i += 2) put(i / 2, (number(i) & 15) | number(i + 1) << 4);
    for (quant::u32 i = 0; kBits == 6 && i < kNumbers; i += 4)
      put(kNumbers / 2 + i / 4,
          number(i) >> 4 | number(i + 1) >> 4 << 2 | number(i + 2) >> 4 << 4 | number(i + 3) >> 4 << 6);
  }
}

/// Packs a group of a type with a Packing. Rows must be aligned like the type's block.
template <class Block>
void pack_codes(const std::byte* const* rows, std::size_t k, std::byte* group) {
  using Unit = quant::X16Codes<Block>;
  using quant::u32, quant::u8;
  constexpr Block kZeros{};
  for (std::size_t b = 0; b < k / Block::kElems; ++b, group += Unit::kBytes) {
    auto* out = reinterpret_cast<u8*>(group);
    alignas(64) u8 codes[quant::kX16Rows][Block::kElems];
    alignas(64) u8 numbers[std::max(Unit::kNumbers, 1u)][quant::kX16Rows];
    for (u32 r = 0; r < quant::kX16Rows; ++r) {
      const Block& block = rows[r] != nullptr ? reinterpret_cast<const Block*>(rows[r])[b] : kZeros;
      if constexpr (quant::HasLevels<Block>)
        code_values(block, codes[r]);
      else
        raw_values(block, codes[r]);
      if constexpr (Unit::kPacking.halves != 0)
        for (u32 part = 0; part < Unit::kPacking.halves; ++part) {
          const quant::u16 half = f16_number(block, part);
          std::memcpy(out + Unit::kHalvesAt + 32 * part + 2 * r, &half, 2);
        }
      if constexpr (Unit::kNumbers != 0) {
#pragma GCC unroll 32
        for (u32 i = 0; i < Unit::kNumbers; ++i) numbers[i][r] = static_cast<u8>(scale_number(block, i));
      }
    }
    if constexpr (Unit::kNumbers != 0) pack_numbers<Block>(numbers, out + Unit::kNumbersAt);
    for (u32 part = 0; part < Unit::kParts; ++part)
      pack_part<Block>(codes[0] + 32 * part, Block::kElems, out + part * Unit::kPartBytes);
  }
}

/// The packing function of a block type; nullptr if `type` is not in the list.
template <class... Rows>
PackFn pack_of_blocks(DType type, quant::BlockRows<Rows...>) {
  PackFn found = nullptr;
  const auto look = [&]<class Row>(std::type_identity<Row>) FORGE_INLINE_BODY {
    if (type != Row::kType) return;
    if constexpr (quant::HasPacking<typename Row::Block>)
      found = pack_codes<typename Row::Block>;
    else
      found = pack_blocks<typename Row::Block>;
  };
  (look(std::type_identity<Rows>{}), ...);
  return found;
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
