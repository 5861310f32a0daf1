#pragma once
// A target for tests: fuses the patterns that the passes are made for, with knobs for the questions it is asked.

#include <set>

#include "passes/target.h"

namespace forge::passes::test {

struct FakeTarget final : Target {
  bool quantises = true;              ///< int8 activations for block types
  bool splits = true;                 ///< splits_rms_norm
  std::int64_t interleave = 32;       ///< of gate and up; 0: kept apart
  std::int64_t scratch_bytes = 0;     ///< of attention, for each token
  DType activation = DType::kQ8A_32;  ///< what quantising gives; another type is a bug in the target
  std::size_t matmuls = 1;            ///< that one group may hold
  std::set<ir::Op> alone;             ///< ops that are never fused
  std::set<ir::Op> unsupported;       ///< ops without a kernel

  [[nodiscard]] std::string_view name() const override { return "fake"; }
  [[nodiscard]] DType activation_type(DType weight, std::int64_t k) const override;
  [[nodiscard]] bool splits_rms_norm() const override { return splits; }
  [[nodiscard]] std::int64_t glu_interleave(DType, std::int64_t n) const override {
    return interleave > 0 && n % interleave == 0 ? interleave : 0;
  }
  [[nodiscard]] std::optional<std::string> group_refusal(const ir::Graph& graph,
                                                         std::span<const ir::NodeId> members) const override;
  /// A step with a label alone.
  [[nodiscard]] std::expected<Choice, Refusal> choose(const ir::Graph& graph, std::span<const ir::NodeId> members,
                                                      const Binding& binding) const override;
  [[nodiscard]] std::vector<VariantSpec> variants(std::int64_t context, std::int64_t batch_max) const override;
  [[nodiscard]] std::int64_t kv_block_tokens() const override { return 32; }
};

}  // namespace forge::passes::test
