#pragma once
// What a parsed answer gives a client, piece by piece.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace forge::text {

enum class FinishReason : std::uint8_t { kNone, kStop, kToolCalls, kLength };

/// "stop", "tool_calls" or "length"; empty for kNone.
[[nodiscard]] std::string_view to_string(FinishReason reason);

/// A piece of a tool call. The first piece of a call has its name; `arguments` of all pieces joined is the text of one
/// JSON object, or, if the model's text is malformed, that text.
struct CallDelta {
  std::size_t index = 0;
  std::string id, name, arguments;
};

/// A piece of an answer. Pieces joined in order are the whole message.
struct AnswerDelta {
  std::string content, reasoning;
  std::vector<CallDelta> calls;  ///< come after the piece's content
  FinishReason finish = FinishReason::kNone;
};

/// A whole answer, or what has come of it.
struct AnswerMessage {
  std::string content, reasoning;
  std::vector<CallDelta> calls;
  FinishReason finish = FinishReason::kNone;

  /// Adds the next pieces.
  void add(const std::vector<AnswerDelta>& deltas);
};

}  // namespace forge::text
