#pragma once
// Draws a static arena as SVG (W3C SVG 1.1): steps from left to right, arena offsets from bottom to top, one box per
// buffer. A pure function of its input: no scripts, no external fonts or files, the same bytes every time.
//
//   offset ^
//          | [ ffn gate  ]
//          | [ q,k,v ][ attention out ]
//          | [ residual stream .............. ]
//          +------------------------------------> step

#include <cstdint>
#include <string>
#include <vector>

namespace forge::tools {

/// A buffer that occupies [offset, offset + bytes) during the steps first to last, both included.
struct ArenaBox {
  enum class Kind : std::uint8_t { kValue, kReused, kScratch };
  Kind kind = Kind::kValue;  ///< kReused: later values are computed in place, in the same buffer
  std::string name;          ///< drawn in the box if it fits
  std::string details;       ///< more lines of the tooltip
  std::int64_t offset = 0, bytes = 0;
  std::int32_t first = 0, last = 0;
};

struct ArenaPicture {
  std::string title, subtitle;
  std::vector<std::int32_t> layers;  ///< layer of each step, -1: none; the size is the number of steps
  std::vector<ArenaBox> boxes;
  std::int64_t peak_bytes = 0, bound_bytes = 0;  ///< the arena's size; the largest total of buffers live in one step
};

/// The SVG document. Texts may contain anything; they are escaped.
[[nodiscard]] std::string arena_svg(const ArenaPicture& picture);

}  // namespace forge::tools
