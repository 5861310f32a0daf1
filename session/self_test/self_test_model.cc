// The self-test's tiny model: a llama with random weights, compiled for the GPU and for this CPU. Both get the same
// tokens, and the GPU's logits and sampled tokens are compared with the CPU's logits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>

#include "codegen/compile.h"
#include "loader/gguf/gguf.h"
#include "runtime/cpu/executor.h"
#include "runtime/gpu/executor.h"
#include "session/model_file.h"
#include "session/self_test/self_test.h"
#include "session/synthetic/synthetic_model.h"
#include "support/error.h"
#include "support/nmse.h"
#include "support/os/console.h"

namespace forge::session {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kContext = 256;
/// Each op of a dense model, in shapes that every target has kernels for. Weights are Q4_K; the tied embedding is Q6_K.
constexpr SyntheticShape kShape{"self-test", "the self-test's", 2, 256, 512, 4, 2, 64, 512, true, 10000, kContext, 0};
constexpr DType kType = DType::kQ4_K;

/// Number of tokens in: a long prefill, a short prefill, single decode steps, and each sampled sequence.
constexpr std::size_t kPrompt = 34, kPromptRest = 6, kDecoded = 4, kDrawn = 8;
/// Bound of the normalised mean square error. CPU and GPU quantise activations to int8 in blocks of different sizes, so
/// a sound card has 3e-4. A known compiler bug (lanes that are disabled were read) gave 0.35.
constexpr double kNmseMax = 3e-3;
/// A sampled token's logit may be this much below the lowest candidate's, in standard deviations of the row's logits.
constexpr double kMargin = 0.5;

/// Feeds one sequence to an executor, from position 0 on.
class Fed {
 public:
  explicit Fed(runtime::Executor& executor) : executor_(executor) {
    stride_ = static_cast<std::size_t>((kContext + executor.kv_block_tokens() - 1) / executor.kv_block_tokens());
    const auto groups = std::max<std::size_t>(executor.kv_pool_sizes().size(), 1);
    for (std::size_t g = 0; g < groups; ++g)
      for (std::size_t i = 0; i < stride_; ++i) table_.push_back(static_cast<std::int32_t>(i));
  }
  /// Feeds `ids` in one step and returns the logits of all of them: [ids.size(), vocab].
  std::vector<float> feed(std::span<const std::int32_t> ids) {
    std::vector<std::int32_t> positions(ids.size()), rows(ids.size()), sequence(ids.size(), 0);
    std::iota(positions.begin(), positions.end(), position_);
    std::iota(rows.begin(), rows.end(), 0);
    position_ += static_cast<std::int32_t>(ids.size());
    const auto logits = executor_.forward({.ids = ids,
                                           .positions = positions,
                                           .sequence = sequence,
                                           .rows = rows,
                                           .kv_length = std::span(&position_, 1),
                                           .block_table = table_,
                                           .table_stride = stride_});
    return {logits.begin(), logits.end()};
  }
  /// Feeds `id` and lets the device's decode loop sample `count` tokens after it.
  std::vector<std::int32_t> draw(std::int32_t id, const runtime::SamplerParams& params, std::size_t count) {
    auto* loop = executor_.decode_loop();
    invariant(loop != nullptr, "ST-002", "a GPU's program can sample tokens");
    const runtime::Sampler sampler(executor_.vocab(), params);
    const runtime::Sampler* const samplers[] = {&sampler};
    loop->start({.ids = std::span(&id, 1),
                 .positions = std::span(&position_, 1),
                 .samplers = samplers,
                 .block_table = table_,
                 .table_stride = stride_,
                 .steps_max = static_cast<std::int64_t>(count)});
    std::vector<std::int32_t> tokens;
    for (std::size_t submitted = 0; tokens.size() < count;) {
      for (; submitted < count && loop->in_flight() < loop->in_flight_max(); ++submitted) loop->submit();
      tokens.push_back(loop->take()[0]);
    }
    loop->stop();
    position_ += static_cast<std::int32_t>(count);
    return tokens;
  }

 private:
  runtime::Executor& executor_;
  std::size_t stride_ = 1;
  std::vector<std::int32_t> table_;
  std::int32_t position_ = 0;
};

/// The model, opened on the GPU and on the CPU.
class Model {
 public:
  Model(const driver::Device& device, const SelfTestOptions& options, const SelfTestObserver& sink)
      : image_(SyntheticModel{.shape = &kShape, .type = kType}),
        file_(loader::Gguf::open(image_.path())),
        source_(file_) {
    sink.stage("compiling the model");
    auto gpu_program = program_for(options.target, options.compiler);
    auto cpu_program = program_for(codegen::host_target(), nullptr);
    sink.stage("loading the model");
    gpu_ = std::make_unique<runtime::GpuExecutor>(std::move(gpu_program), source_, device,
                                                  runtime::ExecutorOptions{.threads = 1});
    cpu_ =
        std::make_unique<runtime::CpuExecutor>(std::move(cpu_program), source_, runtime::ExecutorOptions{.threads = 1});
  }
  runtime::GpuExecutor& gpu() { return *gpu_; }
  runtime::CpuExecutor& cpu() { return *cpu_; }

