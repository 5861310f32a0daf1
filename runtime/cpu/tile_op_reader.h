#pragma once
// Reads the ops that follow a tile's source (transforms and sinks), one function per op body of plan.fbs.

#include <cstdint>
#include <vector>

#include "runtime/cpu/plan_reader.h"

namespace forge::runtime {

/// What a tile op works on: the step's rows, the section's columns, and the columns that stay together in a tile.
struct TileShape {
  std::size_t rows = 0, width = 0, unit = 1;
  bool rows_are_tokens = false;  ///< rows are the step's tokens, not logit rows or slots
};

class TileOpReader : PlanReader {
 public:
  explicit TileOpReader(const PlanReader& reader) : PlanReader(reader) {}

  /// Reads one op. Errors: Error(kPlan), naming the step.
  [[nodiscard]] TileInstr op(const plan::TileOpBodyUnion& body, const TileShape& shape) const;
  [[nodiscard]] TileInstr store(std::uint16_t out, const TileShape& shape) const;
  [[nodiscard]] TileInstr quantize(const plan::QuantizeT& quantize, const TileShape& shape) const;

 private:
  TileInstr elementwise(const plan::ElementwiseT& op, const TileShape& shape) const;
  TileInstr pairs(const plan::ElementwisePairsT& pairs, const TileShape& shape) const;
  /// An op with the function's parameters and its kernel for one operand, or for two.
  TileInstr function(std::uint8_t number, const std::vector<float>& parameters, bool binary) const;
  TileInstr inv_rms(const plan::InvRmsT& norm, const TileShape& shape) const;
  TileInstr expert_vector(const plan::AddExpertVectorT& add, const TileShape& shape) const;
  TileInstr expert_factor(const plan::ScaleExpertT& scale, const TileShape& shape) const;
  TileInstr norm(const plan::NormT& norm, const TileShape& shape) const;
  TileInstr rope(const plan::RopeT& rope, const TileShape& shape) const;
  TileInstr sum_squares(const plan::SumSquaresT& sum, const TileShape& shape) const;
  TileInstr store_kv(const plan::StoreKvT& store, const TileShape& shape) const;
};

}  // namespace forge::runtime
