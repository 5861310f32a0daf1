#pragma once
// A constraint on generated text while it is generated: which tokens may come next, what must come next, and whether
// the text may end.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "text/constraint/compile.h"

namespace forge::text::constraint {

/// One sequence's text so far under a constraint. A token is allowed exactly when the text with it is a beginning of
/// some allowed text, and an end token when the text itself is allowed, so a mask never leads into a dead end as long
/// as the vocabulary spells every byte. Movable; each object is for one thread at a time, the compiled constraint is
/// shared. Errors of all members that compute: kMemory (see RegularPool).
class Constraint {
 public:
  explicit Constraint(std::shared_ptr<CompiledConstraint> compiled);

  /// The allowed tokens: [ceil(vocab / 32)] u32, bit t % 32 of word t / 32 for token t, as Sampler::sample takes it.
  /// Valid until the next call. All zero after an end token.
  [[nodiscard]] std::span<const std::uint32_t> mask();
  /// Appends a token. False, and nothing changes, if it is not allowed.
  bool accept(std::int32_t token);
  /// Takes back the last `tokens` tokens. Precondition: so many were accepted.
  void roll_back(std::size_t tokens);
  [[nodiscard]] std::size_t accepted() const { return tokens_.size(); }

  [[nodiscard]] bool can_end() const { return can_end_.back(); }
  /// The bytes that must follow, at most `bytes_max`: up to the first place where the text may end or go on in more
  /// than one way. They may end within a character.
  [[nodiscard]] std::string forced(std::size_t bytes_max = 256);

 private:
  void locked(const std::function<void()>& work);
  void catch_up();
  [[nodiscard]] Expr after(Expr state, std::int32_t token);
  [[nodiscard]] std::string forced_after(Expr state, std::size_t bytes_max);

  std::shared_ptr<CompiledConstraint> compiled_;
  std::uint64_t generation_ = 0;      // of compiled_, when states_ was made
  std::vector<std::int32_t> tokens_;  // accepted
  std::vector<Expr> states_;          // before and after each token
  std::vector<bool> can_end_;         // in each state
  CompiledConstraint::Mask mask_;
};

}  // namespace forge::text::constraint
