#pragma once
// SVG text (W3C SVG 1.1), element by element: no script, no font or file from elsewhere, the same bytes every time.
// Texts may hold anything: what XML does not allow is escaped.

#include <cstddef>
#include <string>
#include <string_view>

namespace forge::tools {

inline constexpr double kSvgLetterWidth = 6.2;  ///< of the 10 px font, at most

/// `text` for an element's content: one line, printable, escaped.
[[nodiscard]] std::string svg_escaped(std::string_view text);

class Svg {
 public:
  /// A white page. `style` is CSS for the classes; the classes of text (title, right, middle) are there.
  Svg(double width, double height, std::string_view title, std::string_view style);

  void text(double x, double y, std::string_view classes, std::string_view text);
  void line(double x1, double y1, double x2, double y2, std::string_view classes);
  /// `tooltip` may have several lines; none when it is empty. `y` and `height` have two decimals.
  void rect(double x, double y, double width, double height, std::string_view classes, std::string_view tooltip = {});
  /// A legend's entry: a box of 12 px with a text behind it; returns where the next one begins.
  [[nodiscard]] double swatch(double x, double y, std::string_view classes, std::string_view text);

  /// The whole document.
  [[nodiscard]] std::string take() { return std::move(out_) + "</svg>\n"; }

 private:
  std::string out_;
};

}  // namespace forge::tools
