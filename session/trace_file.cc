#include "session/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "support/error.h"
#include "support/json_text.h"
#include "support/os/console.h"

namespace forge::session {
namespace {

using Ring = runtime::StepTrace::Ring;
using Event = runtime::StepTrace::Event;

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

/// Reads a ring of events forward; its events are ordered by time.
class Cursor {
 public:
  Cursor(const Ring& ring, std::int64_t from_ns) : ring_(ring) { skip_to(from_ns); }
  void skip_to(std::int64_t begin_ns) {
    while (at_ < ring_.size() && ring_[at_].begin_ns < begin_ns) ++at_;
  }
  /// The next event that begins before `end_ns`, or nullptr.
  const Event* next_before(std::int64_t end_ns) {
    return at_ < ring_.size() && ring_[at_].begin_ns < end_ns ? &ring_[at_++] : nullptr;
  }

 private:
  const Ring& ring_;
  std::size_t at_ = 0;
};

class Maker {
 public:
  Maker(const runtime::StepTrace& trace, const std::vector<VariantNames>& variants, double wait_us_min)
      : trace_(trace), variants_(variants), wait_ns_min_(wait_us_min * 1e3), from_(trace.complete_from_ns()) {
    for (std::size_t i = 0; i < trace.forwards().size(); ++i)
      if (trace.forwards()[i].begin_ns >= from_) {
        zero_ = trace.forwards()[i].begin_ns;
        break;
      }
  }

  std::vector<TraceEvent> make() {
    forwards_and_steps();
    for (std::size_t thread = 0; thread < trace_.threads(); ++thread) chunks(thread);
    std::ranges::stable_sort(events_, [](const TraceEvent& a, const TraceEvent& b) {
      return a.thread != b.thread ? a.thread < b.thread : a.begin_us < b.begin_us;
    });
    return std::move(events_);
  }

 private:
  void add(std::string name, const char* category, std::size_t thread, std::int64_t begin_ns, std::int64_t end_ns,
           std::int64_t layer = -1) {
    events_.push_back({.name = std::move(name),
                       .category = category,
                       .thread = static_cast<std::int64_t>(thread),
                       .begin_us = static_cast<double>(begin_ns - zero_) * 1e-3,
                       .us = static_cast<double>(end_ns - begin_ns) * 1e-3,
                       .layer = layer});
  }
  void add_wait(std::size_t thread, std::int64_t begin_ns, std::int64_t end_ns) {
    if (static_cast<double>(end_ns - begin_ns) >= wait_ns_min_ && end_ns > begin_ns)
      add("wait", "wait", thread, begin_ns, end_ns);
  }
  [[nodiscard]] const StepName& name_of(const Event& step) const {
    return variants_.at(step.variant).steps.at(step.what);
  }

  void forwards_and_steps() {
    Cursor steps(trace_.steps(), from_);
    for (std::size_t i = 0; i < trace_.forwards().size(); ++i) {
      const auto& forward = trace_.forwards()[i];
      if (forward.begin_ns < from_) continue;
      add(fmt::format("{}, {} token{}", variants_.at(forward.variant).name, forward.what, forward.what == 1 ? "" : "s"),
          "forward", 0, forward.begin_ns, forward.end_ns);
      steps.skip_to(forward.begin_ns);
      while (const auto* step = steps.next_before(forward.end_ns)) {
        add(name_of(*step).label, "step", 0, step->begin_ns, step->end_ns, name_of(*step).layer);
        steps_.push_back(step);
      }
    }
  }

  void chunks(std::size_t thread) {
    Cursor chunks(trace_.chunks(thread), from_);
    for (const auto* step : steps_) {
      chunks.skip_to(step->begin_ns);
      std::int64_t free_from = step->begin_ns;
      while (const auto* chunk = chunks.next_before(step->end_ns)) {
        add_wait(thread, free_from, chunk->begin_ns);
        add(fmt::format("{} {}", name_of(*step).label, chunk->what), "chunk", thread, chunk->begin_ns, chunk->end_ns);
        free_from = chunk->end_ns;
      }
      add_wait(thread, free_from, step->end_ns);
    }
  }

  const runtime::StepTrace& trace_;
  const std::vector<VariantNames>& variants_;
  double wait_ns_min_;
  std::int64_t from_, zero_ = 0;
  std::vector<const Event*> steps_;
  std::vector<TraceEvent> events_;
};

std::string json_of(const TraceEvent& event) {
  return fmt::format(R"({{"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"cat":"{}","name":{}{}}})", event.process,
                     event.thread, event.begin_us, event.us, event.category, json_string(event.name),
                     event.layer >= 0 ? fmt::format(R"(,"args":{{"layer":{}}})", event.layer) : std::string());
}

/// A metadata event that names a process (`thread` < 0) or a thread.
std::string json_name(std::int64_t process, std::int64_t thread, const std::string& name) {
  return fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"name":{}}}}})", process,
                     std::max<std::int64_t>(thread, 0), thread < 0 ? "process_name" : "thread_name", json_string(name));
}

}  // namespace

std::vector<TraceEvent> trace_events(const runtime::StepTrace& trace, const std::vector<VariantNames>& variants,
                                     double wait_us_min) {
  return Maker(trace, variants, wait_us_min).make();
}

std::vector<VariantNames> variant_names(const runtime::Executor& executor) {
  std::vector<VariantNames> variants;
  for (const auto& step : executor.profile()) {
    if (variants.empty() || variants.back().name != step.variant) variants.push_back({std::string(step.variant), {}});
    variants.back().steps.push_back({std::string(step.label), step.layer});
  }
  return variants;
}

TraceFile::TraceFile(const std::filesystem::path& path) : path_(path), file_(path) {}

void TraceFile::write(const std::string& text) {
  file_.write(std::as_bytes(std::span(text)));
}

void TraceFile::add(const std::string& title, const runtime::StepTrace& trace, const runtime::Executor& executor) {
  const auto process = ++processes_;
  std::string text = process == 1 ? "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n" : ",\n";
  text += json_name(process, -1, title);
  for (std::size_t i = 0; i < trace.threads(); ++i)
    text += ",\n" + json_name(process, static_cast<std::int64_t>(i), fmt::format("thread {}", i));
  for (auto& event : trace_events(trace, variant_names(executor))) {
    event.process = process;
    text += ",\n" + json_of(event);
    ++events_;
    if (text.size() < kPieceBytes) continue;
    write(text);
    text.clear();
  }
  write(text);
  lost_ = lost_ || trace.complete_from_ns() > 0;
}

void TraceFile::finish() {
  write(processes_ == 0 ? "{\"traceEvents\":[]}\n" : "\n]}\n");
  file_.commit();
  note(fmt::format("trace: {} events written to {}{}", events_, printable(path_.native(), 200),
                   lost_ ? "; older events were dropped" : ""));
}

}  // namespace forge::session
