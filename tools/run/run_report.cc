#include "tools/run/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "session/memory_limit.h"
#include "support/error.h"
#include "support/json_text.h"
#include "support/os/console.h"
#include "tools/bench/read_rate.h"

namespace forge::tools {
namespace {

constexpr int kReadPasses = 5;

double rate(double count, double seconds) {
  return seconds > 0 ? count / seconds : 0;
}

/// Steps that do the same in different layers.
struct ProfileRow {
  std::string label;
  std::uint64_t calls = 0, nanoseconds = 0;
  double bytes = 0, flops = 0;
};

std::vector<ProfileRow> profile_rows(const std::vector<runtime::StepProfile>& steps, std::string_view variant) {
  std::vector<ProfileRow> rows;
  for (const auto& step : steps) {
    if (step.variant != variant || step.calls == 0) continue;
    auto row = std::ranges::find(rows, step.label, &ProfileRow::label);
    if (row == rows.end()) row = rows.insert(rows.end(), ProfileRow{.label = std::string(step.label)});
    const auto calls = static_cast<double>(step.calls);
    row->calls += step.calls;
    row->nanoseconds += step.nanoseconds;
    row->bytes += calls * static_cast<double>(step.weight_bytes) +
                  step.filled * static_cast<double>(step.activation_bytes) + step.kv_bytes;
    row->flops += step.filled * static_cast<double>(step.flops) + step.kv_flops;
  }
  std::ranges::sort(rows, std::greater<>(), &ProfileRow::nanoseconds);
  return rows;
}

double nonzero(std::uint64_t nanoseconds) {
  return static_cast<double>(std::max<std::uint64_t>(nanoseconds, 1));
}

/// GB/s, their share of the memory's rate (blanks where that is not known), and GFLOP/s.
std::string rates(const ProfileRow& row, const MemoryRate& memory) {
  const double ns = nonzero(row.nanoseconds), bytes_a_second = row.bytes / ns * 1e9;
  const auto share =
      memory.bytes_a_second > 0 ? fmt::format("{:.1f}%", 100 * bytes_a_second / memory.bytes_a_second) : "";
  return fmt::format("{:8.2f} {:>8} {:8.1f}", bytes_a_second * 1e-9, share, row.flops / ns);
}

void note_stages(const session::Stages& stages, const runtime::LoadReport& load) {
  auto weights = fmt::format("{} at {:.1f} GB/s", human_bytes(load.bytes),
                             load.seconds > 0 ? static_cast<double>(load.bytes) / load.seconds * 1e-9 : 0);
  if (load.mapped_bytes > 0)
    weights = fmt::format("{} packed before, mapped and tested at {:.1f} GB/s", human_bytes(load.mapped_bytes),
                          rate(static_cast<double>(load.mapped_bytes), load.seconds) * 1e-9);
  if (load.kernels_seconds > 0)
    weights +=
        fmt::format(", kernels {:.1f} ms, graphs {:.1f} ms", load.kernels_seconds * 1e3, load.graphs_seconds * 1e3);
  note(fmt::format("plan open after {:.1f} ms, weights {:.1f} ms ({}), tokenizer {:.1f} ms, first token {:.1f} ms",
                   stages.plan_ms, stages.weights_ms, weights, stages.tokenizer_ms, stages.first_token_ms));
}

}  // namespace

void report_run(const RunRequest& request, session::Session& session, const session::Stages& stages) {
  session.trace_end();
  if (request.session.profile) say(profile_text(session.executor(), memory_rate(session.executor())));
  if (request.verbose) note_stages(stages, session.executor().load_report());
}

std::string closing_line(const session::Generated& generated, session::Session& session) {
  const auto& need = session.memory_requirements();
  const bool host = session.executor().facts().on_host;
  const auto memory = host ? human_bytes(memory_peak())
                           : fmt::format("{} of {}", human_bytes(need.total()), session.executor().device_name());
  return fmt::format(
      "prompt {} tokens, {:.1f} tokens/s; decode {} tokens, {:.1f} tokens/s; memory {} ({})", generated.prompt_tokens,
      rate(static_cast<double>(generated.prompt_tokens - generated.held_tokens), generated.prompt_seconds),
      generated.tokens.size(), rate(static_cast<double>(generated.decode_steps), generated.decode_seconds), memory,
      describe_need(need));
}

void note_end(const RunRequest& request, const session::Generated& generated, const session::Session& session) {
  if (generated.finish == session::Finish::kContext)
    note(fmt::format("stopped: the context of {} positions is full; -c N gives more room", session.context()));
  else if (generated.finish == session::Finish::kLength && !request.predict)
    note(fmt::format("stopped at the limit of {} tokens; -n N raises it, -n -1 removes it", generated.tokens.size()));
}

void note_device(const session::Session& session) {
  if (!session.cpu_reason().empty()) note("note: running on the CPU: " + session.cpu_reason());
}

std::string run_json(const session::Generated& generated, std::string_view text, session::Session& session,
                     const session::Stages& stages) {
  const auto& need = session.memory_requirements();
  JsonWriter json;
  json.open('{').field("model", session.model().path.native()).field("target", session.model().program->target);
  json.field("device", session.executor().device_name());
  json.field("threads", session.executor().threads()).field("context", session.context());
  json.field("prompt_tokens", generated.prompt_tokens);
  json.field("tokens", std::span<const std::int32_t>(generated.tokens)).field("text", text);
  json.field("finish_reason", finish_name(generated.finish));
  json.open("timings", '{').field("plan_ms", stages.plan_ms).field("weights_ms", stages.weights_ms);
  json.field("first_token_ms", stages.first_token_ms).field("prompt_ms", generated.prompt_seconds * 1e3);
  json.field("decode_ms", generated.decode_seconds * 1e3);
  json.field("prompt_per_second", rate(static_cast<double>(generated.prompt_tokens), generated.prompt_seconds));
  json.field("decode_per_second", rate(static_cast<double>(generated.decode_steps), generated.decode_seconds));
  const auto load = session.executor().load_report();
  json.close().open("load", '{').field("bytes", load.bytes).field("seconds", load.seconds);
  json.field("bytes_per_second", rate(static_cast<double>(load.bytes), load.seconds));
  json.field("mapped_bytes", load.mapped_bytes);
  json.field("kernels_seconds", load.kernels_seconds).field("memory_seconds", load.memory_seconds);
  json.field("graphs_seconds", load.graphs_seconds);
  json.close().open("memory", '{').field("weights", need.weights).field("kv", need.kv).field("arena", need.arena);
  json.field("recurrent", need.recurrent);
  json.field("staging", need.staging).field("logits", need.io).field("peak", memory_peak()).close().close();
  return json.take();
}

MemoryRate memory_rate(const runtime::Executor& executor) {
  if (const double known = executor.memory_bandwidth(); known > 0)
    return {known, fmt::format("{:.1f} GB/s, what {} gives", known * 1e-9, executor.device_name())};
  if (!executor.facts().on_host) return {};
  try {
    ReadRate reading(executor.threads());
    const double measured = reading.median(kReadPasses);
    return {measured, fmt::format("{:.1f} GB/s, read plainly by {} thread{}", measured * 1e-9, executor.threads(),
                                  executor.threads() == 1 ? "" : "s")};
  } catch (const Error&) {
    return {};
  }
}

std::string profile_text(const runtime::Executor& executor, const MemoryRate& memory) {
  std::string text;
  const auto steps = executor.profile();
  for (const auto& variant : executor.program().variants) {
    const auto rows = profile_rows(steps, variant->name);
    if (rows.empty()) continue;
    ProfileRow all;
    for (const auto& row : rows) {
      all.nanoseconds += row.nanoseconds;
      all.bytes += row.bytes;
      all.flops += row.flops;
    }
    const double all_ns = nonzero(all.nanoseconds);
    text += fmt::format("{}\n  {:>6} {:>8} {:>9} {:>9} {:>8} {:>8} {:>8}  step\n", printable(variant->name), "time",
                        "calls", "us/call", "MB/call", "GB/s", memory.bytes_a_second > 0 ? "of read" : "", "GFLOP/s");
    for (const auto& row : rows) {
      const double ns = nonzero(row.nanoseconds), calls = static_cast<double>(row.calls);
      text += fmt::format("  {:5.1f}% {:8} {:9.1f} {:9.3f} {}  {}\n", 100 * ns / all_ns, row.calls, ns / 1e3 / calls,
                          row.bytes / 1e6 / calls, rates(row, memory), printable(row.label, 200));
    }
    text += fmt::format("  {:6} {:8} {:9} {:9} {}  all, {:.1f} ms\n", "", "", "", "", rates(all, memory), all_ns / 1e6);
  }
  if (!text.empty() && memory.bytes_a_second > 0)
    text += fmt::format("of read: share of {}; what caches hold can be above it\n", memory.what);
  return text;
}

}  // namespace forge::tools
