#include "text/constraint/token_trie.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "support/error.h"
#include "support/json_text.h"

namespace forge::text::constraint {
namespace {

std::vector<std::string> texts_of(const Tokenizer& tokenizer, std::span<const std::int32_t> shown) {
  std::vector<std::string> texts(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    if (!tokenizer.is_control(id)) texts[i] = tokenizer.decode_piece(id);
  }
  for (const auto id : shown) texts.at(static_cast<std::size_t>(id)) = tokenizer.decode_piece(id, true);
  return texts;
}

bool is_plain_text(std::string_view bytes) {
  return is_utf8(bytes) && std::ranges::all_of(bytes, [](char c) {
           return static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\' && c != 0x7F;
         });
}

/// Where the next bytes of `tokens`, sorted, become a tree in preorder.
class Layout {
 public:
  explicit Layout(std::vector<TrieNode>& nodes) : nodes_(nodes) {}

  void add(std::string_view text, std::int32_t token) {
    std::size_t common = 0;
    while (common < text.size() && common < last_.size() && text[common] == last_[common]) ++common;
    close(common);
    for (auto i = common; i < text.size(); ++i) {
      open_.push_back(nodes_.size());
      nodes_.push_back({.depth = static_cast<std::uint16_t>(i), .byte = static_cast<std::uint8_t>(text[i])});
    }
    nodes_.back().token = token;
    last_ = text;
  }
  void close(std::size_t depth) {
    for (; open_.size() > depth; open_.pop_back())
      nodes_[open_.back()].nodes = static_cast<std::uint32_t>(nodes_.size() - open_.back());
  }

 private:
  std::vector<TrieNode>& nodes_;
  std::vector<std::size_t> open_;
  std::string_view last_;
};

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer, std::span<const std::int32_t> shown)
    : TokenTrie(texts_of(tokenizer, shown), tokenizer.end_of_generation()) {}

TokenTrie::TokenTrie(std::vector<std::string> tokens, std::vector<std::int32_t> end_tokens)
    : tokens_(std::move(tokens)), end_tokens_(std::move(end_tokens)) {
  std::ranges::sort(end_tokens_);
  for (const auto id : end_tokens_) {
    invariant(id >= 0 && static_cast<std::size_t>(id) < vocab(), "TXT-002", "an end token in the vocabulary");
    tokens_[static_cast<std::size_t>(id)].clear();
  }
  build();
}

void TokenTrie::build() {
  std::vector<std::int32_t> order;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].size() > kBandBytes.back()) tokens_[i].clear();  // never generated under a constraint
    if (!tokens_[i].empty()) order.push_back(static_cast<std::int32_t>(i));
  }
  const auto text = [&](std::int32_t id) { return std::string_view(tokens_[static_cast<std::size_t>(id)]); };
  std::ranges::stable_sort(order, {}, text);
  std::vector<Layout> layouts;
  for (auto& nodes : bands_) layouts.emplace_back(nodes);
  for (auto& mask : text_masks_) mask.resize(mask_words());
  std::int32_t before = -1;
  std::vector<std::int32_t> different;
  for (const auto id : order) {
    const auto bytes = text(id);
    if (before >= 0 && text(before) == bytes) {
      same_.push_back({before, id});
      continue;
    }
    before = id;
    different.push_back(id);
    std::size_t band = 0;
    while (bytes.size() > kBandBytes.at(band)) ++band;
    const auto kind = is_plain_text(bytes) ? Kind::kText : Kind::kOther;
    if (kind == Kind::kText) allow(text_masks_.at(band), static_cast<std::size_t>(id));
    layouts[band * kKinds + static_cast<std::size_t>(kind)].add(bytes, id);
    longest_.at(band) = std::max(longest_.at(band), static_cast<std::uint32_t>(bytes.size()));
  }
  for (auto& layout : layouts) layout.close(0);
  build_strings(different);
}

/// `order`: the tokens, ascending by their bytes.
void TokenTrie::build_strings(std::span<const std::int32_t> order) {
  auto& all = strings_;
  Layout inside(all.inside), escaped(all.escaped), rests(all.rests);
  std::map<std::string_view, std::vector<Quoted>> by_rest{{{}, {}}};
  for (auto& mask : all.texts_to) mask.resize(mask_words());
  const auto characters = [](std::string_view text) {
    return static_cast<std::uint32_t>(
        std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80; }));
  };
  for (const auto id : order) {
    const std::string_view bytes = tokens_[static_cast<std::size_t>(id)];
    all.longest = std::max(all.longest, static_cast<std::uint32_t>(bytes.size()));
    const auto quote = bytes.find('"');
    if (quote == std::string_view::npos) {
      if (is_plain_text(bytes)) {
        all.texts.push_back({characters(bytes), id});
        const auto from = std::min<std::size_t>(all.texts.back().characters, all.texts_to.size() - 1);
        allow(all.texts_to.at(from), static_cast<std::size_t>(id));
      } else {
        inside.add(bytes, id);
      }
    } else if (is_plain_text(bytes.substr(0, quote))) {
      by_rest[bytes.substr(quote + 1)].push_back({characters(bytes.substr(0, quote)), id});
    } else {
      escaped.add(bytes, id);
    }
  }
  std::ranges::stable_sort(all.texts, {}, &Quoted::characters);
  for (std::size_t i = 1; i < all.texts_to.size(); ++i)
    for (std::size_t word = 0; word < mask_words(); ++word) all.texts_to.at(i)[word] |= all.texts_to.at(i - 1)[word];
  for (auto& [rest, tokens] : by_rest) {
    std::ranges::stable_sort(tokens, {}, &Quoted::characters);
    if (!rest.empty()) rests.add(rest, static_cast<std::int32_t>(all.quoted.size()));
    all.quoted.push_back(std::move(tokens));
  }
  for (auto* layout : {&inside, &escaped, &rests}) layout->close(0);
}

bool TokenTrie::is_end(std::int32_t token) const {
  return std::ranges::binary_search(end_tokens_, token);
}

void TokenTrie::add_same(std::span<std::uint32_t> mask) const {
  for (const auto& [in_tree, other] : same_) {
    if (allows(mask, static_cast<std::size_t>(in_tree))) allow(mask, static_cast<std::size_t>(other));
  }
}

std::vector<std::int32_t> TokenTrie::spelled(std::string_view text) const {
  std::vector<std::int32_t> ids;
  while (!text.empty()) {
    std::int32_t best = -1;
    std::size_t length = 0;
    for (const auto& nodes : bands_) {
      std::size_t at = 0;
      while (at < nodes.size() && nodes[at].depth < text.size()) {
        const auto& node = nodes[at];
        if (node.byte != static_cast<std::uint8_t>(text[node.depth])) {
          // The next sibling, unless the parent's subtree ends here.
          const auto next = at + node.nodes;
          if (next >= nodes.size() || nodes[next].depth != node.depth) break;
          at = next;
          continue;
        }
        if (node.token >= 0 && node.depth + 1U > length) {
          best = node.token;
          length = node.depth + 1U;
        }
        if (node.nodes == 1) break;
        ++at;
      }
    }
    if (best < 0) return {};
    ids.push_back(best);
    text.remove_prefix(length);
  }
  return ids;
}

std::vector<std::int32_t> TokenTrie::spelled_by(const Tokenizer& tokenizer, std::string_view text,
                                                bool parse_special) const {
  auto ids = tokenizer.encode(text, {.parse_special = parse_special});
  std::string back;
  for (const auto id : ids) back += bytes(id);
  return back == text ? ids : spelled(text);
}

}  // namespace forge::text::constraint
