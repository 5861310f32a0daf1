#pragma once
// A target for tests of the passes. It accepts the fusions that the passes are written for; its members switch single
// features off, so that tests reach the refusals too.

#include <set>

#include "passes/target.h"

namespace forge::passes::test {

struct FakeTarget final : Target {
  bool quantises = true;           ///< int8 activations for block-quantised weights
  bool splits = true;              ///< result of splits_rms_norm()
  bool rotates = false;            ///< result of rotates_keys()
  std::int64_t interleave = 32;    ///< rows of gate and up alternate in groups of this size; 0: not merged
  std::int64_t scratch_bytes = 0;  ///< scratch of attention per token, bytes
  DType activation =
      DType::kQ8A_32;  ///< activation type for quantised weights; an unsupported one simulates a bug in the target
  std::optional<DType> choosing;  ///< the same where a choice depends on the product; none: no different
  bool beside = false;            ///< matmuls run side by side
  bool one_kernel = true;         ///< and they have a kernel for that
  std::set<ir::Op> alone;         ///< ops that are never fused
  std::set<ir::Op> unsupported;   ///< ops without a kernel

  [[nodiscard]] std::string_view name() const override { return "fake"; }
  [[nodiscard]] DType activation_type(DType weight, std::int64_t k, bool before_choice) const override;
  [[nodiscard]] bool splits_rms_norm() const override { return splits; }
  [[nodiscard]] bool rotates_keys() const override { return rotates; }
  [[nodiscard]] std::int64_t glu_interleave(DType, std::int64_t n) const override {
    return interleave > 0 && n % interleave == 0 ? interleave : 0;
  }
  [[nodiscard]] std::optional<std::string> group_refusal(const ir::Graph& graph,
                                                         std::span<const ir::NodeId> members) const override;
  /// Chooses a step that has only a label: the names of its ops, joined by "+".
  [[nodiscard]] std::expected<Choice, Refusal> choose(const ir::Graph& graph, std::span<const ir::NodeId> members,
                                                      const Binding& binding) const override;
  [[nodiscard]] bool runs_beside(const ir::Graph& graph, std::span<const ir::NodeId> step,
                                 std::span<const ir::NodeId> other, const ir::Bounds& bounds) const override;
  /// The label is that of both, joined by "|".
  [[nodiscard]] std::optional<Choice> choose_both(const ir::Graph& graph, std::span<const ir::NodeId> step,
                                                  std::span<const ir::NodeId> other,
                                                  const Binding& binding) const override;
  [[nodiscard]] std::vector<VariantSpec> variants(std::int64_t context, std::int64_t batch_max) const override;
  [[nodiscard]] std::int64_t kv_block_tokens() const override { return 32; }
};

}  // namespace forge::passes::test
