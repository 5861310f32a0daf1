// The launches of a matmul by matrix instructions: the product, and before it what makes its rows of x where their
// producer has not stored them as tiles take them, the sums of their squares, and the order of its slots.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "codegen/gpu/gpu_chooser.h"
#include "codegen/gpu/matmul_draft.h"
#include "codegen/gpu/tile_sizes.h"

namespace forge::codegen {

using Kind = PointerArgument::Kind;

std::int64_t behind(std::int64_t scratch_bytes) {
  constexpr std::int64_t kAlignment = 256;
  return (scratch_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

namespace {

constexpr std::size_t kExpertsArgument = 3;  ///< of MatmulArgs: the experts of slots

}  // namespace

// Scratch begins with what the caller has reserved; the product's own needs follow.
void GpuChooser::launch_tiles(const TileDraft& draft, const TilesConfig& tiles, const EpilogueSource& epilogue,
                              std::string_view stem, const KernelText& text, std::vector<PointerArgument> arguments) {
  const auto weight = weight_of(graph_, draft.source);
  const auto wanted = tile_rows_type(target_, weight.dtype, graph_.type(draft.input).dtype);
  auto caller = std::exchange(out_, {});
  auto scratch = caller.scratch_bytes;
  std::vector<passes::Choice> steps;
  PointerArgument x{.kind = Kind::kValue, .value = draft.input}, totals = x;
  if (stored_type(draft.input) != wanted) {
    x = {.kind = Kind::kScratch, .input = behind(scratch)};
    scratch = x.input + launch_tile_rows(draft, weight, wanted, x);
    steps.push_back(std::exchange(out_, {}));
  }
  if (epilogue.squares.node != ir::kNoNode) {
    totals = {.kind = Kind::kValue, .value = epilogue.squares};
    if (!stored_form(epilogue.squares).total) {
      totals = {.kind = Kind::kScratch, .input = behind(scratch)};
      scratch = totals.input + launch_sum_squares(draft.rows, epilogue.squares, totals);
      steps.push_back(std::exchange(out_, {}));
    }
  }
  if (weight.experts > 0) {
    const PointerArgument sorted{.kind = Kind::kScratch, .input = behind(scratch)};
    scratch = sorted.input + launch_sort_slots(draft, weight, arguments[kExpertsArgument], sorted);
    steps.push_back(std::exchange(out_, {}));
    arguments[kExpertsArgument] = sorted;
  }
  out_ = std::move(caller);
  PointerArgument partials = x, arrivals = x;
  if (tiles.splits > 1) {
    partials = {.kind = Kind::kScratch, .input = behind(scratch)};
    scratch = partials.input + tiles.blocks * tiles.rows * tiles.tokens * kFloatBytes;
  }
  if (tiles.splits > 1 || epilogue.totals)
    arrivals =
        counters(tiles.blocks / tiles.splits + (rows_of_step(draft.rows).bound + tiles.tokens - 1) / tiles.tokens);
  arguments[1] = x;
  arguments.insert(arguments.begin() + 2, {totals, partials, arrivals});
  launch(stem, text, arguments);
  out_.scratch_bytes = 0;
  const auto counter_bytes = std::exchange(out_.counter_bytes, 0);
  steps.push_back(std::move(out_));
  out_ = std::move(steps.front());
  out_.main = steps.size() - 1;
  out_.scratch_bytes = scratch;
  out_.counter_bytes = counter_bytes;
  out_.then.assign(std::move_iterator(steps.begin() + 1), std::move_iterator(steps.end()));
  if (!epilogue.totals) append_totals(draft);
}

std::int64_t GpuChooser::launch_tile_rows(const TileDraft& draft, const MatmulWeight& weight, DType type,
                                          const PointerArgument& out) {
  const auto rows = rows_of_step(draft.rows);
  const bool own_rows = weight.experts > 0 && graph_.type(draft.input).shape.size() >= 3;
  const auto rows_of_token = own_rows ? draft.slots : weight.heads;
  KernelText text{
      .header = "kernels/gpu/tile_rows.h", .kernel = "TileRows", .defaults = "TileRowsDefaults", .before = {}};
  text.has_lds = false;
  text.config.use("Weight", weight_type(weight.value))
      .use("Tile", tile_name(type))
      .number("kTokensTotal", rows.bound)
      .number("kCount", rows.count)
      .number("kXTerms", activation_terms(graph_.type(draft.input).dtype))
      .number("kRowsOfToken", rows_of_token);
  write_stride(draft, weight, text.config);
  text.threads = 256;
  text.blocks = (rows.bound * rows_of_token * weight.k / 16 + text.threads - 1) / text.threads;
  const std::vector<PointerArgument> pointers{
      {.kind = Kind::kValue, .value = draft.input}, input(plan::GpuInput::kCounts), out};
  launch(fmt::format("tile_rows_{}_t{}", weight.k, rows.bound), text, pointers);
  out_.step.label = "rows of x for matrix tiles";
  return rows.bound * rows_of_token * weight.k * 2;
}

std::int64_t GpuChooser::launch_sort_slots(const TileDraft& draft, const MatmulWeight& weight,
                                           const PointerArgument& experts, const PointerArgument& out) {
  const auto rows = rows_of_step(draft.rows);
  const auto slots = rows.bound * draft.slots;
  KernelText text{.header = "kernels/gpu/slot_tiles.h", .kernel = "SortSlots", .defaults = {}, .before = {}};
  text.config.number("kExperts", weight.experts)
      .number("kSlots", draft.slots)
      .number("kTokensTotal", slots)
      .number("kCount", rows.count);
  text.threads = 256;
  text.blocks = weight.experts;
  const std::vector<PointerArgument> pointers{experts, input(plan::GpuInput::kCounts), out};
  launch(fmt::format("sort_slots_{}_t{}", weight.experts, slots), text, pointers);
  out_.step.label = "slots by expert";
  return (weight.experts + slots) * static_cast<std::int64_t>(sizeof(std::int32_t));
}

std::int64_t GpuChooser::launch_sum_squares(const ir::Dim& of, ir::Value squares, const PointerArgument& out) {
  constexpr std::int64_t kWaves = 8;
  const auto rows = rows_of_step(of);
  const bool in_place = out.kind == Kind::kValue;
  KernelText text{.header = "kernels/gpu/tile_rows.h", .kernel = "SumSquares", .defaults = {}, .before = {}};
  text.has_lds = false;
  text.config.number("kParts", row_floats(squares))
      .number("kTotalStride", in_place ? row_floats(squares) : 1)
      .number("kTokensTotal", rows.bound)
      .number("kCount", rows.count);
  text.threads = kWaves * target_.wave;
  text.blocks = (rows.bound + kWaves - 1) / kWaves;
  const std::vector<PointerArgument> pointers{
      {.kind = Kind::kValue, .value = squares}, input(plan::GpuInput::kCounts), out};
  launch(fmt::format("sum_squares_{}_t{}", row_floats(squares), rows.bound), text, pointers);
  out_.step.label = "sums of squares of rows";
  return rows.bound * kFloatBytes;
}

void GpuChooser::append_totals(const TileDraft& draft) {
  for (const auto squares : squares_of(draft)) {
    if (!stored_form(squares).total) continue;
    auto first = std::exchange(out_, {});
    launch_sum_squares(draft.rows, squares, {.kind = Kind::kValue, .value = squares});
    first.then.push_back(std::move(out_));
    out_ = std::move(first);
  }
}

}  // namespace forge::codegen
