#include "tools/run/text_stream.h"

#include <algorithm>

namespace forge::tools {

TextStream::TextStream(const text::Tokenizer* tokenizer, std::vector<std::string> stops, Output* output)
    : tokenizer_(tokenizer), stops_(std::move(stops)), output_(output) {
  if (tokenizer != nullptr) detokenizer_.emplace(*tokenizer);
}

std::optional<session::Finish> TextStream::push(std::int32_t id) {
  const bool shown = std::ranges::binary_search(shown_, id);
  if (detokenizer_)
    emit(stops_.push(shown ? detokenizer_->push_bytes(tokenizer_->decode_piece(id, true)) : detokenizer_->push(id)));
  if (stops_.matched()) return session::Finish::kStop;
  if (output_ != nullptr && output_->closed()) return session::Finish::kReaderGone;
  return std::nullopt;
}

void TextStream::flush() {
  if (detokenizer_) emit(stops_.push(detokenizer_->flush()));
  emit(stops_.flush());
}

void TextStream::end_line() {
  if (output_ != nullptr && !text_.empty() && !text_.ends_with('\n')) output_->write("\n");
}

void TextStream::emit(const std::string& text) {
  text_ += text;
  if (view_ != nullptr)
    view_->push(text);
  else if (output_ != nullptr && !text.empty())
    output_->write(text);
}

}  // namespace forge::tools
