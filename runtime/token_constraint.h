#pragma once
// What may be generated next in one sequence. The runtime declares it; session/ makes it of text/constraint, so the
// engine knows tokens and masks but no text.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace forge::runtime {

/// The constraint of one sequence and its state. Used by one thread at a time; the engine computes masks on a thread of
/// its own while the step that they are for runs.
class TokenConstraint {
 public:
  TokenConstraint() = default;
  TokenConstraint(const TokenConstraint&) = delete;
  TokenConstraint& operator=(const TokenConstraint&) = delete;
  virtual ~TokenConstraint() = default;

  /// The tokens that may come next: [ceil(vocab / 32)] u32, bit t % 32 of word t / 32 for token t; empty if every token
  /// may. Valid until the next call. Errors: Error(kMemory).
  [[nodiscard]] virtual std::span<const std::uint32_t> mask() = 0;
  /// Appends a generated token. False, and nothing changes, if it is not allowed. Errors: Error(kMemory).
  [[nodiscard]] virtual bool accept(std::int32_t token) = 0;
  /// Takes back the last `tokens` tokens. Precondition: so many were accepted.
  virtual void roll_back(std::size_t tokens) = 0;
  /// At most `tokens_max` tokens that must follow, as the model would spell them; none where it has a choice. They are
  /// not accepted yet. Errors: Error(kMemory).
  [[nodiscard]] virtual std::vector<std::int32_t> forced(std::size_t tokens_max) = 0;
  /// True if nothing may follow but the end. Errors: Error(kMemory).
  [[nodiscard]] virtual bool ended() = 0;
};

}  // namespace forge::runtime
