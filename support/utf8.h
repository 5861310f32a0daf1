#pragma once
// The definition of well-formed UTF-8 (Unicode 15, table 3-7) for everything that prints or checks text.

#include <cstddef>
#include <string_view>

namespace forge {

/// The number of bytes of the well-formed character at the start of `text`, which must not be empty; 0 if the text does
/// not start with one. Overlong forms, surrogates (U+D800 to U+DFFF) and values above U+10FFFF are not well-formed.
[[nodiscard]] constexpr std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t n = lead >= 0xF0 && lead < 0xF5   ? 4
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xC2 && lead < 0xE0 ? 2
                                                      : 0;
  if (n == 0 || n > text.size()) return 0;
  for (std::size_t i = 1; i < n; ++i)
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  const unsigned second = byte(1);
  // The second byte decides the cases that the length alone does not exclude:
  //   E0 80..9F  overlong, fits two bytes      ED A0..BF  a surrogate
  //   F0 80..8F  overlong, fits three bytes    F4 90..BF  above U+10FFFF
  const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool beyond = (lead == 0xED && second > 0x9F) || (lead == 0xF4 && second > 0x8F);
  return overlong || beyond ? 0 : n;
}

}  // namespace forge
