// Traces: which events of the threads are kept, the file for Perfetto, and the SVG picture of a part of it.

#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "runtime/step_trace.h"
#include "session/trace_file.h"
#include "support/error.h"
#include "tests/support/temp_dir.h"
#include "tools/inspect/inspect_trace.h"
#include "tools/viz/trace_svg.h"

namespace forge::tools {
namespace {

using runtime::StepTrace;

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

const std::vector<session::VariantNames> kVariants{{"decode1", {{"embed", -1}, {"qkv", 0}, {"attention", 0}}},
                                                   {"prefill8", {{"embed", -1}}}};

/// One forward that begins at 1000 us and has two steps. Thread 1 starts late in the first step and has no chunk in the
/// second.
StepTrace one_forward() {
  StepTrace trace(2, 64);
  trace.task(0, 0, 1'000'000, 1'010'000);
  trace.task(0, 2, 1'010'000, 1'020'000);
  trace.task(1, 1, 1'005'000, 1'030'000);
  trace.step(0, 1, 1'000'000, 1'031'000);
  trace.task(0, 0, 1'032'000, 1'040'000);
  trace.step(0, 2, 1'031'000, 1'040'000);
  trace.forward(0, 1, 999'000, 1'041'000);
  return trace;
}

std::string json_of_events(const std::vector<session::TraceEvent>& events) {
  std::string text;
  for (const auto& event : events)
    text += std::string(text.empty() ? "" : ",") + R"({"ph":"X","pid":1,"tid":)" + std::to_string(event.thread) +
            R"(,"ts":)" + std::to_string(event.begin_us) + R"(,"dur":)" + std::to_string(event.us) + R"(,"cat":")" +
            event.category + R"(","name":")" + event.name + "\"" +
            (event.layer >= 0 ? R"(,"args":{"layer":)" + std::to_string(event.layer) + "}" : std::string()) + "}";
  return R"({"traceEvents":[)" + text + "]}";
}

template <class Body>
std::string trace_usage_error(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    CHECK(error.line().find('\n') == std::string::npos);
    return error.exit_status() == 2 ? error.line() : std::string();
  }
  return {};
}

}  // namespace

TEST_CASE("chunks and waits fill the steps that they belong to") {
  const auto events = trace_events(one_forward(), kVariants);
  std::vector<std::string> found;
  for (const auto& event : events)
    found.push_back(event.category + " " + event.name + " " + std::to_string(event.thread) + " " +
                    std::to_string(static_cast<int>(event.begin_us)) + " " +
                    std::to_string(static_cast<int>(event.us)));
  CHECK(found == std::vector<std::string>{"forward decode1, 1 token 0 0 42", "step qkv 0 1 31", "chunk qkv 0 0 1 10",
                                          "chunk qkv 2 0 11 10", "wait wait 0 21 11", "step attention 0 32 9",
                                          "wait wait 0 32 1", "chunk attention 0 0 33 8", "wait wait 1 1 5",
                                          "chunk qkv 1 1 6 25", "wait wait 1 31 1", "wait wait 1 32 9"});
  CHECK(events[1].layer == 0);
  CHECK(trace_events(one_forward(), kVariants, 2).size() == found.size() - 2);  // without waits below 2 us
}

TEST_CASE("the newest events are kept, and the trace begins where all threads are complete") {
  StepTrace trace(2, 4);
  for (int i = 0; i < 7; ++i) {
    const std::int64_t at = 1000 * i;
    trace.task(0, 0, at, at + 500);
    if (i % 2 == 0) trace.task(1, 1, at, at + 100);
    trace.step(1, 0, at, at + 600);
    trace.forward(1, 8, at, at + 700);
  }
  REQUIRE(trace.chunks(0).size() == 4);
  CHECK(trace.chunks(0)[0].begin_ns == 3000);
  CHECK(trace.chunks(0)[3].begin_ns == 6000);
  CHECK(trace.chunks(1)[0].begin_ns == 0);
  CHECK(trace.complete_from_ns() == 6000);  // only one forward is kept
  const auto events = trace_events(trace, kVariants, 0);
  CHECK(events.front().category == "forward");
  CHECK(events.front().begin_us == 0);
  for (const auto& event : events) CHECK(event.begin_us + event.us <= 0.7 + 1e-9);
  CHECK(trace_events(StepTrace(3), kVariants).empty());
}

