#pragma once
// Generated tokens as text on stdout, as soon as it is certain.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "session/generate.h"
#include "support/os/console.h"
#include "text/tokenizer/detokenizer.h"

namespace forge::tools {

class TextStream {
 public:
  /// `tokenizer` null: there is no text. `output` null: text is kept and not written. Both outlive this.
  TextStream(const text::Tokenizer* tokenizer, std::vector<std::string> stops, Output* output);

  /// A reason to end: a stop string is complete, or nobody reads any more.
  std::optional<session::Finish> push(std::int32_t id);
  /// What was held back. Afterwards nothing may be pushed.
  void flush();
  /// Ends a line that text has begun.
  void end_line();
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void emit(const std::string& text);

  std::optional<text::Detokenizer> detokenizer_;
  text::StopMatcher stops_;
  Output* output_;
  std::string text_;
};

}  // namespace forge::tools
