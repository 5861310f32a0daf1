#include "session/state_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/kv/kv_groups.h"
#include "runtime/program_bounds.h"
#include "support/os/console.h"

namespace forge::session {

StateReport state_report(const plan::ProgramT& program, std::int64_t context, std::int64_t sequences) {
  const auto positive = [](std::int64_t n) { return static_cast<std::uint64_t>(std::max<std::int64_t>(n, 0)); };
  const auto rooms = runtime::kv_pool_sizes(program, runtime::kv_blocks_for(program, context, sequences));
  const auto all = positive(runtime::kv_blocks_for(program, context, 1));
  StateReport out;
  for (std::size_t g = 0; g < rooms.size(); ++g) {
    const auto& group = program.kv_groups[g];
    const auto tokens = static_cast<std::size_t>(group.block_tokens());
    const std::uint64_t held = rooms[g].window == 0 ? all : runtime::kv_window_blocks(rooms[g].window, tokens);
    KvReport row{.layers = group.layers(),
                 .kv_heads = group.kv_heads(),
                 .head_dim = group.head_dim(),
                 .value_dim = group.value_dim(),
                 .block_tokens = group.block_tokens(),
                 .block_bytes = group.block_bytes(),
                 .shared_row = group.shared_row(),
                 .window = group.window(),
                 .blocks = rooms[g].blocks,
                 .blocks_sequence = std::min<std::uint64_t>(held, rooms[g].blocks)};
    const std::uint64_t block = positive(group.layers()) * positive(group.block_bytes());
    row.bytes = row.blocks * block;
    row.bytes_sequence = row.blocks_sequence * block;
    out.kv.push_back(row);
  }
  (void)runtime::recurrent_bytes(program, sequences);  // checks the groups
  for (const auto& group : program.recurrent_groups) {
    const auto bytes = positive(group.layers()) * positive(group.slot_bytes());
    out.recurrent.push_back({.layers = group.layers(),
                             .slot_bytes = group.slot_bytes(),
                             .bytes = bytes * positive(sequences),
                             .bytes_sequence = bytes});
  }
  return out;
}

std::string state_report_text(const StateReport& report) {
  std::string out;
  for (const auto& g : report.kv) {
    const auto what = g.window == 0 ? std::string("whole context") : fmt::format("window of {} tokens", g.window);
    auto heads = fmt::format("{} heads of {}", g.kv_heads, g.head_dim);
    if (g.shared_row)
      heads += fmt::format(", of which the first {} columns are the values", g.value_dim);
    else if (g.value_dim != g.head_dim)
      heads += fmt::format(" and values of {}", g.value_dim);
    out += fmt::format("  KV cache of {} layers, {}, {}: {} blocks of {} tokens per sequence, {}", g.layers, heads,
                       what, g.blocks_sequence, g.block_tokens, human_bytes(g.bytes_sequence));
    out += fmt::format("; {} blocks in total{}, {}\n", g.blocks,
                       g.window == 0 ? "" : ", including the tokens of a step", human_bytes(g.bytes));
  }
  for (const auto& g : report.recurrent)
    out += fmt::format(
        "  recurrent state of {} layers: {} per slot, {} in total; a sequence has a slot, and so has each snapshot\n",
        g.layers, human_bytes(g.bytes_sequence), human_bytes(g.bytes));
  return out;
}

void state_report_json(JsonWriter& json, const StateReport& report) {
  json.open("kv_groups", '[');
  for (const auto& g : report.kv)
    json.open('{')
        .field("layers", g.layers)
        .field("kv_heads", g.kv_heads)
        .field("head_dim", g.head_dim)
        .field("value_dim", g.value_dim)
        .field("shared_row", g.shared_row)
        .field("block_tokens", g.block_tokens)
        .field("window", g.window)
        .field("block_bytes", g.block_bytes)
        .field("blocks", g.blocks)
        .field("bytes", g.bytes)
        .field("blocks_sequence", g.blocks_sequence)
        .field("bytes_sequence", g.bytes_sequence)
        .close();
  json.close().open("recurrent_groups", '[');
  for (const auto& g : report.recurrent)
    json.open('{')
        .field("layers", g.layers)
        .field("slot_bytes", g.slot_bytes)
        .field("bytes", g.bytes)
        .field("bytes_sequence", g.bytes_sequence)
        .close();
  json.close();
}

}  // namespace forge::session
