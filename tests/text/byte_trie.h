#pragma once
// A small vocabulary for constraints.

#include <memory>
#include <string>
#include <vector>

#include "text/constraint/token_trie.h"

namespace forge::tests {

/// The end token (0), every byte, and `more` tokens.
inline std::shared_ptr<const text::constraint::TokenTrie> byte_trie(const std::vector<std::string>& more) {
  std::vector<std::string> tokens{"</s>"};
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), more.begin(), more.end());
  return std::make_shared<const text::constraint::TokenTrie>(tokens, std::vector<std::int32_t>{0});
}

}  // namespace forge::tests
