// device_check: compares one model on a GPU with the CPU of the same machine. Run by hand; not part of tools/check,
// because the results depend on the GPU, the bus and the host.
//
//   device_check MODEL.gguf --device hip:0 [--exact MODEL-F32.gguf] [--context N] [--batches 1,2,7,16] [--steps N]
//                [--host-tokens N] [--copies N]
//
// - agreement: logits of ragged batches: one sequence fills the context, one a quarter of it, the others are short.
//   With quantised activations the CPU errs too, and both errors grow with the layers. --exact names the same weights
//   as F32 (made by tests/device/dequantise.py); against it the GPU may err half as much more than the CPU
// - host: share of one CPU core that the process uses while the device decodes
// - upload: rate of uploading the weights, compared with plain copies from pinned memory
// - open: the time to open a program, without the copy
// Ends with 'N passed, N failed'; --help lists the bounds.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "session/sequences.h"
#include "session/session.h"
#include "support/error.h"
#include "support/os/console.h"
#include "tests/device/verdicts.h"
#include "tools/cli/entry.h"
#include "tools/cli/options.h"

namespace {

using namespace forge;
using namespace forge::tools;
using Clock = std::chrono::steady_clock;

struct Request {
  std::string model, exact, device = "auto";
  std::int64_t context = 4096, steps = 6, host_tokens = 1024, copies = 128;
  std::vector<std::int64_t> batches{1, 2, 7, 16};
  float nmse_max = 2e-3F, host_max = 0.05F, upload_min = 0.8F;
  std::int64_t open_max_ms = 50;
};

struct Opened {
  Opened(const Request& request, const std::string& device, std::int64_t sequences, const std::string& model)
      : session(options_of(request, device, sequences, model), stages) {}
  static session::Session::Options options_of(const Request& request, const std::string& device, std::int64_t sequences,
                                              const std::string& model) {
    session::Session::Options options;
    options.model.path = model;
    options.model.context = request.context;
    options.model.sequences = sequences;
    options.device = device;
    return options;
  }
  forge::session::Stages stages;
  forge::session::Session session;
};

std::vector<std::int32_t> random_ids(std::size_t count, std::size_t vocab, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> ids(count);
  for (auto& id : ids) id = static_cast<std::int32_t>(random() % vocab);
  return ids;
}

/// Prompt lengths, longest first: the context less `steps` tokens, a quarter of that, then short ones of various
/// lengths.
std::size_t prompt_length(const Request& request, std::size_t sequence) {
  const auto most = static_cast<std::size_t>(request.context - request.steps);
  return sequence == 0   ? most
         : sequence == 1 ? std::max<std::size_t>(1, most / 4)
                         : 1 + sequence * 37 % std::min<std::size_t>(300, most);
}

/// Rows of logits [rows][vocab]: for the last token of each prompt, then for `steps` steps of all sequences.
std::vector<std::vector<float>> run(const Request& request, const std::string& device, std::size_t batch,
                                    const std::string& model) {
  Opened opened(request, device, static_cast<std::int64_t>(batch), model);
  auto& executor = opened.session.executor();
  forge::session::Sequences sequences(executor, opened.session.context(), static_cast<std::int64_t>(batch));
  std::vector<std::vector<float>> rows;
  for (std::size_t s = 0; s < batch; ++s) {
    const auto last = sequences.prefill(s, random_ids(prompt_length(request, s), executor.vocab(), 1 + s));
    rows.emplace_back(last.begin(), last.end());
  }
  for (std::int64_t step = 0; step < request.steps; ++step) {
    const auto logits = sequences.decode(random_ids(batch, executor.vocab(), 1000 + static_cast<unsigned>(step)));
    for (std::size_t s = 0; s < batch; ++s) {
      const auto row = logits.subspan(s * executor.vocab(), executor.vocab());
      rows.emplace_back(row.begin(), row.end());
    }
  }
  return rows;
}

double nmse(const std::vector<float>& got, const std::vector<float>& expected) {
  double error = 0, power = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - expected[i], 2);
    power += std::pow(static_cast<double>(expected[i]), 2);
  }
  return error / power;
}

