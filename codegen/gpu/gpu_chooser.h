#pragma once
// The steps of a GPU: one function a kind of step. Each is a launch: a kernel specialised for it, and its arguments.

#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/gpu/gpu_target.h"
#include "codegen/gpu/source/epilogue_source.h"
#include "codegen/gpu/source/kernel_text.h"
#include "codegen/step_operands.h"
#include "runtime/plan/gpu_io.h"

namespace forge::codegen {

class GpuChooser {
 public:
  GpuChooser(const ir::Graph& graph, const passes::Binding& binding, const GpuTarget& target, const Tuning& tuning,
             const AttentionChoice& attention)
      : graph_(graph),
        binding_(binding),
        target_(target),
        tuning_(tuning),
        attention_(attention),
        operands_(graph, binding.numbers) {}

  /// The step of a group, or the reason why it is none.
  std::expected<passes::Choice, std::string> choose(std::span<const ir::NodeId> nodes);

  /// What chooses the tokens and makes them the next step's input. Nothing of the arena is alive any more.
  std::vector<passes::Choice> sampling(std::int64_t vocab);

 private:
  /// How many rows memory has for a step, and what counts the real ones (gpu::Count).
  struct RowCount {
    std::int64_t bound = 0, count = 0;
  };

  void tile(const TileDraft& draft, const EpilogueShape& shape);
  void matmul(const TileDraft& draft, const EpilogueShape& shape, const EpilogueSource& epilogue);
  void rows(const TileDraft& draft, const EpilogueShape& shape, const EpilogueSource& epilogue);
  /// Why it has no kernel; empty when it has.
  std::string attention(std::span<const ir::NodeId> nodes);
  void step_of_one(ir::NodeId node);
  void norm(ir::NodeId node);
  void rope_table(ir::NodeId node);
  void route(ir::NodeId node);
  void interleaved_split(ir::NodeId node);

  void launch(std::string_view stem, const KernelText& text, std::span<const PointerArgument> arguments);
  [[nodiscard]] plan::Operand operand_of(const PointerArgument& argument) const;
  [[nodiscard]] std::int64_t kv_group_of(ir::NodeId node) const;
  [[nodiscard]] RowCount rows_of_step(const ir::Dim& rows) const;
  [[nodiscard]] std::int64_t row_floats(ir::Value value) const { return binding_.rows.row_elements(value); }
  [[nodiscard]] std::string weight_type(ir::Value weight) const;
  static PointerArgument input(ir::InputKind kind);
  static PointerArgument input(plan::GpuInput kind);
  PointerArgument counters(std::int64_t count);

  const ir::Graph& graph_;
  const passes::Binding& binding_;
  const GpuTarget& target_;
  const Tuning& tuning_;
  const AttentionChoice& attention_;
  StepOperands operands_;
  passes::Choice out_;
};

/// The shape of a draft's epilogue, or the reason why it has no kernel.
std::expected<EpilogueShape, std::string> shape_of(const ir::Graph& graph, const TileDraft& draft);

}  // namespace forge::codegen
