#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "codegen/gpu/gpu_chooser.h"
#include "codegen/gpu/tile_sizes.h"

// The choice of the keys of sparse attention (kernels/gpu/select_keys.h).

namespace forge::codegen {

using ir::InputKind;
using plan::GpuInput;
using Kind = PointerArgument::Kind;

namespace {

constexpr std::int64_t kScoredTogether = 32;   ///< positions: the kernel's kChunk
constexpr std::int64_t kThreadsMost = 256;     ///< of a block that scores
constexpr std::int64_t kWorkerPositions = 64;  ///< least positions of a worker
/// Blocks that choose have 256 threads for up to so many blocks of positions, else 1024.
constexpr std::int64_t kSmallChoice = 8192;

/// Scores that scratch has for one list of a row.
std::int64_t scores_of_list(const ir::SelectKeysAttrs& select, std::int64_t positions) {
  return select.block % kScoredTogether == 0 ? positions / kScoredTogether : positions;
}

}  // namespace

std::optional<std::string> refuses_select_keys(const ir::SelectKeysAttrs& select) {
  constexpr std::int64_t kSharedMost = 48 << 10;  // what every target gives without opting in
  if (select.head_dim % 8 != 0)
    return fmt::format("index keys of {} columns are not whole units of 8", select.head_dim);
  const auto query = select.heads * (select.head_dim * kFloatBytes + 5 * kFloatBytes);
  const auto keys = kScoredTogether * (select.head_dim / 8 + 1) * 16, sums = kThreadsMost * kFloatBytes;
  if (query + keys + sums > kSharedMost)
    return fmt::format("{} index heads of {} columns need more shared memory than a block has", select.heads,
                       select.head_dim);
  return std::nullopt;
}

std::string GpuChooser::select_keys(ir::NodeId node) {
  const auto& a = graph_.attrs_as<ir::SelectKeysAttrs>(node);
  const auto& bounds = binding_.bounds;
  const auto q = graph_.operand(node, 0);
  if (auto why = refuses_query(q); !why.empty()) return why;
  const bool weighted = graph_.operands(node).size() > 6;
  const auto weights = weighted ? graph_.operand(node, 6) : q;
  const auto rows = bounds.tokens, lists = weighted ? 1 : a.heads;
  const auto positions = bounds.table_blocks * kGpuKvBlockTokens;
  const auto row_bytes = lists * scores_of_list(a, positions) * kFloatBytes;
  const bool many = rows > std::max(kTokenTile, bounds.sequences);

  ConfigText config;
  config.use("Pool", fmt::format("KvPool<1, {}, {}>", a.head_dim, kGpuKvBlockTokens))
      .number("kHeads", a.heads)
      .number("kTopK", a.top_k)
      .number("kBlock", a.block)
      .number("kLocal", a.local)
      .flag("kWeighted", weighted)
      .number("kTableBlocks", bounds.table_blocks)
      .number("kTokensTotal", rows);
  if (const auto floats = row_floats(q); floats != a.heads * a.head_dim) config.number("kQueryFloats", floats);
  if (const auto floats = row_floats(weights); weighted && floats != a.heads) config.number("kWeightFloats", floats);
  const std::vector<PointerArgument> arguments{{.kind = Kind::kValue, .value = q},
                                               {.kind = Kind::kValue, .value = weights},
                                               {.kind = Kind::kKeys, .node = node},
                                               input(InputKind::kPositions),
                                               input(InputKind::kSequence),
                                               {.kind = Kind::kBlockTable, .node = node},
                                               input(GpuInput::kCounts),
                                               {.kind = Kind::kScratch},
                                               {.kind = Kind::kValue, .value = {node, 0}}};
  const auto text_of = [&](const char* kernel, std::int64_t blocks, std::int64_t threads) {
    KernelText text{.header = "kernels/gpu/select_keys.h",
                    .kernel = kernel,
                    .defaults = "SelectKeysDefaults",
                    .before = {},
                    .config = config,
                    .blocks = blocks,
                    .threads = (threads + target_.wave - 1) / target_.wave * target_.wave};
    text.config.number("kWaves", text.threads / target_.wave);
    return text;
  };
  const auto stem = fmt::format("{}x{}_t{}", a.heads, a.head_dim, rows);

  if (many) {
    const auto blocks = std::min<std::int64_t>(rows, target_.attention_blocks);
    auto text = text_of("SelectKeys", blocks, kThreadsMost);
    text.config.number("kRowBlocks", blocks);
    out_.scratch_bytes = blocks * row_bytes;
    out_.step.reason = fmt::format("{} blocks score and choose, a row at a time", blocks);
    launch("select_keys_" + stem, text, arguments);
    return {};
  }
  const auto workers = std::clamp<std::int64_t>(target_.attention_blocks / rows, 1,
                                                std::max<std::int64_t>(positions / kWorkerPositions, 1));
  auto score = text_of("ScoreKeys", rows * workers, std::min(a.heads * kScoredTogether, kThreadsMost));
  score.config.number("kWorkers", workers);
  out_.scratch_bytes = rows * row_bytes;
  out_.step.reason = fmt::format("{} blocks score the keys of a row; a second launch chooses", workers);
  launch("score_keys_" + stem, score, arguments);
  auto first = std::exchange(out_, {});
  out_.step.label = "choose keys";
  launch("choose_keys_" + stem,
         text_of("ChooseKeys", rows * lists, positions / a.block > kSmallChoice ? 4 * kThreadsMost : kThreadsMost),
         arguments);
  first.then.push_back(std::move(out_));
  out_ = std::move(first);
  return {};
}

}  // namespace forge::codegen
