#pragma once
// The walk of lower_cpu: one function a kind of step.

#include <cstdint>
#include <memory>
#include <span>

#include "codegen/model_file.h"
#include "codegen/tile_draft.h"
#include "codegen/value_places.h"
#include "passes/program.h"
#include "runtime/plan/step.h"

namespace forge::codegen {

class CpuLowering {
 public:
  CpuLowering(const passes::Program& program, const ModelFile& model, DType kv_type);

  /// `hidden`: the same model as it gives hidden rows, on the same weights; nullable.
  std::unique_ptr<plan::ProgramT> run(const passes::Program* hidden);

 private:
  void add_hidden(ValuePlaces& places, plan::ProgramT& out);
  [[nodiscard]] std::int64_t kv_block_bytes_of(const ir::KvStateAttrs& kv) const;
  std::unique_ptr<plan::VariantT> lower_variant(const passes::Variant& variant);
  std::unique_ptr<plan::StepT> lower_step(const passes::Step& step);

  // lower_tile.cc
  plan::TileT tile(std::span<const ir::NodeId> nodes);
  plan::SourceUnion source(const TileDraft& draft);
  std::unique_ptr<plan::SectionT> section(const TileDraft& draft, const DraftSection& from);
  plan::Operand section_source(const TileDraft& draft, const DraftSection& section) const;
  std::unique_ptr<plan::TileOpT> tile_op(const DraftSection& section, const DraftOp& draft);
  plan::TileOpBodyUnion expert_vector(const DraftOp& draft, std::int64_t first);
  plan::TileOpBodyUnion combine(const DraftOp& draft, std::int64_t first);
  plan::TileOpBodyUnion activation(const DraftOp& draft, std::int64_t first);
  plan::TileOpBodyUnion norm(const DraftOp& draft, std::int64_t first);
  plan::TileOpBodyUnion inv_rms(const DraftOp& draft);
  plan::TileOpBodyUnion sink(const DraftOp& draft, std::int64_t first);

  // lower_rows.cc
  plan::AttentionT attention(const passes::Step& step);
  plan::NormRowsT norm_rows(ir::NodeId node);
  plan::RouteT route(ir::NodeId node);
  plan::RopeFrequenciesT rope_frequencies(ir::NodeId node);
  plan::RopeAnglesT rope_angles(ir::NodeId node);
  plan::SplitPairsT split_pairs(ir::NodeId node);
  plan::ArrangeT arrange(ir::NodeId node);

  /// The value's place; rows of [T, U, N] are its T * U slots.
  [[nodiscard]] plan::Operand place_of(ir::Value value) const;
  [[nodiscard]] plan::Operand state_place(ir::Value state, std::int64_t layer) const;
  /// The role of an operand in the step in hand.
  std::uint16_t role(const plan::Operand& operand);
  std::uint16_t role(ir::Value value) { return role(place_of(value)); }
  /// Of f32 rows, from a column on.
  std::uint16_t role(ir::Value value, std::int64_t column) {
    return role(plan::moved(place_of(value), column * kFloatBytes));
  }

  const passes::Program& program_;
  const ir::Graph& graph_;
  const ModelFile& model_;
  ValuePlaces places_;
  DType kv_type_;
  plan::StepT* step_ = nullptr;  ///< in hand
};

plan::RowCount row_count(const ir::Dim& rows);

}  // namespace forge::codegen
