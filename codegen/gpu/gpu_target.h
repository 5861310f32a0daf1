#pragma once
// GPUs as targets of the passes: which nodes can be fused, which type of activations matmuls take, which variants are
// compiled.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codegen/back_end.h"
#include "codegen/gpu/kv_format.h"
#include "codegen/gpu/targets.h"
#include "codegen/gpu/tile_sizes.h"
#include "codegen/gpu/tuning.h"

namespace forge::codegen {

class GpuChooser;

/// A row of targets.def as a target. See passes/target.h for the functions. deterministic: every variant computes a
/// token as the variant for one token does; tuning must have matrix=0 then.
class GpuTargetModel final : public BackEndTarget {
 public:
  GpuTargetModel(const GpuTarget& target, Tuning tuning, AttentionChoice attention = {}, DType kv_type = DType::kF16,
                 bool deterministic = false)
      : target_(target),
        tuning_(std::move(tuning)),
        attention_(attention),
        kv_(kv_format(kv_type)),
        deterministic_(deterministic) {}

  [[nodiscard]] std::string_view name() const override { return target_.name; }
  [[nodiscard]] DType activation_type(DType weight, std::int64_t k, bool before_choice) const override;
  [[nodiscard]] bool splits_rms_norm() const override { return true; }
  [[nodiscard]] std::int64_t glu_interleave(DType weight, std::int64_t n) const override;
  [[nodiscard]] bool fuses_row_norms() const override { return true; }
  [[nodiscard]] bool merges_columns(std::int64_t n) const override;
  [[nodiscard]] bool merges_last() const override { return true; }
  [[nodiscard]] bool views_columns() const override { return true; }
  [[nodiscard]] bool rotates_keys() const override { return kv_.rotates_keys; }
  [[nodiscard]] std::optional<std::string> group_refusal(const ir::Graph& graph,
                                                         std::span<const ir::NodeId> members) const override;
  [[nodiscard]] std::expected<passes::Choice, passes::Refusal> choose(const ir::Graph& graph,
                                                                      std::span<const ir::NodeId> members,
                                                                      const passes::Binding& binding) const override;
  [[nodiscard]] passes::StoredForms stored_forms(const ir::Graph& graph, std::span<const std::vector<ir::NodeId>> steps,
                                                 const ir::Bounds& bounds) const override;
  [[nodiscard]] bool runs_beside(const ir::Graph& graph, std::span<const ir::NodeId> step,
                                 std::span<const ir::NodeId> beside, const ir::Bounds& bounds) const override;
  [[nodiscard]] std::optional<passes::Choice> choose_both(const ir::Graph& graph, std::span<const ir::NodeId> step,
                                                          std::span<const ir::NodeId> beside,
                                                          const passes::Binding& binding) const override;
  [[nodiscard]] bool joins(const ir::Graph& graph, std::span<const ir::NodeId> step, std::span<const ir::NodeId> next,
                           const ir::Bounds& bounds) const override;
  [[nodiscard]] std::optional<passes::Choice> choose_joined(const ir::Graph& graph, std::span<const ir::NodeId> step,
                                                            std::span<const ir::NodeId> next,
                                                            const passes::Binding& binding) const override;
  [[nodiscard]] std::vector<passes::Choice> sampling(const ir::Graph& graph,
                                                     const passes::Binding& binding) const override;
  [[nodiscard]] std::int64_t arena_alignment() const override { return 256; }
  [[nodiscard]] std::vector<VariantSpec> variants(std::int64_t context, std::int64_t batch_max) const override;
  [[nodiscard]] std::vector<VariantSpec> embedding_variants(std::int64_t context,
                                                            std::int64_t batch_max) const override;
  [[nodiscard]] std::vector<VariantSpec> encoder_variants(std::int64_t context, std::int64_t batch_max) const override;
  [[nodiscard]] std::int64_t kv_block_tokens() const override { return kGpuKvBlockTokens; }
  void add_facts(plan::TargetFactsT& facts) const override;
  [[nodiscard]] std::unique_ptr<plan::ProgramT> lower(passes::Program program, std::optional<passes::Program> hidden,
                                                      const ModelFile& model, KernelCompiler* compiler) const override;

 private:
  [[nodiscard]] GpuChooser chooser(const ir::Graph& graph, const passes::Binding& binding) const;

  const GpuTarget& target_;
  Tuning tuning_;
  AttentionChoice attention_;
  const KvFormat& kv_;
  bool deterministic_;
};

/// The registry row of this back-end. Its targets are the rows of targets.def.
[[nodiscard]] BackEnd gpu_back_end();

}  // namespace forge::codegen
