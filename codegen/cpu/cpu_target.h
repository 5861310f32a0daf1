#pragma once
// The CPU as a target: what its tile programs can fuse, the activations its dot products want, its variants.

#include <string>

#include "kernels/cpu/kernels.h"
#include "passes/target_model.h"

namespace forge::codegen {

class CpuTarget final : public passes::TargetModel {
 public:
  explicit CpuTarget(cpu::CpuClass cpu_class);

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] DType activation_type(DType weight, std::int64_t k) const override;
  [[nodiscard]] bool splits_rms_norm() const override { return true; }
  [[nodiscard]] std::int64_t glu_interleave(DType weight, std::int64_t n) const override;
  [[nodiscard]] std::optional<std::string> refuses_group(const ir::Graph& graph,
                                                         std::span<const ir::NodeId> members) const override;
  [[nodiscard]] passes::KernelChoice choose_kernel(const ir::Graph& graph, std::span<const ir::NodeId> members,
                                                   const ir::Bounds& bounds) const override;
  [[nodiscard]] std::vector<VariantSpec> variants(std::int64_t context, std::int64_t batch_max) const override;
  [[nodiscard]] std::vector<VariantSpec> hidden_variants(std::int64_t context, std::int64_t batch_max) const override;
  [[nodiscard]] std::int64_t kv_block_tokens() const override { return cpu::kKvBlockTokens; }

 private:
  std::string name_;
};

/// Tokens a step whose attention may be cut into chunks of KV that threads share; the scratch is sized for them.
std::int64_t split_attention_tokens(const ir::Bounds& bounds);

}  // namespace forge::codegen
