// The estimate of forge-bench --roofline --target: its rows as tables and records.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "codegen/back_end.h"
#include "codegen/compile.h"
#include "runtime/plan/plan_file.h"
#include "session/open_model.h"
#include "support/error.h"
#include "tools/bench/roofline.h"
#include "tools/bench/roofline_estimate.h"

namespace forge::tools {
namespace {

using codegen::InstructionClass;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kContextStep = 512;  ///< as of measured rows, so that plans are shared in the cache

constexpr std::array kEstimateColumns{
    MarkdownColumn{"test", 14, true},  MarkdownColumn{"wave-instr.", 11}, MarkdownColumn{"launches", 8},
    MarkdownColumn{"waves", 8},        MarkdownColumn{"VALU", 8},         MarkdownColumn{"SALU", 8},
    MarkdownColumn{"matrix", 8},       MarkdownColumn{"load", 8},         MarkdownColumn{"store", 8},
    MarkdownColumn{"LDS", 8},          MarkdownColumn{"wait", 8},         MarkdownColumn{"branch", 8},
    MarkdownColumn{"inner loop", 10},  MarkdownColumn{"MB", 8},           MarkdownColumn{"regs", 9},
    MarkdownColumn{"spills", 6},       MarkdownColumn{"LDS B", 6},        MarkdownColumn{"waves/SIMD", 10},
    MarkdownColumn{"notes", 24, true}, MarkdownColumn{"kernel", 30, true}};

/// "23.1M", "412k", "7".
std::string short_number(double value) {
  if (value >= 99.95e6) return fmt::format("{:.0f}M", value * 1e-6);
  if (value >= 999.5e3) return fmt::format("{:.2f}M", value * 1e-6);
  if (value >= 9999.5) return fmt::format("{:.0f}k", value * 1e-3);
  return fmt::format("{:.0f}", value);
}
std::string number_or_blank(int value) {
  return value < 0 ? "" : fmt::format("{}", value);
}

double guessed_share(const codegen::KernelEstimate& work) {
  return work.decisions > 0 ? work.guesses / work.decisions : 0;
}

/// What makes the counts less certain.
std::string notes_of(const EstimatedKernel& kernel) {
  std::string text = kernel.samples ? "sampling" : "";
  const auto add = [&](const std::string& note) { text += (text.empty() ? "" : ", ") + note; };
  const auto& work = kernel.work;
  if (!work.complete) add("not walked to the end");
  if (work.guesses > 0) add(fmt::format("{:.0f}% guessed", std::max(1.0, 100 * guessed_share(work))));
  if (work.guessed_loops > 0) add(fmt::format("{} loops once", work.guessed_loops));
  if (work.sampled) add("blocks sampled");
  return text;
}

Record estimate_record(const std::string& test, const BenchCase& what, const std::string& target,
                       const EstimatedKernel& kernel) {
  const auto& work = kernel.work;
  const auto count = [&](InstructionClass one) { return std::llround(work.of(one)); };
  const auto integer = [](auto value) { return static_cast<std::int64_t>(value); };
  const auto& loop = work.matrix_loop;
  return {{"test", test},
          {"target", target},
          {"n_parallel", what.batch},
          {"n_prompt", what.prompt},
          {"n_gen", what.predict},
          {"n_depth", what.depth},
          {"kernel", kernel.kernel},
          {"samples", integer(kernel.samples)},
          {"launches", kernel.launches},
          {"waves", kernel.waves},
          {"wave_instructions", integer(std::llround(work.total()))},
          {"valu", integer(count(InstructionClass::kVector))},
          {"salu", integer(count(InstructionClass::kScalar))},
          {"matrix", integer(count(InstructionClass::kMatrix))},
          {"load", integer(count(InstructionClass::kLoad))},
          {"store", integer(count(InstructionClass::kStore))},
          {"lds", integer(count(InstructionClass::kLds))},
          {"wait", integer(count(InstructionClass::kWait))},
          {"branch", integer(count(InstructionClass::kBranch))},
          {"others_per_matrix", loop ? loop->others_per_matrix : kNone},
          {"matrix_loop_turns", loop ? loop->turns : kNone},
          {"bytes", kernel.bytes},
          {"flops", kernel.flops},
          {"registers", integer(kernel.registers)},
          {"scalar_registers", integer(kernel.scalar_registers)},
          {"spill_bytes", integer(kernel.spill_bytes)},
          {"lds_bytes", integer(kernel.lds_bytes)},
          {"waves_per_simd", integer(kernel.waves_per_simd)},
          {"guessed_branches", guessed_share(work)},
          {"guessed_loops", integer(work.guessed_loops)},
          {"sampled", integer(work.sampled)},
          {"complete", integer(work.complete)}};
}

std::string estimate_row(const std::string& test, const EstimatedKernel& kernel) {
  const auto& work = kernel.work;
  std::vector<std::string> texts{test, short_number(work.total()), fmt::format("{}", kernel.launches),
                                 short_number(static_cast<double>(kernel.waves))};
  for (std::size_t i = 0; i < codegen::kInstructionClasses; ++i) texts.push_back(short_number(work.by_class[i]));
  texts.push_back(work.matrix_loop ? fmt::format("{:.1f}", work.matrix_loop->others_per_matrix) : "");
  texts.push_back(fmt::format("{:.3f}", kernel.bytes * 1e-6));
  texts.push_back(
      kernel.registers < 0 ? "" : fmt::format("{}+{}", kernel.registers, number_or_blank(kernel.scalar_registers)));
  for (const int value : {kernel.spill_bytes, kernel.lds_bytes, kernel.waves_per_simd})
    texts.push_back(number_or_blank(value));
  texts.push_back(notes_of(kernel));
  texts.push_back(printable(kernel.kernel, 100));
  return markdown_row(kEstimateColumns, texts);
}

/// The program of a plan without its model, or as open_model gives it.
std::shared_ptr<const plan::ProgramT> open_program(const BenchRequest& request, const std::string& target,
                                                   std::int64_t context, std::int64_t batch) {
  const bool as_it_is = !request.kv_type && !request.attention && !request.deterministic && request.model.empty();
  if (as_it_is && plan::looks_like_plan(request.path)) {
    auto plan = plan::read_plan(request.path);
    if (const int index = session::choose_program(plan, target); index >= 0) {
      auto& program = plan.programs[static_cast<std::size_t>(index)];
      if (program->context >= context && program->batch_max >= batch) return std::move(program);
    }
  }
  return session::open_model({.path = request.path,
                              .model = request.model,
                              .target = target,
                              .context = context,
                              .sequences = batch,
                              .kv_type = request.kv_type,
                              .attention = request.attention,
                              .deterministic = request.deterministic})
      .program;
}

/// Most tokens of a step that holds one sequence's prompt.
std::int64_t tokens_max(const plan::ProgramT& program) {
  std::int64_t most = 1;
  for (const auto& variant : program.variants)
    if (variant && variant->hidden_width == 0) most = std::max(most, variant->bounds.tokens());
  return most;
}

StepShape shape_of(const BenchCase& what, const plan::ProgramT& program) {
  if (what.predict > 0)
    return {.tokens = what.batch, .rows = what.batch, .sequences = what.batch, .context = what.depth};
  return {.tokens = std::min(what.prompt, tokens_max(program)), .rows = 1, .sequences = 1, .context = what.depth};
}

/// Decode rows are one step: the numbers of tokens to generate are alike.
std::vector<BenchCase> estimated_cases(const BenchRequest& request) {
  std::vector<BenchCase> cases;
  for (BenchCase what : bench_cases(request)) {
    what.threads = 0;
    what.predict = std::min<std::int64_t>(what.predict, 1);
    if (what.prompt > 0) what.batch = 1;  // prompts are prefilled one after the other
    const auto alike = [&](const BenchCase& one) {
      return one.prompt == what.prompt && one.predict == what.predict && one.depth == what.depth &&
             one.batch == what.batch;
    };
    if (std::ranges::none_of(cases, alike)) cases.push_back(what);
  }
  return cases;
}

const std::string& single_target(const std::vector<std::string>& targets) {
  if (targets.size() != 1)
    throw Error(ErrorCode::kUsage, "--roofline estimates one target at a time", {}, "give --target one name");
  return targets.front();
}

}  // namespace

void estimate_roofline(const BenchRequest& request, const std::string& name, RecordFormat format, Output& output) {
  const auto targets = codegen::resolve_targets(name);
  const auto& target = single_target(targets);
  check_readable(target);
  const auto cases = estimated_cases(request);
  std::int64_t context = 1, batch = 1;
  for (const auto& what : cases) {
    context = std::max(context, what.depth + what.prompt + what.predict);
    batch = std::max(batch, what.batch);
  }
  const auto program = open_program(request, target, (context + kContextStep - 1) / kContextStep * kContextStep, batch);
  RecordWriter writer(format, "forge_roofline");
  const bool table = format == RecordFormat::kMarkdown;
  output.write(table ? markdown_head(kEstimateColumns) : writer.begin(estimate_record({}, {}, {}, {})));
  for (const auto& what : cases) {
    const auto shape = shape_of(what, *program);
    const auto test = test_name(what.prompt > 0 ? shape.tokens : 0, what.predict, what.depth);
    progress("estimating " + test);
    const auto kernels = estimate_step(*program, shape);
    end_progress();
    const auto write = [&](const EstimatedKernel& kernel) {
      output.write(table ? estimate_row(test, kernel) : writer.row(estimate_record(test, what, target, kernel)));
    };
    std::vector<EstimatedKernel> forward;
    for (const auto& kernel : kernels)
      if (!kernel.samples) forward.push_back(kernel);
    for (const auto& kernel : kernels) write(kernel);
    write(sum_of(forward, "forward"));
    write(sum_of(kernels, "all"));
  }
  if (!table) output.write(writer.end());
}

}  // namespace forge::tools