/// True if the device chooses a token that the CPU rates worse by more than the error between the two.
bool chooses_otherwise(const std::vector<float>& got, const std::vector<float>& expected) {
  const auto chosen = std::ranges::max_element(got) - got.begin();
  double error = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    error = std::max(error, std::abs(static_cast<double>(got[i]) - expected[i]));
  return *std::ranges::max_element(expected) - expected[static_cast<std::size_t>(chosen)] > 2 * error;
}

using Rows = std::vector<std::vector<float>>;

struct Agreement {
  double worst = 0, median = 0;
  std::size_t same = 0, wrong = 0;
  Agreement(const Rows& got, const Rows& expected) {
    std::vector<double> errors;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double error = nmse(got[i], expected[i]);
      errors.push_back(std::isfinite(error) ? error : INFINITY);
      same += std::ranges::max_element(got[i]) - got[i].begin() ==
              std::ranges::max_element(expected[i]) - expected[i].begin();
      wrong += chooses_otherwise(got[i], expected[i]);
    }
    std::ranges::sort(errors);
    worst = errors.back();
    median = errors[errors.size() / 2];
  }
};

void check_against_cpu(const Request& request, std::int64_t batch, const Rows& got, const Rows& cpu,
                       Verdicts& verdicts) {
  const Agreement found(got, cpu);
  verdicts.add(found.worst <= request.nmse_max && found.wrong == 0,
               fmt::format("batch {}: worst nmse {:.2e} (at most {:.0e}), largest logit the same in {} of {} rows",
                           batch, found.worst, request.nmse_max, found.same, got.size()));
}

/// The criterion for whole builds: the median error is within 1.5 times the peer's (here the CPU's), and the worst row
/// within 3 times.
void check_against_exact(std::int64_t batch, const Rows& got, const Rows& cpu, const Rows& exact, Verdicts& verdicts) {
  const Agreement card(got, exact), host(cpu, exact);
  verdicts.add(
      card.median <= 1.5 * host.median && card.worst <= 3 * host.worst,
      fmt::format("batch {}: nmse {:.2e} in the median and {:.2e} at worst against exact arithmetic, the CPU's "
                  "{:.2e} and {:.2e} (at most 1.5 and 3 times); largest logit the same in {} of {} rows, the "
                  "CPU's in {}",
                  batch, card.median, card.worst, host.median, host.worst, card.same, got.size(), host.same));
}

void check_agreement(const Request& request, const std::string& device, Verdicts& verdicts) {
  for (const auto batch : request.batches) {
    const auto count = static_cast<std::size_t>(batch);
    const auto got = run(request, device, count, request.model), cpu = run(request, "cpu", count, request.model);
    if (request.exact.empty())
      check_against_cpu(request, batch, got, cpu, verdicts);
    else
      check_against_exact(batch, got, cpu, run(request, "cpu", count, request.exact), verdicts);
  }
}

void check_host(const Request& request, forge::session::Session& session, Verdicts& verdicts) {
  auto& executor = session.executor();
  forge::session::Sequences sequences(executor, session.context(), 1);
  const runtime::Sampler sampler(executor.vocab(), {});
  if (!sequences.can_sample(1, {})) return verdicts.add(false, "host: the device cannot choose tokens");
  const auto tokens = std::min(request.host_tokens, session.context() - 2);
  std::int32_t id = 1;
  sequences.begin(std::span(&id, 1), std::span(&sampler, 1), tokens);
  const auto warm = tokens / 8;
  for (std::int64_t i = 0; i < warm; ++i) sequences.next();
  const auto begin = Clock::now();
  const double cpu = cpu_seconds();
  for (std::int64_t i = warm; i < tokens; ++i) sequences.next();
  const double wall = seconds_since(begin), share = (cpu_seconds() - cpu) / wall;
  sequences.end();
  verdicts.add(share <= request.host_max,
               fmt::format("host: {:.1f} % of a core (at most {:.0f} %) at {:.0f} tokens/s", 100 * share,
                           100 * request.host_max, static_cast<double>(tokens - warm) / wall));
}

