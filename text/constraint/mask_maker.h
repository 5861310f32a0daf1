#pragma once
// Which tokens may come next in a state of a constraint's automaton.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "text/constraint/regular_dfa.h"
#include "text/constraint/token_trie.h"

namespace forge::text::constraint {

/// Masks of one pool's states and one vocabulary, kept for states that are alike as far as tokens reach. Not
/// thread-safe. Errors of all members: kMemory (see RegularPool).
class MaskMaker {
 public:
  using Mask = std::vector<std::uint32_t>;

  /// All must outlive this.
  MaskMaker(RegularPool& pool, RegularDfa& dfa, const TokenTrie& trie);

  /// Sets the bits of the tokens that lead to a state with an end, and of end tokens if `state` is one.
  void add(Expr state, std::span<std::uint32_t> mask);
  /// The state after some bytes.
  [[nodiscard]] Expr after(Expr state, std::string_view bytes);
  [[nodiscard]] std::size_t memory_bytes() const;

 private:
  static constexpr std::size_t kCachedBytesMax = std::size_t{32} << 20;  // of all masks kept
  static constexpr std::size_t kProgramsMax = 20'000;
  static constexpr std::uint64_t kInside = TokenTrie::kBands;  // masks_ of strings, in place of a band

  /// Where the words of a choice and the tokens of a tree meet, for any words left.
  struct ChoiceProgram {
    struct Token {
      std::int32_t token;
      std::uint32_t begin, end;  // the words that begin with it
    };
    struct End {
      std::span<const TrieNode> nodes;  // below the end of the word
      std::uint32_t depth, word;
    };
    std::vector<Token> tokens;
    std::vector<End> ends;
  };
  using Place = std::tuple<const TrieNode*, const void*, std::uint32_t, std::uint32_t>;

  void add_part(Expr state, std::span<std::uint32_t> mask);
  void add_bands(Expr state, std::span<std::uint32_t> mask);
  void add_captured(Expr state, std::span<std::uint32_t> mask);
  bool add_string(Expr state, std::span<std::uint32_t> mask);
  template <class Make>
  const Mask& kept(std::uint64_t kind, Expr state, Make make);
  void walk(std::span<const TrieNode> nodes, Expr state, std::span<std::uint32_t> mask);
  template <class Found>
  void walk_from(std::span<const TrieNode> nodes, std::uint32_t depth, Expr state, Found&& found);
  template <class Found>
  void walk_choice(std::span<const TrieNode> nodes, const RegularPool::ChoiceSplit& split, Found&& found);
  const ChoiceProgram& program(std::span<const TrieNode> nodes, const RegularPool::ChoiceState& state);

  RegularPool& pool_;
  RegularDfa& dfa_;
  const TokenTrie& trie_;
  std::vector<Expr> path_;                         // of the walk: the state before each depth
  std::unordered_map<std::uint64_t, Mask> masks_;  // by band and the state within the band's horizon
  std::map<Place, ChoiceProgram> programs_;
};

}  // namespace forge::text::constraint
