#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "codegen/gpu/gpu_chooser.h"

namespace forge::codegen {

using ir::InputKind;
using plan::GpuInput;
using Kind = PointerArgument::Kind;

/// Two launches: SampleScan finds the largest logit of each part of a row, SampleDraw chooses a token for each row and
/// writes the next step's inputs.
std::vector<passes::Choice> GpuChooser::sampling(std::int64_t vocab) {
  constexpr std::int64_t kScanBlocks = 128, kScanThreads = 256, kDrawThreads = 512;
  // One row per sequence. Steps with more rows of logits are those whose caller reads the logits itself.
  const auto rows = std::min(binding_.bounds.rows, binding_.bounds.sequences);
  const auto found_bytes = rows * kScanBlocks * kFloatBytes;
  ConfigText config;
  config.number("kVocab", vocab)
      .number("kRows", rows)
      .number("kScanBlocks", kScanBlocks)
      .number("kScanWaves", kScanThreads / target_.wave)
      .number("kDrawWaves", kDrawThreads / target_.wave);
  const PointerArgument logits{.kind = Kind::kLogits}, values{.kind = Kind::kScratch},
      indices{.kind = Kind::kScratch, .input = found_bytes};
  std::vector<passes::Choice> out;

  KernelText scan{.header = "kernels/gpu/sampling.h", .kernel = "SampleScan", .defaults = {}, .before = {}};
  scan.config = config;
  scan.blocks = rows * kScanBlocks;
  scan.threads = kScanThreads;
  out_.step.label = "largest logits";
  out_.step.activation_bytes = rows * vocab * kFloatBytes;
  out_.scratch_bytes = 2 * found_bytes;
  launch(fmt::format("sample_scan_{}_r{}", vocab, rows), scan,
         std::vector{logits, input(GpuInput::kCounts), values, indices, input(GpuInput::kSampling),
                     input(GpuInput::kMasks)});
  out.push_back(std::exchange(out_, {}));

  KernelText draw{.header = "kernels/gpu/sampling.h", .kernel = "SampleDraw", .defaults = {}, .before = {}};
  draw.config = std::move(config);
  draw.blocks = rows;
  draw.threads = kDrawThreads;
  out_.step.label = "next token";
  out_.scratch_bytes = 2 * found_bytes;
  std::vector arguments{logits,
                        values,
                        indices,
                        input(GpuInput::kSampling),
                        input(InputKind::kIds),
                        input(InputKind::kPositions),
                        input(InputKind::kKvLength),
                        input(GpuInput::kCounts),
                        counters(1),
                        input(GpuInput::kSampled)};
  // The next step continues the states that this one wrote, and writes the slots that this one read.
  if (std::ranges::any_of(graph_.topological_order(),
                          [&](ir::NodeId node) { return graph_.op(node) == ir::Op::kRecurrentState; })) {
    draw.config.flag("kStates", true);
    arguments.push_back(input(InputKind::kStateRead));
    arguments.push_back(input(InputKind::kStateWrite));
  }
  launch(fmt::format("sample_draw_{}_r{}", vocab, rows), draw, arguments);
  out.push_back(std::exchange(out_, {}));
  return out;
}

}  // namespace forge::codegen
