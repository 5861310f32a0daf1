#include "codegen/gpu/code/estimate.h"

#include <algorithm>
#include <numeric>

namespace forge::codegen {
namespace {

std::optional<MatrixLoop> matrix_loop_of(const ControlFlow& flow, const WalkCounts& counts,
                                         const std::vector<InstructionClass>& classes) {
  std::vector<double> matrix(flow.loops.size(), 0);  // by innermost loop
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const auto loop = flow.blocks[flow.block_of(i)].loop;
    if (loop != kNoLoop && classes[i] == InstructionClass::kMatrix) matrix[loop] += counts.executed[i];
  }
  const auto most = std::ranges::max_element(matrix);
  if (most == matrix.end() || *most <= 0) return std::nullopt;
  const auto& loop = flow.loops[static_cast<std::size_t>(most - matrix.begin())];
  double others = 0, all = 0;
  for (const auto block : loop.blocks)
    for (std::size_t i = flow.blocks[block].first; i < flow.blocks[block].end; ++i)
      (classes[i] == InstructionClass::kMatrix ? all : others) += counts.executed[i];
  const double entries = counts.entries[static_cast<std::size_t>(most - matrix.begin())];
  const double turns = counts.executed[flow.blocks[loop.header].first];
  return MatrixLoop{.turns = entries > 0 ? turns / entries : 0, .others_per_matrix = others / all};
}

}  // namespace

double KernelEstimate::total() const {
  return std::accumulate(by_class.begin(), by_class.end(), 0.0);
}

void KernelEstimate::add(const KernelEstimate& more) {
  if (!matrix_loop || (more.matrix_loop && more.of(InstructionClass::kMatrix) > of(InstructionClass::kMatrix)))
    matrix_loop = more.matrix_loop;
  for (std::size_t i = 0; i < by_class.size(); ++i) by_class[i] += more.by_class[i];
  decisions += more.decisions;
  guesses += more.guesses;
  guessed_loops = std::max(guessed_loops, more.guessed_loops);
  sampled |= more.sampled;
  complete &= more.complete;
}

KernelEstimate estimate_kernel(const Function& function, const WalkLaunch& launch, WalkMemory& memory,
                               const WalkOptions& options) {
  const auto flow = control_flow(function);
  const auto counts = walk(function, flow, launch, memory, options);
  KernelEstimate out{.decisions = counts.decisions,
                     .guesses = counts.guesses,
                     .guessed_loops = static_cast<int>(std::ranges::count(counts.guessed_loops, true)),
                     .sampled = counts.blocks_walked < launch.blocks,
                     .complete = counts.complete,
                     .matrix_loop = {}};
  std::vector<InstructionClass> classes;
  for (const Instruction& one : function.instructions) classes.push_back(class_of(one.mnemonic));
  for (std::size_t i = 0; i < classes.size(); ++i)
    out.by_class[static_cast<std::size_t>(classes[i])] += counts.executed[i];
  out.matrix_loop = matrix_loop_of(flow, counts, classes);
  return out;
}

}  // namespace forge::codegen
