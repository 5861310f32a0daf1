#pragma once
// Writes SVG text (W3C SVG 1.1) element by element: no scripts, no external fonts or files, the same bytes every time.
// Texts may contain anything; they are escaped.

#include <cstddef>
#include <string>
#include <string_view>

namespace forge::tools {

inline constexpr double kSvgLetterWidth = 6.2;  ///< maximum width of a letter of the 10 px font, in px

/// Escapes `text` for an element's content, as one printable line.
[[nodiscard]] std::string svg_escaped(std::string_view text);

/// A document under construction; coordinates are in px.
class Svg {
 public:
  /// A white page. `style`: CSS of the caller's classes; the text classes title, right and middle are predefined.
  Svg(double width, double height, std::string_view title, std::string_view style);

  void text(double x, double y, std::string_view classes, std::string_view text);
  void line(double x1, double y1, double x2, double y2, std::string_view classes);
  /// `tooltip` may have several lines; empty: none. `y` and `height` are written with two decimals, the rest with one.
  void rect(double x, double y, double width, double height, std::string_view classes, std::string_view tooltip = {});
  /// A legend entry: a 12 px box and a text. Returns the x coordinate for the next entry.
  [[nodiscard]] double swatch(double x, double y, std::string_view classes, std::string_view text);

  /// The whole document.
  [[nodiscard]] std::string take() { return std::move(out_) + "</svg>\n"; }

 private:
  std::string out_;
};

}  // namespace forge::tools
