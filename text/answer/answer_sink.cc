#include "text/answer/answer_sink.h"
#include "text/answer/white_space.h"

#include <utility>

namespace forge::text {
namespace {

/// Appends `text` to `out` without white space at its end, which goes to `held`; what was held comes first. Returns
/// true if anything but white space was there. Leading white space is dropped unless `started`.
bool append(std::string& out, std::string& held, std::string_view text, bool started) {
  if (!started) text.remove_prefix(std::min(text.find_first_not_of(kWhiteSpace), text.size()));
  const std::size_t end = text.find_last_not_of(kWhiteSpace);
  if (end == std::string_view::npos) {
    held += text;
    return false;
  }
  out += std::exchange(held, {});
  out += text.substr(0, end + 1);
  held = text.substr(end + 1);
  return true;
}

}  // namespace

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kToolCalls:
      return "tool_calls";
    case FinishReason::kLength:
      return "length";
  }
  return "";
}

void AnswerMessage::add(const std::vector<AnswerDelta>& deltas) {
  for (const auto& delta : deltas) {
    content += delta.content;
    reasoning += delta.reasoning;
    for (const auto& piece : delta.calls) {
      if (piece.index >= calls.size()) calls.resize(piece.index + 1);
      auto& call = calls[piece.index];
      call.index = piece.index;
      if (!piece.id.empty()) call.id = piece.id;
      call.name += piece.name;
      call.arguments += piece.arguments;
    }
    if (delta.finish != FinishReason::kNone) finish = delta.finish;
  }
}

AnswerDelta& AnswerSink::last() {
  if (deltas_.empty()) deltas_.emplace_back();
  return deltas_.back();
}

CallDelta& AnswerSink::last_call() {
  auto& calls = last().calls;
  if (calls.empty() || calls.back().index + 1 != calls_)
    calls.push_back({.index = calls_ - 1, .id = {}, .name = {}, .arguments = {}});
  return calls.back();
}

void AnswerSink::content(std::string_view text) {
  if (text.empty()) return;
  if (!deltas_.empty() && !deltas_.back().calls.empty()) deltas_.emplace_back();
  if (append(last().content, content_space_, text, has_content_ || verbatim_)) has_content_ = true;
}

void AnswerSink::reasoning(std::string_view text) {
  if (text.empty()) return;
  if (append(last().reasoning, reasoning_space_, text, has_reasoning_)) has_reasoning_ = true;
}

void AnswerSink::call(std::string_view name, std::string_view id) {
  content_space_.clear();
  ++calls_;
  CallDelta& call = last_call();
  call.name = name;
  call.id = id;
}

void AnswerSink::id(std::string_view id) {
  if (calls_ > 0) last_call().id = id;
}

void AnswerSink::arguments(std::string_view text) {
  if (calls_ > 0 && !text.empty()) last_call().arguments += text;
}

void AnswerSink::finish(bool cut) {
  if (calls_ == 0 && (has_content_ || verbatim_) && !content_space_.empty())
    last().content += std::exchange(content_space_, {});
  last().finish = cut ? FinishReason::kLength : calls_ > 0 ? FinishReason::kToolCalls : FinishReason::kStop;
}

std::vector<AnswerDelta> AnswerSink::take() {
  std::vector<AnswerDelta> out;
  for (auto& delta : std::exchange(deltas_, {})) {
    if (!delta.content.empty() || !delta.reasoning.empty() || !delta.calls.empty() ||
        delta.finish != FinishReason::kNone)
      out.push_back(std::move(delta));
  }
  return out;
}

}  // namespace forge::text
