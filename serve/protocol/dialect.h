#pragma once
// Writers of reply JSON: OpenAI's completions and chat forms (source: OpenAI's API reference), and forge's own form of
// /generate.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "serve/generation.h"
#include "text/tokenizer/tokenizer.h"

namespace forge::serve {

/// A complete choice.
struct Choice {
  std::string text;
  text::AnswerMessage answer;  ///< of a chat
  std::vector<Piece> tokens;   ///< its pieces that have a token
  engine::FinishReason finish = engine::FinishReason::kNone;
};

struct ReplyHead {
  std::string id, model;
  std::int64_t created = 0;
  bool logprobs = false, include_usage = false;
  bool reasoning = true;  ///< whether a chat's reasoning is sent
  const text::Tokenizer* tokenizer = nullptr;
};

/// Writes the JSON of one reply: either whole(), or for a stream first() per choice, chunks() per piece, and last().
class Dialect {
 public:
  Dialect() = default;
  Dialect(const Dialect&) = delete;
  Dialect& operator=(const Dialect&) = delete;
  virtual ~Dialect() = default;

  [[nodiscard]] virtual std::string whole(std::span<const Choice> choices, const UsageTotals& usage) = 0;
  /// The event before a choice's first piece; empty: none.
  [[nodiscard]] virtual std::string first(std::size_t) { return {}; }
  /// The events of a piece, not empty; none if its text is still held back.
  [[nodiscard]] virtual std::vector<std::string> chunks(const Piece& piece) = 0;
  /// The stream's last event, with the usage; empty: none.
  [[nodiscard]] virtual std::string last(const UsageTotals&) { return {}; }
  /// True if the stream ends with "data: [DONE]".
  [[nodiscard]] virtual bool says_done() const { return true; }
};

[[nodiscard]] std::unique_ptr<Dialect> completion_dialect(ReplyHead head);
[[nodiscard]] std::unique_ptr<Dialect> chat_dialect(ReplyHead head);
[[nodiscard]] std::unique_ptr<Dialect> generate_dialect(ReplyHead head);

}  // namespace forge::serve
