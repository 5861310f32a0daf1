#pragma once
// The scheduler's view of a request: its specification, how it can be refused and how it ends. Plain values, shared by
// all parts of the engine.

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace forge::engine {

/// Nanoseconds since an arbitrary fixed moment. The engine's caller supplies the clock.
using Time = std::chrono::nanoseconds;
inline constexpr Time kNever = Time::max();

using RequestId = std::uint64_t;  ///< numbered in the order of submission, from 1

/// One sample of a request. Ordered by age: earlier requests first, then lower sample numbers.
struct SequenceKey {
  RequestId request = 0;
  std::uint32_t sample = 0;
  friend auto operator<=>(const SequenceKey&, const SequenceKey&) = default;
};

inline constexpr int kPriorityMax = 16;  ///< priorities range from -kPriorityMax to kPriorityMax
inline constexpr std::size_t kSamplesMax = 128;

/// How a sample ended; kNone while it runs.
enum class FinishReason : std::uint8_t { kNone, kStop, kLength, kCancelled, kDeadline, kError };
/// "stop", "length", "cancelled", "deadline", "error".
[[nodiscard]] std::string_view finish_reason_name(FinishReason reason);

/// Output that a request wants.
enum class OutputKind : std::uint8_t {
  kTokens,    ///< generated tokens
  kLastRow,   ///< the final norm's row of the last prompt token (embedding)
  kMeanRow,   ///< mean of the final norm's rows of all prompt tokens (embedding); disables prefix reuse
  kFirstRow,  ///< the final norm's row of the first prompt token (embedding, CLS); disables prefix reuse
};

/// A request as the scheduler needs it.
struct RequestSpec {
  std::span<const std::int32_t> prompt;    ///< read during the call only
  std::size_t max_tokens = 0;              ///< per sample, at least 1; 0 for embeddings
  std::size_t samples = 1;                 ///< sequences that share the prompt's blocks
  int priority = 0;                        ///< higher runs first
  Time deadline = kNever;                  ///< time at which the request is ended
  OutputKind wants = OutputKind::kTokens;  ///< embeddings: one sample only
  std::uint64_t extra_hash = 0;            ///< see Request::extra_hash
};

/// Kinds of refusals; from kQueueFull on, trying again later can succeed.
enum class RefusalKind : std::uint8_t {
  kInvalid,    ///< empty prompt, no output wanted, or a number out of range
  kTooLong,    ///< prompt and tokens exceed the context
  kNoRoom,     ///< would never fit into the KV pool or a step
  kInternal,   ///< a bug of forge, or of a constraint
  kQueueFull,  ///< try again later
  kUnhealthy,  ///< the device is failing, or the engine is shutting down
};

/// Why a request was refused, with the requested and the allowed number.
struct Refusal {
  RefusalKind kind = RefusalKind::kInvalid;
  std::size_t asked = 0, limit = 0;
  std::string message;
  [[nodiscard]] bool recoverable() const { return kind >= RefusalKind::kQueueFull; }
};

}  // namespace forge::engine
