#pragma once
// Text cut at its special tokens, before any word is looked at.

#include <string_view>
#include <vector>

#include "text/tokenizer/vocabulary.h"

namespace forge::text {

/// A stretch of plain text, or (id != kNoToken) a special token.
struct Fragment {
  std::string_view text;
  TokenId id = kNoToken;
};

/// Finds user-defined tokens, and with `parse_special` control and unknown tokens too. A longer token wins over a
/// shorter one wherever they share bytes, then the one further left; white space beside a token that strips it is gone.
std::vector<Fragment> split_special(const Vocabulary& vocabulary, std::string_view text, bool parse_special);

}  // namespace forge::text