 private:
  std::shared_ptr<const plan::ProgramT> program_for(const std::string& target, codegen::KernelCompiler* compiler) {
    const codegen::CompileOptions options{.context = kContext, .batch_max = 1, .skip = {}, .kernels = compiler};
    auto plan = compile_model(file_, std::span(&target, 1), options);
    return std::move(plan.programs.at(0));
  }

  SyntheticFile image_;
  loader::Gguf file_;
  FileWeightSource source_;
  std::unique_ptr<runtime::GpuExecutor> gpu_;
  std::unique_ptr<runtime::CpuExecutor> cpu_;
};

/// Result of a comparison; `detail` has the error also when ok.
struct Outcome {
  bool ok = true;
  std::string detail;
};

Outcome outcome_of(double error) {
  if (error <= kNmseMax) return {true, fmt::format("nmse {:.2g}", error)};  // false for NaN
  return {false, fmt::format("its logits differ from the CPU's: normalised mean square error {:.2g}, allowed {:.2g}",
                             error, kNmseMax)};
}

/// Checks that `token` is among the `candidates` largest of the CPU's logits, within kMargin. Returns the problem, or
/// an empty string.
std::string token_problem(std::int32_t token, std::span<const float> logits, std::size_t candidates) {
  if (token < 0 || static_cast<std::size_t>(token) >= logits.size())
    return fmt::format("it sampled token {}, and the vocabulary has {}", token, logits.size());
  std::vector<float> sorted(logits.begin(), logits.end());
  std::ranges::sort(sorted, std::greater());
  const double mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(sorted.size());
  double power = 0;
  for (const float value : sorted) power += (value - mean) * (value - mean);
  const double deviation = std::sqrt(power / static_cast<double>(sorted.size()));
  const auto chosen = static_cast<double>(logits[static_cast<std::size_t>(token)]);
  if (chosen >= static_cast<double>(sorted[candidates - 1]) - kMargin * deviation) return {};
  return fmt::format("it sampled token {} with logit {:.3g}; the CPU's {} largest logits are {:.3g} and above", token,
                     chosen, candidates, sorted[candidates - 1]);
}

std::vector<std::int32_t> prompt_of(std::size_t count) {
  std::vector<std::int32_t> ids;
  Random random;
  while (ids.size() < count)
    ids.push_back(static_cast<std::int32_t>(random.next() % static_cast<std::uint64_t>(kShape.vocab)));
  return ids;
}

class ModelTest {
 public:
  ModelTest(Model& model, const SelfTestObserver& sink) : gpu_(model.gpu()), cpu_(model.cpu()), sink_(sink) {}

  void run() {
    const auto ids = prompt_of(kPrompt + kPromptRest + kDecoded + 2);
    auto rest = std::span(ids);
    const auto take = [&](std::size_t count) {
      const auto some = rest.first(count);
      rest = rest.subspan(count);
      return some;
    };
    test("model: prefill", [&] { return compare(take(kPrompt)); });
    test("model: short prefill", [&] { return compare(take(kPromptRest)); });
    test("model: decode", [&] {
      std::vector<float> got, expected;
      for (std::size_t i = 0; i < kDecoded; ++i) feed_both(take(1), got, expected);
      return outcome_of(nmse(got, expected));
    });
    test("model: greedy tokens", [&] { return compare_drawn(take(1)[0], {}, 1); });
    test("model: drawn tokens", [&] {
      constexpr std::int32_t kCandidates = 4;
      return compare_drawn(take(1)[0], {.temperature = 0.8F, .top_k = kCandidates, .top_p = 0.98F, .seed = 7},
                           kCandidates);
    });
  }

 private:
  template <class Body>
  void test(const std::string& name, const Body& body) {
    sink_.stage("running " + name);
    const auto begin = Clock::now();
    auto outcome = body();
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    sink_.result({.name = name, .ok = outcome.ok, .detail = std::move(outcome.detail), .ms = ms});
  }
  void feed_both(std::span<const std::int32_t> ids, std::vector<float>& got, std::vector<float>& expected) {
    std::ranges::copy(gpu_.feed(ids), std::back_inserter(got));
    std::ranges::copy(cpu_.feed(ids), std::back_inserter(expected));
  }
  Outcome compare(std::span<const std::int32_t> ids) {
    std::vector<float> got, expected;
    feed_both(ids, got, expected);
    return outcome_of(nmse(got, expected));
  }
  /// The CPU is fed the tokens that the device sampled, so that both stay in the same state.
  Outcome compare_drawn(std::int32_t id, const runtime::SamplerParams& params, std::size_t candidates) {
    const auto tokens = gpu_.draw(id, params, kDrawn);
    std::string problem;
    for (const auto token : tokens) {
      if (problem.empty()) problem = token_problem(token, cpu_.feed(std::span(&id, 1)), candidates);
      id = token;
    }
    return {problem.empty(), problem};
  }

  Fed gpu_, cpu_;
  const SelfTestObserver& sink_;
};

}  // namespace

void self_test_model(const driver::Device& device, const SelfTestOptions& options, const SelfTestObserver& sink) {
  try {
    Model model(device, options, sink);
    ModelTest(model, sink).run();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kMemory) throw;
    sink.result({.name = "model", .ok = false, .detail = printable(strip_error_code(error.line()), 300)});
  } catch (const std::exception& error) {  // the null driver's kernels
    sink.result({.name = "model", .ok = false, .detail = printable(error.what(), 300)});
  }
}

}  // namespace forge::session
