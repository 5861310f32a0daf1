#pragma once
// How attention is run, where that is not left to the target: CompileOptions::attention, --attention of the tools.

#include <optional>
#include <string>
#include <string_view>

namespace forge::codegen {

struct AttentionChoice {
  std::optional<bool> tiles;  ///< prompts: by matrix instructions, tiles of tokens at a time (true), or row by row
  /// Decoding: several workers share a token's context (true), or one reads it all. Steps of many sequences keep all
  /// workers busy anyway, and may not be split.
  std::optional<bool> split;

  friend bool operator==(const AttentionChoice&, const AttentionChoice&) = default;
};

/// "auto" or nothing, or "tiles" or "rows", and "split" or "whole", with a comma between where both are given.
/// Errors: Error(kUsage) for anything else.
[[nodiscard]] AttentionChoice parse_attention(std::string_view text);

/// The same again, always in the same order; empty where all is left to the target.
[[nodiscard]] std::string attention_text(const AttentionChoice& choice);

}  // namespace forge::codegen
