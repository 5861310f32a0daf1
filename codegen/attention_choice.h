#pragma once
// The user's choice of attention kernels (CompileOptions::attention, --attention of the tools). What is not chosen is
// left to the target.

#include <optional>
#include <string>
#include <string_view>

namespace forge::codegen {

struct AttentionChoice {
  /// Prefill: true for matrix instructions on tiles of tokens, false for one row at a time.
  std::optional<bool> tiles;
  /// Decode: true to split a token's context over several workers, false for one worker. Steps with many sequences keep
  /// all workers busy without a split, so a target may ignore true for them.
  std::optional<bool> split;

  friend bool operator==(const AttentionChoice&, const AttentionChoice&) = default;
};

/// Parses "auto" or "" (no choice), or "tiles" or "rows", "split" or "whole", or one of each with a comma in between.
/// Errors: Error(kUsage) for anything else.
[[nodiscard]] AttentionChoice parse_attention(std::string_view text);

/// The inverse of parse_attention, in canonical order (tiles before split); empty if nothing is chosen.
[[nodiscard]] std::string attention_text(const AttentionChoice& choice);

}  // namespace forge::codegen
