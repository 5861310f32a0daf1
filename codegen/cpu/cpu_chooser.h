#pragma once
// Chooses the steps of the CPU: one function per kind of step, which fills in the step's body (plan.fbs). Bodies refer
// to their operands by role, the index in the step's operand list; operands refer to values of the graph until lowering
// writes their addresses.

#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "codegen/step_operands.h"
#include "codegen/tile_draft.h"
#include "passes/target.h"

namespace forge::codegen {

/// One object per variant and group of nodes. References must outlive it.
class CpuChooser {
 public:
  CpuChooser(const ir::Graph& graph, const passes::Binding& binding, std::optional<bool> split_attention)
      : graph_(graph), binding_(binding), split_attention_(split_attention), operands_(graph, binding.numbers) {}

  /// The step of a group of nodes, or the reason why the group cannot be one.
  std::expected<passes::Choice, std::string> choose(std::span<const ir::NodeId> nodes);

 private:
  /// A step of one node that is not a tile program (stands_alone).
  void step_of_one(ir::NodeId node, plan::BodyUnion& body);

  // choose_tile.cc
  plan::TileT tile(const TileDraft& draft);
  plan::SourceUnion source(const TileDraft& draft);
  std::unique_ptr<plan::SectionT> section(const TileDraft& draft, const DraftSection& from);
  plan::Operand section_source(const TileDraft& draft, const DraftSection& section) const;
  std::unique_ptr<plan::TileOpT> tile_op(const DraftSection& section, const DraftOp& draft);
  plan::TileOpBodyUnion expert_vector(const DraftOp& draft, std::int64_t first);
  plan::TileOpBodyUnion elementwise(const DraftOp& draft, std::int64_t first);
  plan::TileOpBodyUnion norm(const DraftOp& draft, std::int64_t first);
  plan::TileOpBodyUnion inv_rms(const DraftOp& draft);
  plan::TileOpBodyUnion sink(const DraftOp& draft, std::int64_t first);

  // choose_rows.cc
  plan::AttentionT attention(std::span<const ir::NodeId> nodes, passes::Choice& out);
  plan::SelectKeysT select_keys(ir::NodeId node, passes::Choice& out);
  plan::SelfAttentionT self_attention(ir::NodeId node, passes::Choice& out);
  plan::NormRowsT norm_rows(ir::NodeId node);
  plan::MatchRmsT match_rms(ir::NodeId node);
  plan::GaussianTopkT gaussian_topk(ir::NodeId node);
  plan::RouteT route(ir::NodeId node);
  plan::RopeFrequenciesT rope_frequencies(ir::NodeId node);
  plan::RopeAnglesT rope_angles(ir::NodeId node);
  plan::SplitPairsT split_pairs(ir::NodeId node);
  plan::ArrangeT arrange(ir::NodeId node);

  // choose_recurrent.cc
  plan::ShortConvT short_conv(std::span<const ir::NodeId> nodes);
  plan::DeltaRuleT delta_rule(ir::NodeId node);
  plan::SelectiveScanT selective_scan(ir::NodeId node);
  plan::Rwkv7T rwkv7(ir::NodeId node);
  /// The role of the recurrent state that the node updates, and of its result.
  std::uint16_t recurrent_state(ir::NodeId node, std::int64_t layer);

  /// The operand of a value. The rows of a [T, U, N] value are its T * U slots, so its row distance is one slot's.
  [[nodiscard]] plan::Operand rows(ir::Value value) const;
  /// The operand of a layer's part of the KV state that `value` belongs to.
  [[nodiscard]] plan::Operand state(ir::Value value, std::int64_t layer) const;
  std::uint16_t role(const plan::Operand& operand) { return operands_.role(operand); }
  std::uint16_t role(ir::Value value) { return role(rows(value)); }
  /// The role of f32 rows, from a column on.
  std::uint16_t role(ir::Value value, std::int64_t column) {
    return role(plan::moved(rows(value), column * kFloatBytes));
  }

  const ir::Graph& graph_;
  const passes::Binding& binding_;
  std::optional<bool> split_attention_;  ///< AttentionChoice::split
  StepOperands operands_;
};

/// Which row count of a step applies to this dimension: rows of logits (R) or tokens (T).
plan::RowCount row_count(const ir::Dim& rows);

}  // namespace forge::codegen
