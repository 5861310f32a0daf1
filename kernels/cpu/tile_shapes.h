#pragma once
// The 64-byte configuration of the eight AMX tile registers, as LDTILECFG reads it from memory. Source: Intel SDM,
// volume 1, chapter "Programming with Intel AMX", palette 1.

#include <cstddef>
#include <cstdint>

namespace forge::cpu {

/// Rows and bytes per row of each tile; 0 means that a tile is not used. The first 8 of 16 entries are valid.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14]{};
  std::uint16_t row_bytes[16]{};  ///< at most 64
  std::uint8_t rows[16]{};        ///< at most 16

  /// Sets one tile's shape; returns *this.
  constexpr TileShapes& set(std::size_t tile, std::size_t tile_rows, std::size_t bytes) {
    rows[tile] = static_cast<std::uint8_t>(tile_rows);
    row_bytes[tile] = static_cast<std::uint16_t>(bytes);
    return *this;
  }
};
static_assert(sizeof(TileShapes) == 64);

}  // namespace forge::cpu
