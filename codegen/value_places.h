#pragma once
// Where the values of a scheduled program lie, and so its steps with addresses instead of values.

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
  /// `graph` and `model` outlive it.
  ValuePlaces(const ir::Graph& graph, const ModelFile& model, quant::Layout packed)
      : graph_(graph), numbers_(graph), weights_(graph, model, packed) {}

  /// Declares and places all weights, and all constants. First call.
  void place_all();
  /// Instead of place_all: the weights lie where those of `others` do, of the same model, and constants follow its own.
  void place_beside(const ValuePlaces& others);
  /// Takes the constants of places that were made beside these.
  void take_constants(ValuePlaces& beside) { constants_ = std::move(beside.constants_); }
  /// The variant with the addresses of its steps written; steps without a body are left out. `finish` sees each step
  /// with what was chosen for it. `variant` cannot be lowered again.
  using Finish = std::function<void(passes::Choice&, plan::StepT&)>;
  std::unique_ptr<plan::VariantT> lower(passes::Variant& variant, const Finish& finish = {});

  /// The state groups of the graph into the plan's program. KV blocks have elements of `kv_type`; `block_bytes` of one
  /// of one layer.
  using BlockBytes = std::function<std::int64_t(const ir::KvStateAttrs&)>;
  void place_states(std::int64_t block_tokens, DType kv_type, const BlockBytes& block_bytes, plan::ProgramT& out) const;

  /// Moves weights, constants and their sizes into the plan's program. Last call.
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
  const passes::Variant* variant_ = nullptr;  ///< in hand, and how its rows lie
  std::optional<passes::RowLayout> rows_;
  std::map<ir::NodeId, plan::Operand> constant_at_;
  std::map<std::vector<float>, plan::Operand> choice_constants_;
  std::vector<std::uint8_t> constants_;
};

}  // namespace forge::codegen
