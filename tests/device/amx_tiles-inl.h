#pragma once
// Single tile products, compiled once for the CPU's tile registers and once for the model's, so that amx_check can
// compare them.

#include "kernels/cpu/simd-inl.h"
#include "tests/device/amx_product.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// sum[16][16] (32-bit words) += a[rows][a_bytes] times b[a_bytes/4][64]. Rows of a, b and sum are 64 bytes apart.
void tile_product(Product product, std::size_t rows, std::size_t a_bytes, const std::uint8_t* a, const std::uint8_t* b,
                  std::uint8_t* sum);
void tile_product(Product product, std::size_t rows, std::size_t a_bytes, const std::uint8_t* a, const std::uint8_t* b,
                  std::uint8_t* sum) {
  TileShapes shapes;
  shapes.set(0, rows, 64).set(1, rows, a_bytes).set(2, a_bytes / 4, 64);
  Tiles::configure(shapes);
  Tiles::load<0>(sum, 64);
  Tiles::load<1>(a, 64);
  Tiles::load<2>(b, 64);
  switch (product) {
    case Product::kBf16:
      Tiles::dot_bf16<0, 1, 2>();
      break;
    case Product::kSignedSigned:
      Tiles::dot_signed_signed<0, 1, 2>();
      break;
    case Product::kSignedUnsigned:
      Tiles::dot_signed_unsigned<0, 1, 2>();
  }
  Tiles::store<0>(sum, 64);
  Tiles::release();
}

/// The tile shapes of a matmul stage: 4 accumulators, 2 tiles of a, 2 of b.
FORGE_INLINE void configure_stage(std::size_t rows, std::size_t a_bytes) {
  TileShapes shapes;
  for (std::size_t tile = 0; tile < 4; ++tile) shapes.set(tile, rows, 64);
  for (std::size_t tile = 4; tile < 6; ++tile) shapes.set(tile, rows, a_bytes);
  for (std::size_t tile = 6; tile < 8; ++tile) shapes.set(tile, a_bytes / 4, 64);
  Tiles::configure(shapes);
}

/// Runs `rounds` matmul stages without vector work: 2 loads of x, 4 of weights, 4 products, 4 stores each.
void tile_stages(std::size_t rounds, std::size_t rows, std::size_t a_bytes, const std::uint8_t* lines,
                 std::uint8_t* sums);
void tile_stages(std::size_t rounds, std::size_t rows, std::size_t a_bytes, const std::uint8_t* lines,
                 std::uint8_t* sums) {
  configure_stage(rows, a_bytes);
  for (std::size_t i = 0; i < rounds; ++i) {
    std::uint8_t* to = sums + i % 2 * 4096;
    Tiles::load<4>(lines, 64);
    Tiles::load<6>(lines + 1024, 64);
    Tiles::zero<0>();
    Tiles::dot_signed_unsigned<0, 4, 6>();
    Tiles::load<7>(lines + 2048, 64);
    Tiles::zero<1>();
    Tiles::dot_signed_unsigned<1, 4, 7>();
    Tiles::load<5>(lines + 32, 64);
    Tiles::load<6>(lines + 3072, 64);
    Tiles::zero<2>();
    Tiles::dot_signed_unsigned<2, 5, 6>();
    Tiles::load<7>(lines + 4096, 64);
    Tiles::zero<3>();
    Tiles::dot_signed_unsigned<3, 5, 7>();
    Tiles::store<0>(to, 64);
    Tiles::store<1>(to + 1024, 64);
    Tiles::store<2>(to + 2048, 64);
    Tiles::store<3>(to + 3072, 64);
  }
  Tiles::release();
}

/// Runs `rounds` times 4 products without loads or stores.
void tile_products(std::size_t rounds, std::size_t rows, std::size_t a_bytes);
void tile_products(std::size_t rounds, std::size_t rows, std::size_t a_bytes) {
  configure_stage(rows, a_bytes);
  for (std::size_t i = 0; i < rounds; ++i) {
    Tiles::dot_signed_unsigned<0, 4, 6>();
    Tiles::dot_signed_unsigned<1, 4, 7>();
    Tiles::dot_signed_unsigned<2, 5, 6>();
    Tiles::dot_signed_unsigned<3, 5, 7>();
  }
  Tiles::release();
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
