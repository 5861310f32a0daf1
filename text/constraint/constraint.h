#pragma once
// A constraint on generated text while it is generated: which tokens may come next, what must come next, and whether
// the text may end.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/constraint/compile.h"
#include "text/constraint/regular_dfa.h"
#include "text/constraint/token_trie.h"

namespace forge::text::constraint {

/// One sequence's text so far under a regular language. A token is allowed exactly when the text with it is a
/// beginning of some allowed text, and an end token when the text itself is allowed, so a mask never leads into a dead
/// end as long as the vocabulary spells every byte. Movable; not thread-safe.
class Constraint {
 public:
  /// `language` is an expression of `pool`. Errors: kUsage if no text is allowed; kMemory (see RegularPool).
  Constraint(std::shared_ptr<const TokenTrie> trie, std::unique_ptr<RegularPool> pool, Expr language);
  explicit Constraint(const std::shared_ptr<CompiledConstraint>& compiled);

  /// The allowed tokens: [ceil(vocab / 32)] u32, bit t % 32 of word t / 32 for token t, as Sampler::sample takes it.
  /// Valid until the next call. All zero after an end token. Errors: kMemory (see RegularPool).
  [[nodiscard]] std::span<const std::uint32_t> mask();
  /// Appends a token. False, and nothing changes, if it is not allowed.
  bool accept(std::int32_t token);
  /// Takes back the last `tokens` tokens. Precondition: so many were accepted.
  void roll_back(std::size_t tokens);
  [[nodiscard]] std::size_t accepted() const { return states_.size() - 1; }

  [[nodiscard]] bool can_end() const { return dfa_->pool().nullable(states_.back()); }
  /// The bytes that must follow, at most `bytes_max`: up to the first place where the text may end or go on in more
  /// than one way. They may end within a character.
  [[nodiscard]] std::string forced(std::size_t bytes_max = 256);

 private:
  struct Parsed;
  Constraint(std::shared_ptr<const TokenTrie> trie, Parsed parsed);
  using Mask = std::vector<std::uint32_t>;
  static constexpr std::size_t kCachedBytesMax = std::size_t{32} << 20;  // of all masks kept

  const Mask& band_mask(std::size_t band, Expr state);
  void walk(std::span<const TrieNode> nodes, Expr state, Mask& mask);

  std::shared_ptr<const TokenTrie> trie_;
  std::unique_ptr<RegularPool> pool_;
  std::unique_ptr<RegularDfa> dfa_;
  std::vector<Expr> states_;                       // after each token, the start first
  std::vector<Expr> path_;                         // of the walk: the state before each depth
  std::unordered_map<std::uint64_t, Mask> masks_;  // by band and the state within the band's horizon
  Mask mask_;
};

}  // namespace forge::text::constraint
