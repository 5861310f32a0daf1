#pragma once
// Constraints given as text, compiled for one vocabulary: a regular expression, a GBNF grammar, or a JSON schema.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "text/constraint/mask_maker.h"
#include "text/constraint/regular_dfa.h"
#include "text/constraint/token_trie.h"

namespace forge::text::constraint {

enum class ConstraintSyntax : std::uint8_t {
  kRegex,
  kGbnf,
  kJsonSchema,
  kCalls,  ///< pieces of tool calls (call_language.h)
};

struct ConstraintSource {
  ConstraintSyntax syntax = ConstraintSyntax::kRegex;
  std::string text;
  friend bool operator==(const ConstraintSource&, const ConstraintSource&) = default;
};

/// A language that a front end made in a pool.
struct Language {
  Expr start = RegularPool::kEmpty;
  std::shared_ptr<void> owner;  ///< of what the pool's calls need
};

/// What one compilation, mask or accepted token may take (RegularPool).
struct ConstraintLimits {
  std::size_t bytes = RegularPool::kBytesMax;
  std::uint64_t steps = RegularPool::kWorkMax;
};

/// What a source compiles to, for one vocabulary. Shared by all sequences with the same source, because the automaton
/// and the masks are kept in it. Thread-safe: Constraint locks it.
class CompiledConstraint {
 public:
  using Mask = MaskMaker::Mask;

  CompiledConstraint(ConstraintSource source, std::shared_ptr<const TokenTrie> trie, const ConstraintLimits& limits);

  [[nodiscard]] const ConstraintSource& source() const { return source_; }
  [[nodiscard]] const TokenTrie& trie() const { return *trie_; }
  /// As of the last finished use. Does not wait for one.
  [[nodiscard]] std::size_t memory_bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  friend class Constraint;
  static constexpr std::size_t kPoolBytesMax = std::size_t{32} << 20;  // then the pool is made again

  void build();
  void measure() { bytes_.store(pool_->memory_bytes() + masks_->memory_bytes(), std::memory_order_relaxed); }
  [[nodiscard]] bool must_build() const {
    return !built_ || pool_->is_spent() || pool_->memory_bytes() > kPoolBytesMax;
  }

  ConstraintSource source_;
  std::shared_ptr<const TokenTrie> trie_;
  ConstraintLimits limits_;
  std::mutex mutex_;
  std::uint64_t generation_ = 0;  // counts build(): expressions of an earlier one are no longer valid
  bool built_ = false;            // the last build() came to its end
  std::unique_ptr<RegularPool> pool_;
  std::unique_ptr<RegularDfa> dfa_;
  Language language_;
  std::unique_ptr<MaskMaker> masks_;
  std::atomic<std::size_t> bytes_{0};
};

/// Errors: kUsage, one line that names the keyword and its path (schema) or the place (regex, GBNF), also if no text is
/// allowed; kMemory if the automaton takes too much.
[[nodiscard]] std::shared_ptr<CompiledConstraint> compile(const ConstraintSource& source,
                                                          std::shared_ptr<const TokenTrie> trie,
                                                          const ConstraintLimits& limits = {});

}  // namespace forge::text::constraint
