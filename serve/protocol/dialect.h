#pragma once
// How replies are written: OpenAI's completions and chat, and the plain one of /generate. Source: OpenAI's API
// reference.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "serve/generation.h"
#include "text/tokenizer/tokenizer.h"

namespace forge::serve {

/// All that came of a choice.
struct Choice {
  std::string text;
  std::vector<Piece> tokens;  ///< pieces that have one
  engine::FinishReason finish = engine::FinishReason::kNone;
};

struct ReplyHead {
  std::string id, model;
  std::int64_t created = 0;
  bool logprobs = false, include_usage = false;
  const text::Tokenizer* tokenizer = nullptr;
};

/// JSON texts of one reply.
class Dialect {
 public:
  Dialect() = default;
  Dialect(const Dialect&) = delete;
  Dialect& operator=(const Dialect&) = delete;
  virtual ~Dialect() = default;

  [[nodiscard]] virtual std::string whole(std::span<const Choice> choices, const UsageTotals& usage) = 0;
  /// What a stream says before a choice's first piece; empty: nothing.
  [[nodiscard]] virtual std::string first(std::size_t) { return {}; }
  /// Of a piece; empty: there is nothing to say yet.
  [[nodiscard]] virtual std::string chunk(const Piece& piece) = 0;
  /// What a stream says last; empty: nothing.
  [[nodiscard]] virtual std::string last(const UsageTotals&) { return {}; }
  /// Does [DONE] end a stream?
  [[nodiscard]] virtual bool says_done() const { return true; }
};

[[nodiscard]] std::unique_ptr<Dialect> completion_dialect(ReplyHead head);
[[nodiscard]] std::unique_ptr<Dialect> chat_dialect(ReplyHead head);
[[nodiscard]] std::unique_ptr<Dialect> generate_dialect(ReplyHead head);

}  // namespace forge::serve
