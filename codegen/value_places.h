#pragma once
// Where the values of a scheduled program lie, for lowerings: addresses in the plan's spaces instead of graph values.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "codegen/place_weights.h"
#include "passes/program.h"
#include "runtime/plan/step.h"

namespace forge::codegen {

inline constexpr std::int64_t kFloatBytes = sizeof(float);

/// Bytes from row to row of a value.
std::uint32_t row_bytes_of(DType type, std::int64_t cols);

/// The address of a matrix of rows: where row 0, column 0 lies and how many floats a row has.
struct Rows {
  plan::Operand ref;
  std::int64_t row_floats = 0;
};

class ValuePlaces {
 public:
  ValuePlaces(const passes::Program& program, const ModelFile& model, quant::Layout packed)
      : graph_(program.graph), weights_(program.graph, model, packed) {}

  /// Declares and places all weights, and all constants. First call.
  void place_all();
  /// Instead of place_all: the weights lie where those of `others` do, of the same model, and constants follow its own.
  void place_beside(const ValuePlaces& others);
  /// Takes the constants of places that were made beside these.
  void take_constants(ValuePlaces& beside) { constants_ = std::move(beside.constants_); }
  /// From here on values are those of this variant.
  void enter(const passes::Variant& variant) { variant_ = &variant; }

  [[nodiscard]] Rows rows_of(ir::Value value) const;
  /// Adds bytes to the constants, aligned to 64.
  plan::Operand add_constant(std::span<const float> values);
  [[nodiscard]] const WeightPlacer& weights() const { return weights_; }
  [[nodiscard]] const passes::Variant& variant() const { return *variant_; }

  /// The KV groups of the graph. `block_bytes` of one block of one layer.
  [[nodiscard]] std::vector<plan::KvGroup> kv_groups(
      std::int64_t block_tokens, const std::function<std::int64_t(const ir::KvStateAttrs&)>& block_bytes) const;

  /// Moves weights, constants and their sizes into the plan's program. Last call.
  void take(plan::ProgramT& out);

 private:
  void declare_weights();
  void place_constants();

  const ir::Graph& graph_;
  WeightPlacer weights_;
  const passes::Variant* variant_ = nullptr;
  std::map<ir::NodeId, plan::Operand> constant_at_;
  std::vector<std::uint8_t> constants_;
};

}  // namespace forge::codegen
