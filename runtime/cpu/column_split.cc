#include "runtime/cpu/column_split.h"

#include <algorithm>

namespace forge::runtime {

// With several threads a piece is left / (2 * threads) columns, rounded down to whole units.
std::vector<TilePiece> split_columns(const std::vector<TileSection>& sections, std::size_t threads) {
  constexpr std::size_t kColumnsMax = kTileFloats / 4 / kSplitRows, kColumnsMin = 32;
  std::size_t left = 0;
  for (const auto& section : sections) left += section.end - section.begin;
  std::vector<TilePiece> pieces;
  for (std::size_t s = 0; s < sections.size(); ++s) {
    const std::size_t width = sections[s].end - sections[s].begin;
    // The smallest piece: whole units that make at least kColumnsMin columns.
    const std::size_t unit = (kColumnsMin + sections[s].unit - 1) / sections[s].unit * sections[s].unit;
    for (std::size_t at = 0; at < width;) {
      const std::size_t share = threads > 1 ? std::min(left / (2 * threads), kColumnsMax) : kColumnsMax;
      const std::size_t columns = std::min(std::max<std::size_t>(share / unit, 1) * unit, width - at);
      pieces.push_back({s, at, at + columns});
      at += columns;
      left -= columns;
    }
  }
  return pieces;
}

}  // namespace forge::runtime
