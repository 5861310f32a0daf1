#pragma once
// Prints generated tokens as text. Text is held back while it may be part of a stop string or an incomplete UTF-8
// character.

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
  /// `tokenizer` null: tokens have no text. `output` null: text is collected but not printed. Both must outlive this.
  TextStream(const text::Tokenizer* tokenizer, std::vector<std::string> stops, Output* output);

  /// Adds a token. Returns why the generation should end: a stop string is complete (kStop), or the reader of stdout
  /// has gone (kReaderGone); else nullopt.
  std::optional<session::Finish> push(std::int32_t id);
  /// Prints what was held back. Afterwards push() must not be called.
  void flush();
  /// Prints a newline if the text does not end with one.
  void end_line();
  /// The whole text so far, without a stop string.
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void emit(const std::string& text);

  std::optional<text::Detokenizer> detokenizer_;
  text::StopMatcher stops_;
  Output* output_;
  std::string text_;
};

}  // namespace forge::tools
