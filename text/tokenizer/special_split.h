#pragma once
// Cuts text at its special tokens before a tokenizer sees any word.

#include <string_view>
#include <vector>

#include "text/tokenizer/vocabulary.h"

namespace forge::text {

/// Either a special token (id != kNoToken, text empty) or a stretch of ordinary text, a view into the input.
struct Fragment {
  std::string_view text;
  TokenId id = kNoToken;
};

/// Splits `text` into fragments, in order. User-defined tokens are always found; control and unknown tokens only with
/// `parse_special`, so that untrusted text cannot contain them. Where matches overlap, the longest token wins, then the
/// one with the lowest id, then the leftmost. White space next to a token that strips it (kStripsLeft, kStripsRight) is
/// dropped.
std::vector<Fragment> split_special(const Vocabulary& vocabulary, std::string_view text, bool parse_special);

}  // namespace forge::text
