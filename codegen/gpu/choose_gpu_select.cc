#include <fmt/format.h>

#include <utility>

#include "codegen/gpu/gpu_chooser.h"
#include "codegen/gpu/select_config.h"

// The choice of the keys of sparse attention (kernels/gpu/select_keys.h).

namespace forge::codegen {

using ir::InputKind;
using plan::GpuInput;
using Kind = PointerArgument::Kind;

std::string GpuChooser::select_keys(ir::NodeId node) {
  const auto& a = graph_.attrs_as<ir::SelectKeysAttrs>(node);
  const auto q = graph_.operand(node, 0);
  if (auto why = refuses_query(q); !why.empty()) return why;
  const bool weighted = graph_.operands(node).size() > 6;
  const auto weights = weighted ? graph_.operand(node, 6) : q;
  const auto config = choose_select_keys(target_, a, weighted, binding_.bounds, tuning_);

  auto shape = select_keys_shape(a, weighted, binding_.bounds);
  if (const auto floats = row_floats(q); floats != a.heads * a.head_dim) shape.number("kQueryFloats", floats);
  if (const auto floats = row_floats(weights); weighted && floats != a.heads) shape.number("kWeightFloats", floats);
  const std::vector<PointerArgument> arguments{{.kind = Kind::kValue, .value = q},
                                               {.kind = Kind::kValue, .value = weights},
                                               {.kind = Kind::kKeys, .node = node},
                                               input(InputKind::kPositions),
                                               input(InputKind::kSequence),
                                               {.kind = Kind::kBlockTable, .node = node},
                                               input(GpuInput::kCounts),
                                               {.kind = Kind::kScratch},
                                               {.kind = Kind::kValue, .value = {node, 0}}};
  const auto stem = fmt::format("{}x{}_t{}", a.heads, a.head_dim, binding_.bounds.tokens);
  out_.scratch_bytes = config.scratch_bytes;
  const char* how = config.tiles ? " by matrix instructions" : "";
  if (config.many) {
    out_.step.reason =
        fmt::format("{} blocks score{} and choose, rows at a time: {}", config.blocks, how, config.rows_together);
    launch("select_keys_" + stem, config.score_text(target_, shape), arguments);
    return {};
  }
  out_.step.reason = fmt::format("{} blocks score the keys of a row{}; a second launch chooses", config.workers, how);
  launch("score_keys_" + stem, config.score_text(target_, shape), arguments);
  auto first = std::exchange(out_, {});
  out_.step.label = "choose keys";
  launch("choose_keys_" + stem, config.choose_text(target_, shape), arguments);
  first.then.push_back(std::move(out_));
  out_ = std::move(first);
  return {};
}

}  // namespace forge::codegen
