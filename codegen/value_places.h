#pragma once
// Addresses of the values of a scheduled program: weights, constants, inputs, outputs and arena buffers. Lowering
// replaces the values in the steps' operands by these addresses. Used by lower_cpu.cc and lower_gpu.cc.
//
// Call order: place_all() (or place_with_weights_of()), place_states(), lower() for each variant, take().

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "codegen/place_weights.h"
#include "codegen/step_operands.h"
#include "ir/value_numbers.h"
#include "passes/program.h"
#include "runtime/plan/step.h"

namespace forge::codegen {

class ValuePlaces {
 public:
  /// packed: the layout of matmul weights. `graph` and `model` outlive this.
  ValuePlaces(const ir::Graph& graph, const ModelFile& model, quant::Layout packed)
      : graph_(graph), numbers_(graph), weights_(graph, model, packed) {}

  /// Places all weights and constants of the graph.
  void place_all();
  /// Instead of place_all, for a second graph of the same model: weights lie where `others` placed them, and this
  /// graph's constants come after those of `others`.
  void place_with_weights_of(const ValuePlaces& others);
  /// Takes over the constants of `beside`, which place_with_weights_of() made from this object's constants and its own.
  void take_constants(ValuePlaces& beside) { constants_ = std::move(beside.constants_); }
  /// Lowers a variant: moves its steps into a plan's variant and writes their addresses. Steps without a body are
  /// omitted. `finish` is called for each step with the choice that it came from. `variant` cannot be lowered again.
  using Finish = std::function<void(passes::Choice&, plan::StepT&)>;
  std::unique_ptr<plan::VariantT> lower(passes::Variant& variant, const Finish& finish = {});

  /// Writes the graph's groups of KV and recurrent states into the plan's program. kv_type: element type of the KV
  /// cache; block_bytes: bytes of one KV block of one layer.
  using BlockBytes = std::function<std::int64_t(const ir::KvStateAttrs&)>;
  void place_states(std::int64_t block_tokens, DType kv_type, const BlockBytes& block_bytes, plan::ProgramT& out) const;

  /// Moves weights, constants and their sizes into the plan's program; the last call.
  void take(plan::ProgramT& out);

 private:
  void declare_weights();
  void place_constants();
  std::vector<std::unique_ptr<plan::StepT>> lower(std::span<passes::Step> steps, const Finish& finish);
  plan::Operand add_constants(std::span<const float> values);
  [[nodiscard]] plan::Operand address_of(const plan::Operand& operand, const passes::Choice& choice,
                                         std::int64_t scratch_offset);
  [[nodiscard]] plan::Operand place_of(ir::Value value) const;
  [[nodiscard]] plan::Operand base_of(ir::Value value) const;
  [[nodiscard]] std::int64_t input_width() const;

  const ir::Graph& graph_;
  ir::ValueNumbers numbers_;
  WeightPlacer weights_;
  const passes::Variant* variant_ = nullptr;                      ///< the variant that is being lowered
  std::optional<passes::RowLayout> rows_;                         ///< its row distances and buffers
  std::map<ir::NodeId, plan::Operand> constant_at_;               ///< of kConstant nodes
  std::map<std::vector<float>, plan::Operand> choice_constants_;  ///< of choices, shared by equal ones
  std::vector<std::uint8_t> constants_;                           ///< the bytes of all constants
};

/// Lowers all variants of the program into the plan's, and grows its arena to what they need. Variants of a graph that
/// outputs hidden rows get the rows' width.
void lower_variants(passes::Program& program, ValuePlaces& places, const ValuePlaces::Finish& finish,
                    plan::ProgramT& out);
/// The same for the variants that output hidden rows, beside a program that outputs logits. They use the weights that
/// `places` has placed; their constants are appended. beside: new, for the graph of `hidden`.
void lower_beside(passes::Program& hidden, ValuePlaces& places, ValuePlaces& beside, const ValuePlaces::Finish& finish,
                  plan::ProgramT& out);

}  // namespace forge::codegen
