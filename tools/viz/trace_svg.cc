#include "tools/viz/trace_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>

#include "support/error.h"
#include "tools/viz/svg.h"

namespace forge::tools {
namespace {

constexpr double kTraceLeft = 84, kTraceRight = 24, kTraceTop = 60, kPlotWidth = 1100, kStepHeight = 24,
                 kRowHeight = 40, kGap = 6;
constexpr double kLegendLine = 20, kAxisHeight = 36;

/// Number of colours; a model has about as many kinds of steps. Further kinds reuse colours.
constexpr std::size_t kColours = 8;
constexpr std::string_view kTraceStyle =
    ".c0{fill:#4878b0}.c1{fill:#d98c2b}.c2{fill:#2a9d74}.c3{fill:#b0483f}.c4{fill:#7a5aa6}.c5{fill:#8a6d3b}\n"
    ".c6{fill:#c76aa0}.c7{fill:#6b7a3a}.wait{fill:#e4e4e4}\n"
    ".chunk{stroke:#fff;stroke-width:.4}.chunk:hover,.step:hover,.wait:hover{stroke:#000;stroke-width:1}\n"
    ".step{stroke:#fff;stroke-width:.8}.name{font-size:10px;fill:#fff;pointer-events:none}\n"
    ".axis{stroke:#888}.grid{stroke:#eee}\n";

/// The total time of the steps with one label, and their colour.
struct Kind {
  std::size_t colour = 0;
  double us = 0;
};

/// The step's label in a chunk's name: "qkv_rope_store" in "qkv_rope_store 17".
std::string label_of_chunk(const std::string& name) {
  return name.substr(0, name.find_last_of(' '));
}

/// Distance of axis ticks: 1, 2 or 5 times a power of ten, so that about `count` of them fill `span`.
double tick_of(double span, double count) {
  const double wanted = std::max(span / count, 1e-3), power = std::pow(10, std::floor(std::log10(wanted)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= wanted) return factor * power;
  return 10 * power;
}

class TraceDrawing {
 public:
  explicit TraceDrawing(const TracePicture& picture)
      : picture_(picture),
        kinds_(kinds_of(picture)),
        us_max_(std::max(picture.end_us - picture.begin_us, 1e-3)),
        plot_height_(kStepHeight + kGap + kRowHeight * static_cast<double>(picture.threads.size())),
        svg_(kTraceLeft + kPlotWidth + kTraceRight,
             kTraceTop + plot_height_ + kAxisHeight + kLegendLine * static_cast<double>(kinds_.size() + 1),
             picture.title, kTraceStyle) {}

  std::string text() {
    svg_.text(kTraceLeft, 24, "title", picture_.title);
    svg_.text(kTraceLeft, 43, "", picture_.subtitle);
    axis();
    svg_.text(kTraceLeft - 8, kTraceTop + kStepHeight / 2 + 4, "right", "steps");
    for (std::size_t i = 0; i < picture_.threads.size(); ++i)
      svg_.text(kTraceLeft - 8, row(i) + kRowHeight / 2, "right", picture_.threads[i]);
    for (const auto& event : picture_.events) draw(event);
    legend();
    return svg_.take();
  }

 private:
  /// In the order in which steps begin.
  static std::map<std::string, Kind> kinds_of(const TracePicture& picture) {
    std::map<std::string, Kind> kinds;
    for (const auto& event : picture.events) {
      if (event.category != "step") continue;
      const auto [kind, fresh] = kinds.try_emplace(event.name);
      if (fresh) kind->second.colour = (kinds.size() - 1) % kColours;
      kind->second.us += event.us;
    }
    return kinds;
  }

  [[nodiscard]] double x(double us) const {
    return kTraceLeft + kPlotWidth * std::clamp((us - picture_.begin_us) / us_max_, 0.0, 1.0);
  }
  [[nodiscard]] static double row(std::size_t thread) {
    return kTraceTop + kStepHeight + kGap + kRowHeight * static_cast<double>(thread);
  }
  [[nodiscard]] std::string colour(const std::string& label) const {
    const auto kind = kinds_.find(label);
    return fmt::format("c{}", kind == kinds_.end() ? 0 : kind->second.colour);
  }

  void axis() {
    const double tick = tick_of(us_max_, 10), bottom = kTraceTop + plot_height_;
    for (int i = 0; tick * i <= us_max_; ++i) {
      const double at = x(picture_.begin_us + tick * i);
      svg_.line(at, kTraceTop, at, bottom, "grid");
      svg_.text(at, bottom + 16, "middle", fmt::format("{:g}", tick * i));
    }
    svg_.line(kTraceLeft, bottom, kTraceLeft + kPlotWidth, bottom, "axis");
    svg_.text(kTraceLeft - 8, bottom + 16, "right", "us");
  }

  void draw(const session::TraceEvent& event) {
    const double left = x(event.begin_us), width = std::max(x(event.begin_us + event.us) - left, 0.1);
    if (event.begin_us + event.us < picture_.begin_us || event.begin_us > picture_.end_us) return;
    const auto tooltip = [&](std::string_view more) {
      return fmt::format("{}\n{:.1f} us from {:.1f} us{}", event.name, event.us, event.begin_us - picture_.begin_us,
                         more);
    };
    if (event.category == "step") {
      const auto where = event.layer >= 0 ? fmt::format("\nlayer {}", event.layer) : std::string();
      svg_.rect(left, kTraceTop, width, kStepHeight, "step " + colour(event.name), tooltip(where));
      if (kSvgLetterWidth * static_cast<double>(event.name.size()) + 6 <= width)
        svg_.text(left + 3, kTraceTop + kStepHeight / 2 + 3.5, "name", event.name);
    } else if (event.category == "chunk") {
      svg_.rect(left, row(thread_of(event)), width, kRowHeight - kGap, "chunk " + colour(label_of_chunk(event.name)),
                tooltip({}));
    } else if (event.category == "wait") {
      svg_.rect(left, row(thread_of(event)), width, kRowHeight - kGap, "wait", tooltip({}));
    }
  }
  [[nodiscard]] static std::size_t thread_of(const session::TraceEvent& event) {
    return static_cast<std::size_t>(std::max<std::int64_t>(event.thread, 0));
  }

  void legend() {
    double sum = 0;
    std::vector<std::pair<std::string, Kind>> sorted(kinds_.begin(), kinds_.end());
    for (const auto& [name, kind] : sorted) sum += kind.us;
    std::ranges::stable_sort(sorted, std::greater<>(), [](const auto& entry) { return entry.second.us; });
    double y = kTraceTop + plot_height_ + kAxisHeight + 12;
    for (const auto& [name, kind] : sorted) {
      (void)svg_.swatch(kTraceLeft, y, fmt::format("c{}", kind.colour),
                        fmt::format("{}: {:.1f} us, {:.0f} % of the steps shown", name, kind.us,
                                    100 * kind.us / std::max(sum, 1e-9)));
      y += kLegendLine;
    }
    (void)svg_.swatch(kTraceLeft, y, "wait", "wait");
  }

  const TracePicture& picture_;
  std::map<std::string, Kind> kinds_;
  double us_max_, plot_height_;
  Svg svg_;
};

}  // namespace

std::string trace_svg(const TracePicture& picture) {
  return TraceDrawing(picture).text();
}

}  // namespace forge::tools
