#pragma once
// The walk of lower_gpu: one function a kind of step.

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/gpu/epilogue_source.h"
#include "codegen/gpu/gpu_target.h"
#include "codegen/gpu/kernel_text.h"
#include "codegen/value_places.h"
#include "runtime/plan/gpu_io.h"

namespace forge::codegen {

/// The block of a type that stands in planes of codes, as device sources name it: "quant::BlockQ4_K".
std::string block_type(DType type);
/// A weight's format as device sources name it: "WeightQ8_0<16, 512>". The type has kernels.
std::string weight_text(DType type, std::int64_t rows, std::int64_t k);

/// How rows of a weight become planes on the card.
struct RepackShape {
  DType type{};
  bool codes = false;  ///< by RepackCodes, else by RepackPlanes
  std::int64_t rows = 0, k = 0, threads = 0, blocks_per_row = 0;
};
/// The configuration of kernels/gpu/repack.h.
void write_repack(ConfigText& config, const RepackShape& shape);

class GpuLowering {
 public:
  GpuLowering(const passes::Program& program, const ModelFile& model, const GpuTargetModel& target);
  std::unique_ptr<plan::ProgramT> run(KernelCompiler& compiler);

 private:
  /// How many rows memory has for a step, and what counts the real ones (gpu::Count).
  struct RowCount {
    std::int64_t bound = 0, count = 0;
  };

  std::unique_ptr<plan::VariantT> lower_variant(const passes::Variant& variant);
  std::unique_ptr<plan::StepT> lower_step(const passes::Step& step);
  void lower_tile(const TileDraft& draft, plan::StepT& out);
  void lower_matmul(const TileDraft& draft, const EpilogueShape& shape, const EpilogueSource& epilogue,
                    plan::StepT& out);
  void lower_rows(const TileDraft& draft, const EpilogueShape& shape, const EpilogueSource& epilogue, plan::StepT& out);
  void lower_attention(const passes::Step& step, plan::StepT& out);
  void lower_alone(ir::NodeId node, plan::StepT& out);
  void lower_norm(ir::NodeId node, plan::StepT& out);
  void lower_rope_table(ir::NodeId node, plan::StepT& out);
  void lower_route(ir::NodeId node, plan::StepT& out);
  void lower_interleaved_split(ir::NodeId node, plan::StepT& out);
  void lower_sampling(std::vector<std::unique_ptr<plan::StepT>>& out);
  void lower_load(plan::WeightT& weight, std::size_t index, std::vector<std::unique_ptr<plan::StepT>>& out);
  void compile(KernelCompiler& compiler, plan::ProgramT& out);

  void finish_step(std::string_view stem, const KernelText& text, std::span<const PointerArgument> arguments,
                   plan::StepT& out);
  [[nodiscard]] plan::Operand operand_of(const PointerArgument& argument) const;
  [[nodiscard]] std::int64_t kv_group_of(ir::NodeId node) const;
  [[nodiscard]] RowCount rows_of_step(const ir::Dim& rows) const;
  [[nodiscard]] std::string weight_type(ir::Value weight) const;
  static PointerArgument input(ir::InputKind kind);
  static PointerArgument input(plan::GpuInput kind);
  PointerArgument counters(std::int64_t count);

  const passes::Program& program_;
  const ir::Graph& graph_;
  const GpuTargetModel& target_;
  const ModelFile& model_;
  ValuePlaces places_;
  KernelSet kernels_;
  std::map<ir::NodeId, plan::Operand> frequencies_;  ///< of RoPE, before their factors
  std::int64_t scratch_offset_ = 0;                  ///< of the step in hand
  std::int64_t arena_bytes_ = 0, sampling_bytes_ = 0, counter_bytes_ = 0;
};

}  // namespace forge::codegen
