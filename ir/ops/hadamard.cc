// hadamard: each run of 32 columns is multiplied by the Hadamard matrix in Sylvester's order over sqrt(32),
//   y[i] = sum over j of (-1)^(number of bits of i & j) x[j] / sqrt(32)
// The matrix is orthogonal and its own inverse, so queries and keys that are both transformed have the same dots. What
// one large column had is spread over all 32, so that a block of few bits keeps more of the others (QuaRot, arXiv
// 2404.00456).

#include <algorithm>
#include <array>
#include <cmath>

#include "ir/ops.h"

namespace forge::ir::ops {
namespace {

std::vector<TensorType> infer_hadamard(const Attrs&, Types operands) {
  require_f32("hadamard", operands, 0, 2);
  if (operands[0].cols() % kHadamardColumns != 0)
    refuse_operand("hadamard", 0, operands[0], fmt::format("a multiple of {} columns wide", kHadamardColumns));
  return {operands[0]};
}

Cost hadamard_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  constexpr std::int64_t kSums = 5, kScale = 1;  // log2(32) sums of two
  return streaming_cost(operands, results, bounds, kSums + kScale);
}

void run_hadamard(const Attrs&, Operands operands, Results results, EvalContext&) {
  auto& out = results[0].f32;
  out = operands[0]->f32;
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(kHadamardColumns)));
  for (std::size_t first = 0; first < out.size(); first += kHadamardColumns) {
    std::array<double, kHadamardColumns> run{};
    std::copy_n(out.begin() + static_cast<std::ptrdiff_t>(first), run.size(), run.begin());
    for (std::size_t bit = 1; bit < run.size(); bit *= 2)
      for (std::size_t i = 0; i < run.size(); ++i) {
        if ((i & bit) != 0) continue;
        const double low = run[i], high = run[i + bit];
        run[i] = low + high;
        run[i + bit] = low - high;
      }
    for (std::size_t i = 0; i < run.size(); ++i) out[first + i] = static_cast<float>(run[i]) * scale;
  }
}

}  // namespace

std::span<const OpDef> hadamard_defs() {
  static constexpr std::array kDefs{OpDef{.op = Op::kHadamard,
                                          .name = "hadamard",
                                          .operands_min = 1,
                                          .operands_max = 1,
                                          .attrs_index = attrs_index<NoAttrs>(),
                                          .in_place_operand = 0,
                                          .infer = infer_hadamard,
                                          .cost = hadamard_cost,
                                          .reference = run_hadamard}};
  return kDefs;
}

}  // namespace forge::ir::ops
