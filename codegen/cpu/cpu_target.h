#pragma once
// The CPU's classes as targets of the passes: which nodes can be fused, which type of activations matmuls take, and
// which variants (sizes of steps) are compiled.

#include <memory>
#include <optional>
#include <string>

#include "codegen/back_end.h"
#include "kernels/cpu/kernels.h"

namespace forge::codegen {

/// A class of CPUs ("cpu-x86-64-v4-vnni"). See passes/target.h for the functions.
class CpuTarget final : public BackEndTarget {
 public:
  CpuTarget(cpu::CpuClass cpu_class, const TargetOptions& options);

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] DType activation_type(DType weight, std::int64_t k, bool before_choice) const override;
  [[nodiscard]] bool splits_rms_norm() const override { return true; }
  [[nodiscard]] std::int64_t glu_interleave(DType weight, std::int64_t n) const override;
  [[nodiscard]] bool views_columns() const override { return true; }
  [[nodiscard]] std::optional<std::string> group_refusal(const ir::Graph& graph,
                                                         std::span<const ir::NodeId> members) const override;
  [[nodiscard]] std::expected<passes::Choice, passes::Refusal> choose(const ir::Graph& graph,
                                                                      std::span<const ir::NodeId> members,
                                                                      const passes::Binding& binding) const override;
  [[nodiscard]] std::vector<VariantSpec> variants(std::int64_t context, std::int64_t batch_max) const override;
  [[nodiscard]] std::vector<VariantSpec> embedding_variants(std::int64_t context,
                                                            std::int64_t batch_max) const override;
  [[nodiscard]] std::vector<VariantSpec> encoder_variants(std::int64_t context, std::int64_t batch_max) const override;
  [[nodiscard]] std::int64_t kv_block_tokens() const override { return cpu::kKvBlockTokens; }
  void add_facts(plan::TargetFactsT& facts) const override;
  [[nodiscard]] std::unique_ptr<plan::ProgramT> lower(passes::Program program, std::optional<passes::Program> hidden,
                                                      const ModelFile& model, KernelCompiler*) const override;

 private:
  cpu::CpuClass class_;
  std::string name_;
  DType kv_type_;
  std::optional<bool> split_attention_;  ///< AttentionChoice::split
  bool deterministic_;                   ///< TargetOptions::deterministic
};

/// The registry row of this back-end. Its targets are "cpu-CLASS"; "cpu" and "auto" mean this machine's class.
[[nodiscard]] BackEnd cpu_back_end();

}  // namespace forge::codegen
