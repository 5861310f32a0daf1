#include <fmt/format.h>

#include "codegen/gpu/gpu_chooser.h"
#include "codegen/gpu/tile_sizes.h"

// Attention on rows that are keys and values at once (multi-head latent attention; kernels/gpu/latent_row.h).

namespace forge::codegen {

std::string GpuChooser::latent_attention(std::span<const ir::NodeId> nodes) {
  const auto node = nodes[0];
  const auto& a = graph_.attrs_as<ir::AttentionAttrs>(node);
  const auto& bounds = binding_.bounds;
  const bool prompt = bounds.tokens > bounds.sequences;
  const auto config = deterministic_ ? choose_latent_attention_of_tokens(target_, a, bounds, tuning_, attention_)
                                     : choose_latent_attention(target_, a, bounds, tuning_, attention_);
  if (prompt && attention_.tiles.value_or(false) && bounds.tokens >= kPromptTokensLeast && !config.tiles)
    return fmt::format("--attention tiles is not possible with {}latent rows of {} columns",
                       a.selected > 0 ? "selected " : "", a.head_dim);
  const auto q = graph_.operand(node, 0);
  if (auto why = refuses_query(q); !why.empty()) return why;
  const bool quantised = nodes.size() > 1;
  const auto output = attention_output(nodes);
  out_.scratch_bytes = config.scratch_bytes;
  out_.step.label = quantised ? "attention + quantize" : "attention";
  out_.step.reason = fmt::format("{}latent rows, {} blocks share the context of a row",
                                 a.selected > 0 ? "selected " : "", config.workers);
  if (config.kernel == LatentConfig::Kernel::kHeadTiles)
    out_.step.reason += fmt::format(", {} heads a tile", kTileRows);
  if (config.tiles)
    out_.step.reason = fmt::format("latent rows, a prompt's queries in tiles of {}", config.tiles->tokens);
  if (prompt ? attention_.tiles.has_value() : attention_.split.has_value()) out_.step.reason += ", as requested";
  KernelText text = config.kernel_text();
  text.config.use("Pool", fmt::format("KvPool<1, {}, {}>", a.head_dim, kGpuKvBlockTokens))
      .number("kValueDim", value_dim_of(a))
      .number("kHeads", a.heads)
      .number("kTableBlocks", bounds.table_blocks)
      .real("kScale", a.scale)
      .number("kTokensTotal", bounds.tokens)
      .flag("kStored", output.stored)
      .number("kFormat", output.format);
  if (const auto floats = row_floats(q); floats != a.heads * a.head_dim) text.config.number("kQueryFloats", floats);
  write_selection(node, text.config);
  text.threads = config.waves * target_.wave;
  launch(fmt::format("latent_{}_{}x{}_t{}", config.tiles ? "tiles" : "attention", a.heads, a.head_dim, bounds.tokens),
         text, attention_arguments(nodes, bounds.tokens * config.jobs * config.counters));
  return {};
}

}  // namespace forge::codegen
