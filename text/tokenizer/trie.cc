#include "text/tokenizer/trie.h"

#include <fmt/core.h>

#include <algorithm>

namespace forge::text {
namespace {

using TextOf = std::function<std::string_view(TokenId)>;

/// Sorts ids by their texts. The first eight bytes of each text, as a big-endian number, are copied into the key: they
/// decide most comparisons without reading the mapped file again.
void sort_by_text(const TextOf& text_of, std::vector<TokenId>& ids) {
  struct Key {
    std::uint64_t head = 0;
    TokenId id = kNoToken;
  };
  std::vector<Key> keys;
  keys.reserve(ids.size());
  for (const TokenId id : ids) {
    const auto text = text_of(id);
    std::uint64_t head = 0;
    for (std::size_t i = 0; i < sizeof head; ++i)
      head = head << 8 | (i < text.size() ? static_cast<std::uint8_t>(text[i]) : 0U);
    keys.push_back({head, id});
  }
  std::ranges::sort(keys, [&](const Key& a, const Key& b) {
    if (a.head != b.head) return a.head < b.head;
    const auto order = text_of(a.id) <=> text_of(b.id);
    return order != 0 ? order < 0 : a.id > b.id;
  });
  std::ranges::transform(keys, ids.begin(), &Key::id);
}

}  // namespace

void warn_of_long_tokens(Vocabulary& vocabulary, std::size_t tokens) {
  if (tokens != 0)
    vocabulary.warn(
        fmt::format("{} tokens are longer than {} bytes; they are not looked for in text", tokens, kSearchedBytesMax));
}

Trie::Trie(const TextOf& text_of, std::vector<TokenId> ids) {
  sort_by_text(text_of, ids);
  // Breadth first, so that the children of a node get consecutive numbers. A node is a range of the sorted tokens that
  // agree in their first `depth` bytes.
  struct Stretch {
    std::size_t begin = 0, end = 0, depth = 0;
  };
  std::vector<Stretch> level{{0, ids.size(), 0}}, next;
  first_child_.clear();
  std::uint32_t nodes = 1;
  for (; !level.empty(); std::swap(level, next), next.clear()) {
    for (const Stretch& node : level) {
      first_child_.push_back(nodes);
      for (std::size_t i = node.begin; i < node.end;) {
        const auto text = text_of(ids[i]);
        if (text.size() == node.depth) {
          ++i;  // the node's own token
          continue;
        }
        const char byte = text[node.depth];
        std::size_t end = i + 1;
        while (end < node.end && text_of(ids[end])[node.depth] == byte) ++end;
        bytes_.push_back(static_cast<std::uint8_t>(byte));
        tokens_.push_back(text.size() == node.depth + 1 ? ids[i] : kNoToken);
        next.push_back({i, end, node.depth + 1});
        ++nodes;
        i = end;
      }
    }
  }
  first_child_.push_back(nodes);
}

}  // namespace forge::text
