#include "tools/kv_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/kv_groups.h"
#include "runtime/program_bounds.h"
#include "tools/console.h"

namespace forge::tools {

std::vector<KvReport> kv_report(const plan::ProgramT& program, std::int64_t context, std::int64_t sequences) {
  const auto positive = [](std::int64_t n) { return static_cast<std::uint64_t>(std::max<std::int64_t>(n, 0)); };
  const auto rooms = runtime::kv_rooms(program, runtime::kv_blocks_for(program, context, sequences));
  const auto all = positive(runtime::kv_blocks_for(program, context, 1));
  std::vector<KvReport> out;
  for (std::size_t g = 0; g < rooms.size(); ++g) {
    const auto& group = program.kv_groups[g];
    const auto tokens = static_cast<std::size_t>(group.block_tokens());
    const std::uint64_t held = rooms[g].window == 0 ? all : runtime::kv_window_blocks(rooms[g].window, tokens);
    KvReport row{.layers = group.layers(),
                 .kv_heads = group.kv_heads(),
                 .head_dim = group.head_dim(),
                 .block_tokens = group.block_tokens(),
                 .block_bytes = group.block_bytes(),
                 .window = group.window(),
                 .blocks = rooms[g].blocks,
                 .blocks_sequence = std::min<std::uint64_t>(held, rooms[g].blocks)};
    const std::uint64_t block = positive(group.layers()) * positive(group.block_bytes());
    row.bytes = row.blocks * block;
    row.bytes_sequence = row.blocks_sequence * block;
    out.push_back(row);
  }
  return out;
}

std::string kv_report_text(const std::vector<KvReport>& groups) {
  std::string out;
  for (const auto& g : groups) {
    const auto what = g.window == 0 ? std::string("all positions") : fmt::format("a window of {}", g.window);
    out += fmt::format("  KV of {} layers, {} heads of {}, {}: {} blocks of {} tokens a sequence, {}", g.layers,
                       g.kv_heads, g.head_dim, what, g.blocks_sequence, g.block_tokens, human_bytes(g.bytes_sequence));
    out += fmt::format("; {} blocks in all{}, {}\n", g.blocks,
                       g.window == 0 ? "" : " with those of a step's own tokens", human_bytes(g.bytes));
  }
  return out;
}

void kv_report_json(JsonWriter& json, const std::vector<KvReport>& groups) {
  json.open("kv_groups", '[');
  for (const auto& g : groups)
    json.open('{')
        .field("layers", g.layers)
        .field("kv_heads", g.kv_heads)
        .field("head_dim", g.head_dim)
        .field("block_tokens", g.block_tokens)
        .field("window", g.window)
        .field("block_bytes", g.block_bytes)
        .field("blocks", g.blocks)
        .field("bytes", g.bytes)
        .field("blocks_sequence", g.blocks_sequence)
        .field("bytes_sequence", g.bytes_sequence)
        .close();
  json.close();
}

}  // namespace forge::tools
