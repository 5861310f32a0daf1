#include "tools/run/answer_view.h"

#include <utility>

#include "support/json_text.h"

namespace forge::tools {
namespace {

constexpr std::string_view kDim = "\x1b[2m", kPlain = "\x1b[0m";

}  // namespace

AnswerView::AnswerView(const text::AnswerFormat& format, std::string_view prompt, Output* output, bool dim)
    : parser_(format, no_tools_, prompt), output_(output), dim_(dim) {}

void AnswerView::finish() {
  show(parser_.finish(false));
  begin(Part::kNone);
  if (line_open_) write("\n");
}

void AnswerView::write(std::string_view text) {
  if (text.empty()) return;
  line_open_ = !text.ends_with('\n');
  if (output_ != nullptr) output_->write(text);
}

/// Ends the part that is being written, and begins another one.
void AnswerView::begin(Part part) {
  if (part == part_ && part != Part::kCall) return;
  const Part before = std::exchange(part_, part);
  if (before == Part::kCall) write("}\n");
  if (before == Part::kReasoning) {
    if (line_open_) write("\n");
    write(dim_ ? kPlain : "[end of reasoning]\n");
    line_open_ = false;
  }
  if (part == Part::kReasoning) write(dim_ ? kDim : "[reasoning]\n");
  if (part == Part::kCall && line_open_) write("\n");
}

void AnswerView::show(const std::vector<text::AnswerDelta>& deltas) {
  message_.add(deltas);
  for (const auto& delta : deltas) {
    if (!delta.reasoning.empty()) {
      begin(Part::kReasoning);
      write(delta.reasoning);
    }
    if (!delta.content.empty()) {
      begin(Part::kContent);
      write(delta.content);
    }
    for (const auto& call : delta.calls) {
      if (!call.name.empty()) {
        begin(Part::kCall);
        write("{\"name\": " + json_string(call.name) + ", \"arguments\": ");
      }
      write(call.arguments);
    }
  }
}

}  // namespace forge::tools
