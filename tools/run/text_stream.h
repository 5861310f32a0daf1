#pragma once
// Prints generated tokens as text. Text is held back while it may be part of a stop string or an incomplete UTF-8
// character.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "session/generate.h"
#include "support/os/console.h"
#include "text/tokenizer/detokenizer.h"
#include "tools/run/answer_view.h"

namespace forge::tools {

class TextStream {
 public:
  /// `tokenizer` null: tokens have no text. `output` null: text is collected but not printed. Both must outlive this.
  TextStream(const text::Tokenizer* tokenizer, std::vector<std::string> stops, Output* output);

  /// Gives the text to `view` instead of printing it. `shown`: control tokens whose spelling is part of the text; both
  /// must outlive this.
  void show_by(AnswerView& view, std::span<const std::int32_t> shown) {
    view_ = &view;
    shown_ = shown;
  }

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

  const text::Tokenizer* tokenizer_;
  std::optional<text::Detokenizer> detokenizer_;
  AnswerView* view_ = nullptr;
  std::span<const std::int32_t> shown_;
  text::StopMatcher stops_;
  Output* output_;
  std::string text_;
};

}  // namespace forge::tools
