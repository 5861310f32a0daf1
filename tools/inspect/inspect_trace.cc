#include "tools/inspect/inspect_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <vector>

#include "support/error.h"
#include "support/os/atomic_file.h"
#include "support/os/console.h"

namespace forge::tools {
namespace {

using nlohmann::json;

constexpr std::size_t kFileBytesMax = std::size_t{512} << 20;
constexpr std::int64_t kThreadsMax = 1024;
constexpr double kMicrosecondsMax = 1e15;

[[noreturn]] void refuse_trace(const std::filesystem::path& path, std::string why) {
  throw Error(ErrorCode::kUsage, fmt::format("{} is not a trace written by forge", printable(path.native(), 200)),
              std::move(why), "write one with --profile-trace FILE");
}

/// Collects events while the JSON is parsed (SAX), because a DOM of all events would take ten times the file's size.
/// Reads only what forge writes: objects in "traceEvents", each with at most one nested object, "args".
///
///   depth 1: {  depth 2: "traceEvents": [  depth 3: { event  depth 4: "args": {"layer": 3}
class Reader final : public nlohmann::json_sax<json> {
 public:
  std::vector<session::TraceEvent> events;
  bool found_list = false;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override { return number(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return number(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t&) override { return number(value); }
  bool string(string_t& value) override {
    if (!in_event() || depth_ != kEventDepth) return true;
    if (key_ == "name") event_.name = value;
    if (key_ == "cat") event_.category = value;
    if (key_ == "ph") complete_ = value == "X";
    return true;
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override {
    if (++depth_ > kDepthMax) return false;
    if (in_event() && depth_ == kEventDepth) {
      event_ = {};
      complete_ = false;
    }
    return true;
  }
  bool key(string_t& value) override {
    key_ = value;
    return true;
  }
  bool end_object() override {
    if (in_event() && depth_ == kEventDepth && complete_) events.push_back(std::move(event_));
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (++depth_ > kDepthMax) return false;
    if (depth_ == 2 && key_ == "traceEvents") found_list = in_list_ = true;
    return true;
  }
  bool end_array() override {
    if (depth_-- == 2) in_list_ = false;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  static constexpr int kEventDepth = 3, kDepthMax = 8;
  [[nodiscard]] bool in_event() const { return in_list_; }

  bool number(double value) {
    if (!in_list_ || !std::isfinite(value) || std::abs(value) > kMicrosecondsMax) return true;
    if (depth_ == kEventDepth + 1 && key_ == "layer") event_.layer = static_cast<std::int64_t>(value);
    if (depth_ != kEventDepth) return true;
    if (key_ == "pid") event_.process = static_cast<std::int64_t>(value);
    if (key_ == "tid") event_.thread = static_cast<std::int64_t>(value);
    if (key_ == "ts") event_.begin_us = value;
    if (key_ == "dur") event_.us = std::max(value, 0.0);
    return true;
  }

  int depth_ = 0;
  bool in_list_ = false, complete_ = false;
  std::string key_;
  session::TraceEvent event_;
};

std::vector<session::TraceEvent> read_trace(const std::filesystem::path& path) {
  std::string text;
  try {
    text = read_text(path.native(), kFileBytesMax);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIo) throw;
    refuse_trace(path, fmt::format("it is larger than {}", human_bytes(kFileBytesMax)));
  }
  Reader reader;
  if (!json::sax_parse(text, &reader) || !reader.found_list)
    refuse_trace(path, "it is not a JSON object with a list traceEvents");
  const auto first = reader.events.empty() ? 0 : reader.events.front().process;
  std::erase_if(reader.events, [&](const session::TraceEvent& event) {
    return event.process != first || event.thread < 0 || event.thread >= kThreadsMax;
  });
  return std::move(reader.events);
}

bool within(const session::TraceEvent& event, double begin_us, double end_us) {
  return event.begin_us >= begin_us - 1e-3 && event.begin_us + event.us <= end_us + 1e-3;
}

const session::TraceEvent& choose_forward(const std::vector<session::TraceEvent>& events, const TraceChoice& choice,
                                          const std::filesystem::path& path) {
  std::vector<const session::TraceEvent*> forwards;
  for (const auto& event : events)
    if (event.category == "forward") forwards.push_back(&event);
  if (forwards.empty()) refuse_trace(path, "it has no forward pass");
  const auto count = static_cast<std::int64_t>(forwards.size());
  const auto wanted = choice.forward.value_or(count);
  if (wanted < 1 || wanted > count)
    throw Error(ErrorCode::kUsage, fmt::format("the trace has no forward pass {}", wanted), {},
                fmt::format("it has 1 to {}", count));
  return *forwards[static_cast<std::size_t>(wanted - 1)];
}

}  // namespace

TracePicture trace_picture(const std::filesystem::path& trace, const TraceChoice& choice) {
  const auto events = read_trace(trace);
  const auto& forward = choose_forward(events, choice, trace);
  TracePicture picture{.begin_us = forward.begin_us, .end_us = forward.begin_us + forward.us};
  std::set<std::int64_t> layers;
  std::int64_t threads = 1;
  for (const auto& event : events) {
    if (!within(event, picture.begin_us, picture.end_us)) continue;
    threads = std::max(threads, event.thread + 1);
    if (event.category == "step" && event.layer >= 0) layers.insert(event.layer);
  }
  std::string part = "all steps";
  if (!choice.whole && (!layers.empty() || choice.layer)) {
    const auto layer =
        choice.layer ? *choice.layer : *std::next(layers.begin(), static_cast<std::ptrdiff_t>(layers.size() / 2));
    if (!layers.contains(layer))
      throw Error(ErrorCode::kUsage, fmt::format("the forward pass has no layer {}", layer), {},
                  layers.empty() ? "its steps have no layers" : fmt::format("its last layer is {}", *layers.rbegin()));
    part = fmt::format("layer {} of {}", layer, layers.size());
    double begin = picture.end_us, end = picture.begin_us;
    for (const auto& event : events)
      if (event.category == "step" && event.layer == layer && within(event, picture.begin_us, picture.end_us)) {
        begin = std::min(begin, event.begin_us);
        end = std::max(end, event.begin_us + event.us);
      }
    picture.begin_us = begin;
    picture.end_us = end;
  }
  for (const auto& event : events)
    if (within(event, picture.begin_us, picture.end_us)) picture.events.push_back(event);
  for (std::int64_t i = 0; i < threads; ++i) picture.threads.push_back(fmt::format("thread {}", i));
  picture.title = fmt::format("{}: {}", forward.name, part);
  picture.subtitle = fmt::format(
      "{:.1f} us of {:.1f} us of the forward pass; each box in a thread's row is a chunk of the step above it",
      picture.end_us - picture.begin_us, forward.us);
  return picture;
}

std::string write_trace_svg(const std::filesystem::path& trace, const TraceChoice& choice,
                            const std::filesystem::path& svg) {
  check_output_path(svg, {trace});
  const auto picture = trace_picture(trace, choice);
  write_file(svg, trace_svg(picture));
  return fmt::format("{} events of {} threads written to {}", picture.events.size(), picture.threads.size(),
                     printable(svg.native(), 200));
}

}  // namespace forge::tools