/// Copy rate from pinned memory in bytes/s: copies of 8 MiB through two streams, the best of three runs.
double pinned_rate(const driver::Device& device, std::int64_t copies) {
  constexpr std::size_t kBytes = std::size_t{8} << 20, kSlots = 4;
  const driver::PinnedBuffer from(device, kSlots * kBytes, "a measurement");
  const driver::Buffer to(device, kSlots * kBytes, "a measurement");
  const driver::Stream streams[2] = {driver::Stream(device), driver::Stream(device)};
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    const auto begin = Clock::now();
    for (std::int64_t i = 0; i < copies; ++i) {
      const auto slot = static_cast<std::size_t>(i) % kSlots * kBytes;
      streams[i % 2].upload(to, slot, from, slot, kBytes).check("measuring copies");
    }
    for (const auto& stream : streams) stream.synchronize().check("measuring copies");
    best = std::max(best, static_cast<double>(copies) * kBytes / seconds_since(begin));
  }
  return best;
}

void check_load(const Request& request, const driver::Device& device, const runtime::LoadReport& load,
                Verdicts& verdicts) {
  const double pinned = pinned_rate(device, request.copies), rate = static_cast<double>(load.bytes) / load.seconds;
  verdicts.add(rate >= request.upload_min * pinned,
               fmt::format("upload: {:.1f} GB/s, {:.0f} % of {:.1f} GB/s of pinned copies (at least {:.0f} %)",
                           rate * 1e-9, 100 * rate / pinned, pinned * 1e-9, 100 * request.upload_min));
  const double open_ms = 1e3 * (load.kernels_seconds + load.memory_seconds + load.graphs_seconds);
  verdicts.add(open_ms <= static_cast<double>(request.open_max_ms),
               fmt::format("open: {:.0f} ms beside the copy (kernels {:.0f}, memory {:.0f}, graphs {:.0f}; at most {})",
                           open_ms, 1e3 * load.kernels_seconds, 1e3 * load.memory_seconds, 1e3 * load.graphs_seconds,
                           request.open_max_ms));
}

int check(int argc, char** argv) {
  Request request;
  Options options("device_check", "Compares a card with the CPU on one model, and measures host, upload and opening.");
  options.positional("MODEL", request.model, "MODEL.gguf")
      .text("--exact", request.exact, "F32.gguf", "the same weights as F32, which both are held against")
      .text("--device", request.device, "NAME", "auto, hip:N, cuda:N; default auto")
      .integer("--context", request.context, 64, forge::session::kContextMax, "positions of a sequence; default 4096")
      .integers("--batches", request.batches, 1, forge::session::kSequencesMax,
                "sequences that are compared together; default 1,2,7,16")
      .integer("--steps", request.steps, 1, 32, "steps after the prompts; default 6")
      .integer("--host-tokens", request.host_tokens, 64, forge::session::kContextMax,
               "that the host's share is measured over")
      .integer("--copies", request.copies, 8, 100000, "of 8 MiB that make the pinned rate; default 128")
      .real("--nmse-max", request.nmse_max, 0, 1, "bound of a row's error; default 2e-3")
      .real("--host-max", request.host_max, 0, 100, "bound of the host's share of a core; default 0.05")
      .real("--upload-min", request.upload_min, 0, 1, "bound of the upload's share of the pinned rate; default 0.8")
      .integer("--open-max-ms", request.open_max_ms, 1, 100000, "bound of opening beside the copy; default 50");
  if (!options.parse(argc, argv)) return 0;
  const auto choice = forge::session::choose_device(request.device);
  if (!choice.gpu)
    throw Error(ErrorCode::kDevice, "there is no card to check", choice.cpu_reason, "name one with --device");
  const auto vendor = choice.gpu->vendor() == driver::Vendor::kAmd ? "hip" : "cuda";
  const auto device =
      request.device == "auto" ? fmt::format("{}:{}", vendor, choice.gpu->info().ordinal) : request.device;
  Output output;
  Verdicts verdicts(output);
  {
    {
      const Opened cold(request, device, 1, request.model);
    }  // the plan cache is warm from here on
    Opened warm(request, device, 1, request.model);
    check_load(request, *choice.gpu, warm.session.executor().load_report(), verdicts);
    check_host(request, warm.session, verdicts);
  }
  check_agreement(request, device, verdicts);
  return verdicts.end();
}

}  // namespace

int main(int argc, char** argv) {
  return run_tool([&] { return check(argc, argv); });
}
