#pragma once
// GPUs as targets of the passes: which nodes can be fused, which type of activations matmuls take, which variants are
// compiled; and how attention is distributed over the grid.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codegen/back_end.h"
#include "codegen/gpu/source/kernel_text.h"
#include "codegen/gpu/targets.h"
#include "codegen/gpu/tuning.h"

namespace forge::codegen {

inline constexpr std::int64_t kGpuKvBlockTokens = 32;  ///< tokens of a KV block

/// A row of targets.def as a target. See passes/target.h for the functions.
class GpuTargetModel final : public BackEndTarget {
 public:
  GpuTargetModel(const GpuTarget& target, Tuning tuning, AttentionChoice attention = {})
      : target_(target), tuning_(std::move(tuning)), attention_(attention) {}

  [[nodiscard]] std::string_view name() const override { return target_.name; }
  [[nodiscard]] DType activation_type(DType weight, std::int64_t k, bool before_choice) const override;
  [[nodiscard]] bool splits_rms_norm() const override { return true; }
  [[nodiscard]] std::int64_t glu_interleave(DType weight, std::int64_t n) const override;
  [[nodiscard]] bool fuses_row_norms() const override { return true; }
  [[nodiscard]] bool merges_columns(std::int64_t n) const override;
  [[nodiscard]] bool merges_last() const override { return true; }
  [[nodiscard]] bool views_columns() const override { return true; }
  [[nodiscard]] std::optional<std::string> group_refusal(const ir::Graph& graph,
                                                         std::span<const ir::NodeId> members) const override;
  [[nodiscard]] std::expected<passes::Choice, passes::Refusal> choose(const ir::Graph& graph,
                                                                      std::span<const ir::NodeId> members,
                                                                      const passes::Binding& binding) const override;
  [[nodiscard]] passes::StoredForms stored_forms(const ir::Graph& graph, std::span<const std::vector<ir::NodeId>> steps,
                                                 const ir::Bounds& bounds) const override;
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
  const GpuTarget& target_;
  Tuning tuning_;
  AttentionChoice attention_;
};

/// The registry row of this back-end. Its targets are the rows of targets.def.
[[nodiscard]] BackEnd gpu_back_end();

/// The configuration of an attention kernel (kernels/gpu/attention.h has the meaning of the fields).
struct AttentionConfig {
  /// Prefill by matrix instructions (kernels/gpu/attention_tiles.h).
  struct Tiles {
    std::int64_t heads = 1, tokens = 16;  ///< of a block
    std::int64_t chunk = 32;              ///< tokens of the context per iteration
    std::int64_t parts = 1;               ///< waves that share a head's columns
  };
  std::int64_t heads_per_block = 0, workers = 1, waves = 8, tokens_per_worker = 256, team_tokens = 8;
  std::optional<Tiles> tiles;      ///< none for few rows, unsuitable head_dim, or targets without matrix instructions
  std::int64_t blocks = 0;         ///< blocks of the grid
  std::int64_t scratch_bytes = 0;  ///< partial results of all rows
  /// Writes the fields as constants of the kernel's configuration.
  void write_to(ConfigText& out) const;
};
void write_tiles(const AttentionConfig::Tiles& tiles, ConfigText& out);
/// asked: the user's choice, which is followed where possible; attention_problem() tells if it was not.
AttentionConfig choose_attention(const GpuTarget& target, const ir::AttentionAttrs& attention, const ir::Bounds& bounds,
                                 const Tuning& tuning, const AttentionChoice& asked = {});
/// The configuration of attention on latents (kernels/gpu/latent_attention.h), whose rows all heads share.
struct LatentConfig {
  std::int64_t heads_per_block = 1, waves = 1, workers = 1, tokens_per_worker = 64;
  std::optional<AttentionConfig::Tiles> tiles;  ///< prefill by kernels/gpu/latent_tiles.h
  std::int64_t blocks = 0;                      ///< blocks of the grid
  std::int64_t scratch_bytes = 0;               ///< partial results of all rows
};
LatentConfig choose_latent_attention(const GpuTarget& target, const ir::AttentionAttrs& attention,
                                     const ir::Bounds& bounds, const Tuning& tuning, const AttentionChoice& asked = {});
/// The reason why the configuration is not what the user asked for; empty if it is.
std::string attention_problem(const AttentionConfig& config, const ir::AttentionAttrs& attention,
                              const ir::Bounds& bounds, const AttentionChoice& asked);

}  // namespace forge::codegen
