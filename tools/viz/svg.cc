#include "tools/viz/svg.h"

#include <fmt/format.h>

#include <algorithm>

#include "support/error.h"

namespace forge::tools {
namespace {

constexpr std::size_t kTextMax = 400;

constexpr std::string_view kTextStyle =
    "text{font:11px sans-serif;fill:#222}\n"
    ".title{font-size:15px;font-weight:bold}\n"
    ".right{text-anchor:end}.middle{text-anchor:middle}\n";

std::string escaped_lines(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    if (!out.empty()) out += '\n';
    out += svg_escaped(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace

std::string svg_escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text, kTextMax)) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

Svg::Svg(double width, double height, std::string_view title, std::string_view style)
    : out_(fmt::format(
          "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
          "{1:.0f}\">\n"
          "<title>{2}</title>\n<style>\n{3}{4}</style>\n<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"#fff\"/>\n",
          width, height, svg_escaped(title), kTextStyle, style)) {}

void Svg::text(double x, double y, std::string_view classes, std::string_view text) {
  out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y,
                      classes.empty() ? "" : fmt::format(" class=\"{}\"", classes), svg_escaped(text));
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view classes) {
  out_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1, x2, y2,
                      classes);
}

void Svg::rect(double x, double y, double width, double height, std::string_view classes, std::string_view tooltip) {
  out_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.2f}\" width=\"{:.1f}\" height=\"{:.2f}\" class=\"{}\"", x, y, width,
                      height, classes);
  out_ += tooltip.empty() ? "/>\n" : "><title>" + escaped_lines(tooltip) + "</title></rect>\n";
}

double Svg::swatch(double x, double y, std::string_view classes, std::string_view label) {
  out_ +=
      fmt::format("<rect x=\"{:.1f}\" y=\"{:.0f}\" width=\"12\" height=\"12\" class=\"{}\"/>\n", x, y - 10, classes);
  text(x + 18, y, "", label);
  return x + 34 + kSvgLetterWidth * static_cast<double>(label.size());
}

}  // namespace forge::tools
