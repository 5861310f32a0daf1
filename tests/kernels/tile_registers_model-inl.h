#pragma once
// A model of the AMX tile registers in plain C++, so that tests run the tile kernels on any CPU. It has the interface
// of tiles_amx-inl.h. Each operation follows its definition in the Intel SDM (volume 2: LDTILECFG, TILELOADD, TDPBSUD,
// TDPBSSD, TDPBF16PS). Where the CPU would raise an invalid-operation fault, the model throws std::logic_error. Each
// thread has its own registers, as on a CPU.

#include <bit>
#include <cmath>
#include <stdexcept>

#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/tile_shapes.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

struct Tiles {
  static constexpr int kTiles = 8;
  static constexpr std::size_t kRows = 16, kRowBytes = 64;

  /// LDTILECFG: checks and sets the shapes, and zeroes all tiles.
  static void configure(const TileShapes& shapes) {
    auto& at = registers();
    if (shapes.palette != 1 || shapes.start_row != 0) invalid("the palette");
    for (std::size_t i = 0; i < kRows; ++i) {
      if (i < 14 && shapes.reserved[i] != 0) invalid("reserved bytes");
      if (shapes.rows[i] > kRows || shapes.row_bytes[i] > kRowBytes) invalid("a tile's size");
      if ((shapes.rows[i] == 0) != (shapes.row_bytes[i] == 0)) invalid("half of a tile's size");
      if (i >= kTiles && shapes.rows[i] != 0) invalid("a tile that is not there");
    }
    at = {};
    at.shapes = shapes;
    at.configured = true;
  }
  static void release() { registers() = {}; }

  template <int tile>
  static void zero() {
    std::memset(used(tile).bytes, 0, sizeof(Tile::bytes));
  }
  template <int tile>
  static void load(const void* from, std::size_t stride) {
    Tile& to = used(tile);
    std::memset(to.bytes, 0, sizeof(to.bytes));
    for (std::size_t r = 0; r < rows(tile); ++r)
      std::memcpy(to.bytes[r], static_cast<const std::uint8_t*>(from) + r * stride, row_bytes(tile));
  }
  template <int tile>
  static void store(void* to, std::size_t stride) {
    const Tile& from = used(tile);
    for (std::size_t r = 0; r < rows(tile); ++r)
      std::memcpy(static_cast<std::uint8_t*>(to) + r * stride, from.bytes[r], row_bytes(tile));
  }

  /// sum[m][n] += sum over k of a[m][k] (signed) * b[k/4][4n + k%4] (unsigned), modulo 2^32.
  template <int sum, int a, int b>
  static void dot_signed_unsigned() {
    dot_bytes<std::uint8_t>(sum, a, b);
  }
  /// The same with b signed.
  template <int sum, int a, int b>
  static void dot_signed_signed() {
    dot_bytes<std::int8_t>(sum, a, b);
  }

  /// sum[m][n] += even + odd. Each of the two is a chain of fused multiply-adds, starting from 0, over the even or odd
  /// k of a[m][k] * b[k/2][2n + k%2]. Rounding is to nearest even; subnormal operands and results become zeros of the
  /// same sign.
  template <int sum, int a, int b>
  static void dot_bf16() {
    check_shapes(sum, a, b);
    for (std::size_t m = 0; m < rows(sum); ++m)
      for (std::size_t n = 0; n < row_bytes(sum) / 4; ++n) {
        float chains[2] = {};
        for (std::size_t k = 0; k < row_bytes(a) / 2; ++k)
          chains[k % 2] = flushed(std::fma(brain(a, m, k), brain(b, k / 2, 2 * n + k % 2), chains[k % 2]));
        const float both = flushed(chains[0] + chains[1]);
        set_word(sum, m, n,
                 std::bit_cast<std::uint32_t>(flushed(flushed(std::bit_cast<float>(word(sum, m, n))) + both)));
      }
  }

 private:
  struct Tile {
    std::uint8_t bytes[kRows][kRowBytes];
  };
  struct Registers {
    bool configured = false;
    TileShapes shapes{};
    Tile tiles[kTiles]{};
  };
  static Registers& registers() {
    static thread_local Registers own;
    return own;
  }
  [[noreturn]] static void invalid(const char* what) { throw std::logic_error(std::string("AMX tiles: ") + what); }

  static std::size_t rows(int tile) { return registers().shapes.rows[tile]; }
  static std::size_t row_bytes(int tile) { return registers().shapes.row_bytes[tile]; }
  static Tile& used(int tile) {
    auto& at = registers();
    if (!at.configured || at.shapes.rows[tile] == 0) invalid("a tile without a size is used");
    return at.tiles[tile];
  }
  /// Checks that the three tiles differ and fit each other: sum [M][N], a [M][K] and b [K/4][4N] (bytes).
  static void check_shapes(int sum, int a, int b) {
    if (sum == a || sum == b || a == b) invalid("one tile in two places");
    if (row_bytes(a) % 4 != 0 || row_bytes(b) % 4 != 0 || row_bytes(sum) % 4 != 0) invalid("rows are no whole words");
    if (rows(sum) != rows(a) || row_bytes(a) / 4 != rows(b) || row_bytes(sum) != row_bytes(b))
      invalid("shapes of a product");
  }
  template <class Byte>
  static void dot_bytes(int sum, int a, int b) {
    check_shapes(sum, a, b);
    for (std::size_t m = 0; m < rows(sum); ++m)
      for (std::size_t n = 0; n < row_bytes(sum) / 4; ++n) {
        auto total = word(sum, m, n);
        for (std::size_t k = 0; k < row_bytes(a); ++k)
          total += static_cast<std::uint32_t>(static_cast<std::int8_t>(used(a).bytes[m][k])) *
                   static_cast<std::uint32_t>(static_cast<Byte>(used(b).bytes[k / 4][4 * n + k % 4]));
        set_word(sum, m, n, total);
      }
  }
  static std::uint32_t word(int tile, std::size_t row, std::size_t n) {
    std::uint32_t value;
    std::memcpy(&value, used(tile).bytes[row] + 4 * n, 4);
    return value;
  }
  static void set_word(int tile, std::size_t row, std::size_t n, std::uint32_t value) {
    std::memcpy(used(tile).bytes[row] + 4 * n, &value, 4);
  }
  static float brain(int tile, std::size_t row, std::size_t n) {
    std::uint16_t half;
    std::memcpy(&half, used(tile).bytes[row] + 2 * n, 2);
    return flushed(quant::f32_of_bf16(half));
  }
  /// Flushes subnormals to zero, as TDPBF16PS does.
  static float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
};

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
