#include "serve/answer_reader.h"

#include <algorithm>
#include <random>
#include <utility>

namespace forge::serve {

std::string new_call_id() {
  constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  constexpr std::size_t kLength = 24;
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::string id = "call_";
  for (std::size_t i = 0; i < kLength; ++i) id += kLetters[random() % kLetters.size()];
  return id;
}

AnswerReader::AnswerReader(std::shared_ptr<const AnswerRules> rules)
    : rules_(std::move(rules)), parser_(rules_->format, rules_->tools, rules_->prompt) {}

bool AnswerReader::shows(std::int32_t token) const {
  return rules_->shown != nullptr && std::ranges::binary_search(*rules_->shown, token);
}

std::vector<text::AnswerDelta> AnswerReader::feed(std::string_view text) {
  return settled(parser_.feed(text));
}

std::vector<text::AnswerDelta> AnswerReader::finish(bool cut) {
  return settled(parser_.finish(cut));
}

std::vector<text::AnswerDelta> AnswerReader::settled(std::vector<text::AnswerDelta> deltas) const {
  for (auto& delta : deltas) {
    // The token that ends the first call may begin another one.
    if (rules_->one_call) std::erase_if(delta.calls, [](const text::CallDelta& call) { return call.index > 0; });
    for (auto& call : delta.calls)
      if (!call.name.empty() && call.id.empty()) call.id = new_call_id();
  }
  return deltas;
}

}  // namespace forge::serve
