#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "codegen/gpu/gpu_chooser.h"

namespace forge::codegen {

using ir::InputKind;
using plan::GpuInput;
using Kind = PointerArgument::Kind;

/// The last block of a row chooses its token and writes the next step's inputs.
std::vector<passes::Choice> GpuChooser::sampling(std::int64_t vocab) {
  constexpr std::int64_t kScanBlocks = 64, kThreads = 512;
  // One row per sequence. Steps with more rows of logits are those whose caller reads the logits itself.
  const auto rows = std::min(binding_.bounds.rows, binding_.bounds.sequences);
  const auto found_bytes = rows * kScanBlocks * kFloatBytes;
  KernelText text{.header = "kernels/gpu/sampling.h", .kernel = "Sample", .defaults = {}, .before = {}};
  text.config.number("kVocab", vocab)
      .number("kRows", rows)
      .number("kScanBlocks", kScanBlocks)
      .number("kWaves", kThreads / target_.wave);
  text.blocks = rows * kScanBlocks;
  text.threads = kThreads;
  text.min_blocks = 1;
  out_.step.label = "next token";
  out_.step.activation_bytes = rows * vocab * kFloatBytes;
  out_.scratch_bytes = 2 * found_bytes;
  std::vector<PointerArgument> arguments{
      {.kind = Kind::kLogits},      {.kind = Kind::kScratch},    {.kind = Kind::kScratch, .input = found_bytes},
      input(GpuInput::kMasks),      input(GpuInput::kSampling),  input(InputKind::kIds),
      input(InputKind::kPositions), input(InputKind::kKvLength), input(GpuInput::kCounts),
      counters(rows + 1),           input(GpuInput::kSampled)};
  // The next step continues the states that this one wrote, and writes the slots that this one read.
  if (std::ranges::any_of(graph_.topological_order(),
                          [&](ir::NodeId node) { return graph_.op(node) == ir::Op::kRecurrentState; })) {
    text.config.flag("kStates", true);
    arguments.push_back(input(InputKind::kStateRead));
    arguments.push_back(input(InputKind::kStateWrite));
  }
  launch(fmt::format("sample_{}_r{}", vocab, rows), text, arguments);
  std::vector<passes::Choice> out;
  out.push_back(std::exchange(out_, {}));
  return out;
}

}  // namespace forge::codegen
