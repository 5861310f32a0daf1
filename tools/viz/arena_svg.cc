#include "tools/viz/arena_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string_view>

#include "support/os/console.h"
#include "tools/viz/svg.h"

namespace forge::tools {
namespace {

constexpr double kLeft = 84, kRight = 24, kTop = 92, kBottom = 56, kPlotHeight = 480;
constexpr double kPlotWidthWanted = 1200, kPlotWidthMin = 760, kStepWidthMin = 4, kStepWidthMax = 40;

constexpr std::string_view kStyle =
    ".box{stroke:#fff;stroke-width:.6}.box:hover{stroke:#000;stroke-width:1.5}\n"
    ".name{font-size:10px;fill:#fff;pointer-events:none}\n"
    ".value{fill:#4878b0}.reused{fill:#2a9d74}.scratch{fill:#d98c2b}\n"
    ".layer{fill:#f1f1f1}.axis{stroke:#888;fill:none}.grid{stroke:#ddd}\n"
    ".peak{stroke:#c22;stroke-width:1.5}.bound{stroke:#000;stroke-width:1.5;stroke-dasharray:6 5}\n";

std::string human(std::int64_t bytes) {
  return human_bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0)));
}

std::string_view class_of(ArenaBox::Kind kind) {
  switch (kind) {
    case ArenaBox::Kind::kReused:
      return "reused";
    case ArenaBox::Kind::kScratch:
      return "scratch";
    case ArenaBox::Kind::kValue:
      break;
  }
  return "value";
}

class ArenaDrawing {
 public:
  explicit ArenaDrawing(const ArenaPicture& picture)
      : picture_(picture),
        steps_(std::max<std::size_t>(picture.layers.size(), 1)),
        step_width_(std::clamp(kPlotWidthWanted / static_cast<double>(steps_), kStepWidthMin, kStepWidthMax)),
        bytes_max_(std::max({picture.peak_bytes, picture.bound_bytes, std::int64_t{1}})),
        svg_(kLeft + plot_width() + kRight, kTop + kPlotHeight + kBottom, picture.title, kStyle) {}

  std::string text() {
    svg_.text(kLeft, 24, "title", picture_.title);
    svg_.text(kLeft, 43, "", picture_.subtitle);
    legend();
    layers();
    offsets_axis();
    for (const auto& box : picture_.boxes) draw(box);
    steps_axis();
    lines();
    return svg_.take();
  }

 private:
  [[nodiscard]] double plot_width() const { return std::max(kPlotWidthMin, step_width_ * static_cast<double>(steps_)); }
  [[nodiscard]] double x(std::size_t step) const { return kLeft + step_width_ * static_cast<double>(step); }
  [[nodiscard]] double y(std::int64_t bytes) const {
    return kTop + kPlotHeight * (1 - static_cast<double>(bytes) / static_cast<double>(bytes_max_));
  }

  void legend() {
    double at = kLeft;
    const auto stroke = [&](std::string_view classes, const std::string& text) {
      svg_.line(at - 2, 63, at + 14, 63, classes);
      svg_.text(at + 18, 67, "", text);
      at += 34 + kSvgLetterWidth * static_cast<double>(text.size());
    };
    at = svg_.swatch(at, 67, "value", "value");
    at = svg_.swatch(at, 67, "reused", "buffer with values computed in place");
    at = svg_.swatch(at, 67, "scratch", "scratch of one step");
    stroke("peak", "arena " + human(picture_.peak_bytes));
    stroke("bound", "lower bound " + human(picture_.bound_bytes));
  }

  /// Shades the steps of every second layer and writes layer numbers below where there is room.
  void layers() {
    const auto& of = picture_.layers;
    for (std::size_t begin = 0, end = 0; begin < of.size(); begin = end) {
      for (end = begin; end < of.size() && of[end] == of[begin];) ++end;
      if (of[begin] < 0) continue;
      const double width = step_width_ * static_cast<double>(end - begin);
      if (of[begin] % 2 == 0)
        svg_.rect(x(begin), kTop, width, kPlotHeight, "layer",
                  fmt::format("layer {}, steps {} to {}", of[begin], begin, end - 1));
      const auto name = fmt::format("{}", of[begin]);
      if (kSvgLetterWidth * static_cast<double>(name.size()) <= width)
        svg_.text(x(begin) + width / 2, kTop + kPlotHeight + 30, "middle", name);
    }
    svg_.text(kLeft - 8, kTop + kPlotHeight + 30, "right", "layer");
  }

  void offsets_axis() {
    const auto wanted = static_cast<std::uint64_t>(bytes_max_) / 8;
    const auto tick = static_cast<std::int64_t>(std::bit_ceil(std::max<std::uint64_t>(wanted, 1)));
    for (std::int64_t at = 0; at <= bytes_max_; at += tick) {
      svg_.line(kLeft, y(at), kLeft + plot_width(), y(at), "grid");
      svg_.text(kLeft - 8, y(at) + 4, "right", human(at));
      if (at > bytes_max_ - tick) break;
    }
  }

  void steps_axis() {
    svg_.line(kLeft, kTop, kLeft, kTop + kPlotHeight, "axis");
    svg_.line(kLeft, kTop + kPlotHeight, kLeft + plot_width(), kTop + kPlotHeight, "axis");
    const std::size_t tick = steps_ > 200 ? 20 : steps_ > 40 ? 10 : steps_ > 12 ? 5 : 1;
    for (std::size_t step = 0; step < picture_.layers.size(); step += tick)
      svg_.text(x(step) + step_width_ / 2, kTop + kPlotHeight + 15, "middle", fmt::format("{}", step));
    svg_.text(kLeft - 8, kTop + kPlotHeight + 15, "right", "step");
  }

  void draw(const ArenaBox& box) {
    const double width = step_width_ * static_cast<double>(box.last - box.first + 1);
    const double top = y(box.offset + box.bytes), height = y(box.offset) - top;
    const double left = x(static_cast<std::size_t>(std::max(box.first, 0)));
    svg_.rect(left, top, width, height, fmt::format("box {}", class_of(box.kind)),
              fmt::format("{}\n{} bytes ({}) at offset {}\n{}\n{}", box.name, box.bytes, human(box.bytes), box.offset,
                          box.first == box.last ? fmt::format("step {}", box.first)
                                                : fmt::format("steps {} to {}", box.first, box.last),
                          box.details));
    if (height >= 13 && kSvgLetterWidth * static_cast<double>(box.name.size()) + 6 <= width)
      svg_.text(left + 3, top + height / 2 + 3.5, "name", box.name);
  }

  /// The line of the bound is dashed, so that both lines are visible when the arena equals its bound.
  void lines() {
    svg_.line(kLeft, y(picture_.peak_bytes), kLeft + plot_width(), y(picture_.peak_bytes), "peak");
    svg_.line(kLeft, y(picture_.bound_bytes), kLeft + plot_width(), y(picture_.bound_bytes), "bound");
  }

  const ArenaPicture& picture_;
  std::size_t steps_;
  double step_width_;
  std::int64_t bytes_max_;
  Svg svg_;
};

}  // namespace

std::string arena_svg(const ArenaPicture& picture) {
  return ArenaDrawing(picture).text();
}

}  // namespace forge::tools
