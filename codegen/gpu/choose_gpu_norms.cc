// Matmuls with operations on more of their results than a block has: norms of whole rows, the sum over a token's
// experts, the choice of experts (kernels/gpu/matmul_norm.h).

#include <fmt/format.h>

#include <utility>

#include "codegen/gpu/gpu_chooser.h"

namespace forge::codegen {

using ir::Op;
using plan::GpuInput;
using Kind = PointerArgument::Kind;

/// Few tokens: one launch, whose last block makes the rows. Many: the rows are a launch of their own, in which each row
/// has a block.
void GpuChooser::matmul_and_norm(const RowNormDraft& halves) {
  const auto bound = rows_of_step(halves.matmul.rows).bound;
  const bool in_block = sums_in_block(halves), sum = halves.rows.source != ir::kNoNode && !in_block;
  const auto shares = halves.rows.source != ir::kNoNode ? graph_.operand(halves.rows.source, 1) : ir::Value{};
  const auto summed = in_block ? shares : ir::Value{};
  if (in_block && halves.rows_shape.norm_columns == 0) {
    out_.step.reason = "waves of a block sum the experts";
    matmul(halves.matmul, halves.rows_shape, generate_epilogue(graph_, halves.rows, epilogue_context()), nullptr,
           MatmulUse::kPlain, summed);
    return append_totals(halves.rows);
  }
  const auto epilogue = generate_epilogue(graph_, halves.matmul, epilogue_context());
  const bool one_launch = has_tail(halves.matmul, halves.matmul_shape), normed = halves.rows_shape.norm_columns > 0;
  const auto tail = generate_epilogue(graph_, halves.rows, epilogue_context(), one_launch ? "Tail" : "Epilogue");
  const auto use = normed ? MatmulUse::kWholeRows : MatmulUse::kPlain;
  out_.scratch_bytes = bound * (in_block ? 1 : halves.matmul.slots) * halves.matmul.cols * kFloatBytes;
  // With experts the shares follow the rows.
  RowSource source{.stem = sum ? "sum_experts" : "rows", .pointers = {{.kind = Kind::kScratch}}};
  const auto type = [&](std::string_view rows, std::string_view slots) {
    if (!sum) return fmt::format("{}<{}>", rows, halves.rows.cols);
    return fmt::format("{}<{}, {}, {}>", slots, halves.matmul.slots, halves.rows.cols, row_floats(shares));
  };
  if (sum) source.pointers.push_back({.kind = Kind::kValue, .value = shares});
  if (one_launch) {
    out_.step.reason = "the last block makes whole rows";
    source.type = type("FreshRows", "FreshSlots");
    MatmulTail last{.kernel = "MatmulNorm", .pointers = source.pointers};
    last.text = tail.text;
    last.config.use("Tail", "gpu::Tail").use("TailSource", source.type);
    last.config.number("kTailUnit", halves.rows_shape.multiple_of);
    last.pointers.push_back(input(GpuInput::kCounts));
    last.pointers.insert(last.pointers.end(), tail.pointers.begin(), tail.pointers.end());
    matmul(halves.matmul, halves.matmul_shape, epilogue, &last, use, summed);
    return append_totals(halves.rows);
  }
  // Sums of a norm are those of a block's waves, so with the same bits both launches have the waves of the one.
  out_.step.reason = "a second launch makes whole rows";
  matmul(halves.matmul, halves.matmul_shape, epilogue, nullptr, deterministic_ ? use : MatmulUse::kPlain, summed);
  const auto waves = deterministic_ ? text_.threads / target_.wave : 0;
  auto first = std::exchange(out_, {});
  out_.step.label = halves.rows.label(graph_);
  source.type = type("LoadedRows", "SummedSlots");
  fill_rows(source, halves.rows, halves.rows_shape, tail, waves);
  first.then.push_back(std::move(out_));
  out_ = std::move(first);
  append_totals(halves.rows);
}

// Not where a slot's product has an epilogue of its own, such as a bias.
bool GpuChooser::sums_in_block(const RowNormDraft& halves) const {
  return halves.rows.source != ir::kNoNode && halves.matmul.sections[0].ops.size() == 1 &&
         halves.matmul.slots * target_.wave <= kBlockThreadsMax && !matmul_tiles(halves.matmul, halves.matmul_shape);
}

void GpuChooser::matmul_and_route(const RoutedDraft& routed) {
  const auto bound = rows_of_step(routed.matmul.rows).bound;
  const auto epilogue = generate_epilogue(graph_, routed.matmul, epilogue_context());
  const auto router = router_of(routed.route, {.kind = Kind::kScratch}, routed.matmul.cols);
  out_.step.label = routed.matmul.label(graph_) + " + route";
  out_.scratch_bytes = bound * routed.matmul.cols * kFloatBytes;
  if (has_tail(routed.matmul, routed.shape)) {
    out_.step.reason = "the last block chooses the experts";
    MatmulTail last{.kernel = "MatmulRoute", .pointers = router.pointers};
    last.text = fmt::format("struct Router {{\n{}}};\n", router.config.text());
    last.config.use("Router", "gpu::Router");
    return matmul(routed.matmul, routed.shape, epilogue, &last);
  }
  out_.step.reason = "a second launch chooses the experts";
  matmul(routed.matmul, routed.shape, epilogue);
  auto first = std::exchange(out_, {});
  out_.step.label = ir::op_def(Op::kRoute).name;
  launch_router(routed.route, router);
  first.then.push_back(std::move(out_));
  out_ = std::move(first);
}

}  // namespace forge::codegen
