#pragma once
// The static arena as a picture: steps from left to right, offsets from bottom to top, a box a buffer. A pure function
// from numbers to SVG text (W3C SVG 1.1): no script, no font or file from elsewhere, the same bytes every time.

#include <cstdint>
#include <string>
#include <vector>

namespace forge::tools {

/// A buffer that takes [offset, offset + bytes) in the steps [first, last], both ends included.
struct ArenaBox {
  enum class Kind : std::uint8_t { kValue, kReused, kScratch };
  Kind kind = Kind::kValue;  ///< kReused: later values are computed in place of the first one
  std::string name;          ///< stands in the box where it fits
  std::string details;       ///< further lines of the tooltip
  std::int64_t offset = 0, bytes = 0;
  std::int32_t first = 0, last = 0;
};

struct ArenaPicture {
  std::string title, subtitle;
  std::vector<std::int32_t> layers;  ///< of each step, -1 for none; its size is the number of steps
  std::vector<ArenaBox> boxes;
  std::int64_t peak_bytes = 0, bound_bytes = 0;  ///< the arena's size, and the largest set of live buffers
};

/// The whole document. Texts may hold anything: what XML does not allow is escaped.
[[nodiscard]] std::string arena_svg(const ArenaPicture& picture);

}  // namespace forge::tools