TEST_CASE("a picture of one layer, of all steps, and of an earlier forward") {
  const tests::TempDir folder;
  auto events = trace_events(one_forward(), kVariants);
  const auto first = events;
  for (auto event : first) {
    event.begin_us += 100;
    if (event.category == "forward") event.name = "decode1, second";
    events.push_back(event);
  }
  const auto path = folder.write("trace.json", json_of_events(events));
  const auto last = trace_picture(path, {});
  CHECK(last.title == "decode1, second: layer 0 of 1");
  CHECK(last.begin_us == Approx(101));
  CHECK(last.end_us == Approx(141));
  CHECK(last.threads == std::vector<std::string>{"thread 0", "thread 1"});
  CHECK(trace_picture(path, {.forward = 1, .whole = true}).title == "decode1, 1 token: all steps");

  const auto text = trace_svg(last);
  INFO(text);
  CHECK(count(text, "class=\"step c") == 2);
  CHECK(count(text, "class=\"chunk c") == 4);
  // The first chunk of the layer in thread 0's row: 10 of the 40 us, from the left edge of the 1100 px.
  CHECK(count(text, R"(<rect x="84.0" y="90.00" width="275.0" height="34.00" class="chunk c0">)") == 1);
  CHECK(count(text, "qkv: 31.0 us, 78 % of the steps shown") == 1);
  CHECK(count(text, "<title>attention\n9.0 us from 31.0 us\nlayer 0</title>") == 1);
  CHECK(trace_svg(last) == text);

  auto hostile = last;
  hostile.events.push_back({.name = "<b>&\n", .category = "step", .begin_us = 101, .us = 1});
  CHECK(trace_svg(hostile).find("<b>") == std::string::npos);
  const auto line = trace_usage_error([&] { (void)trace_picture(path, {.forward = 3}); });
  CHECK(line.find("1 to 2") != std::string::npos);
  CHECK(trace_usage_error([&] { (void)trace_picture(path, {.layer = 7}); }).find("no layer 7") != std::string::npos);
  CHECK(write_trace_svg(path, {}, folder.file("a.svg")).find("2 threads") != std::string::npos);
}

TEST_CASE("an invalid trace is refused in one line") {
  const tests::TempDir folder;
  for (const char* text :
       {"", "hello", "[]", "{}", R"({"traceEvents":3})", R"({"traceEvents":[]})", R"({"traceEvents":[1,"a",[[]],{}]})",
        R"({"traceEvents":[{"ph":"X","cat":"step","name":"x","ts":1,"dur":1}]})", R"({"a":{"traceEvents":[]}})",
        R"({"traceEvents":[{"ph":"X","cat":"forward","name":"x","ts":1,"dur":1})",
        R"({"traceEvents":[{"ph":"X","cat":"forward","tid":-5,"name":"x","ts":1,"dur":1}]})"})
    CHECK(trace_usage_error([&] {
            (void)trace_picture(folder.write("t.json", text), {});
          }).find("not a trace written by forge") != std::string::npos);
  const std::string deep = R"({"traceEvents":)" + std::string(100000, '[');
  CHECK(!trace_usage_error([&] { (void)trace_picture(folder.write("t.json", deep), {}); }).empty());
  // Numbers that no clock gives are ignored.
  const auto odd = folder.write(
      "t.json", R"({"traceEvents":[{"ph":"X","cat":"forward","name":"x","ts":1e300,"dur":-5,"tid":0},{"ph":"X","cat":)"
                R"("chunk","name":"y","ts":0,"dur":0,"tid":99999999999999999999}]})");
  CHECK(trace_picture(odd, {}).begin_us == 0);
}

}  // namespace forge::tools
