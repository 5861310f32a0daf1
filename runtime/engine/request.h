#pragma once
// What a request is to the scheduler, and how it ends: plain values, shared by all parts of the engine.

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace forge::engine {

/// Since any moment that stays the same; whoever drives the engine has the clock.
using Time = std::chrono::nanoseconds;
inline constexpr Time kNever = Time::max();

using RequestId = std::uint64_t;  ///< in the order of submission, from 1

/// One of a request's samples. In order of age: earlier requests, then lower samples.
struct SequenceKey {
  RequestId request = 0;
  std::uint32_t sample = 0;
  friend auto operator<=>(const SequenceKey&, const SequenceKey&) = default;
};

inline constexpr int kPriorityMax = 16;  ///< of either sign
inline constexpr std::size_t kSamplesMax = 128;

enum class FinishReason : std::uint8_t { kNone, kStop, kLength, kCancelled, kDeadline, kError };
/// "stop", "length", "cancelled", "deadline", "error".
[[nodiscard]] std::string_view finish_reason_name(FinishReason reason);

/// What a request wants of the model.
enum class Wants : std::uint8_t {
  kTokens,   ///< that follow its prompt
  kLastRow,  ///< the final norm's row of the prompt's last token, as an embedding
  kMeanRow,  ///< the mean of those of all its tokens: all are fed then, whatever the pool has
};

/// What the scheduler must know of a request.
struct RequestSpec {
  std::span<const std::int32_t> prompt;  ///< read during the call only
  std::size_t max_tokens = 0;            ///< of each sample, at least 1; with other wants than tokens 0
  std::size_t samples = 1;               ///< that share the prompt's blocks
  int priority = 0;                      ///< larger goes first
  Time deadline = kNever;                ///< when it is given up
  Wants wants = Wants::kTokens;          ///< rows: of one sample
  std::uint64_t extra_hash = 0;          ///< Request's
};

enum class RefusalKind : std::uint8_t {
  kInvalid,    ///< no prompt, no tokens wanted, a priority or count out of range
  kTooLong,    ///< prompt and tokens do not fit the context
  kNoRoom,     ///< they would never fit the KV pool or a step
  kQueueFull,  ///< try again later
  kUnhealthy,  ///< the device does not work, or the engine is being shut down
};

/// Why a request was not taken, with the numbers.
struct Refusal {
  RefusalKind kind = RefusalKind::kInvalid;
  std::size_t asked = 0, limit = 0;
  std::string message;
  [[nodiscard]] bool recoverable() const { return kind >= RefusalKind::kQueueFull; }
};

}  // namespace forge::engine
