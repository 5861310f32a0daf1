#include "text/tokenizer/detokenizer.h"

#include <algorithm>

#include "text/tokenizer/unicode.h"

namespace forge::text {
namespace {

/// Replaces each ill-formed sequence by U+FFFD.
std::string well_formed(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::size_t ill_formed = 0;
    const std::size_t bytes = well_formed_bytes(text, ill_formed);
    out += bytes != 0 ? text.substr(0, bytes) : kReplacementText;
    text.remove_prefix(bytes != 0 ? bytes : ill_formed);
  }
  return out;
}

}  // namespace

std::string Detokenizer::push(std::int32_t id) {
  return push_bytes(tokenizer_->decode_piece(id, special_));
}

std::string Detokenizer::push_bytes(std::string_view bytes) {
  pending_ += bytes;
  const std::size_t whole = complete_utf8_prefix(pending_);
  std::string out = well_formed(std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
  return out;
}

std::string Detokenizer::flush() {
  std::string out = well_formed(pending_);
  pending_.clear();
  return out;
}

StopStrings::StopStrings(std::vector<std::string> stops) {
  for (auto& text : stops) {
    if (text.empty()) continue;
    Stop stop{std::move(text), {}};
    stop.fallback.assign(stop.text.size(), 0);
    for (std::uint32_t i = 1, k = 0; i < stop.text.size(); ++i) {
      while (k > 0 && stop.text[i] != stop.text[k]) k = stop.fallback[k - 1];
      if (stop.text[i] == stop.text[k]) ++k;
      stop.fallback[i] = k;
    }
    stops_.push_back(std::move(stop));
  }
}

StopMatcher::StopMatcher(std::vector<std::string> stops)
    : StopMatcher(std::make_shared<const StopStrings>(std::move(stops))) {}

StopMatcher::StopMatcher(std::shared_ptr<const StopStrings> stops)
    : stops_(std::move(stops)), states_(stops_->stops_.size()) {}

std::string StopMatcher::push(std::string_view text) {
  if (found_ != nullptr || text.empty()) return {};
  if (states_.empty()) return std::string(text);
  std::size_t hold = 0;
  // One automaton for each stop string, all fed byte by byte. The longest partial match decides how much is held back.
  for (const char c : text) {
    held_ += c;
    hold = 0;
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const auto& stop = stops_->stops_[i];
      auto& state = states_[i];
      while (state > 0 && stop.text[state] != c) state = stop.fallback[state - 1];
      if (stop.text[state] == c) ++state;
      if (state == stop.text.size() && (found_ == nullptr || stop.text.size() > found_->size())) found_ = &stop.text;
      hold = std::max<std::size_t>(hold, state);
    }
    if (found_ != nullptr) {
      hold = found_->size();
      break;
    }
  }
  std::string out = held_.substr(0, held_.size() - hold);
  held_.erase(0, out.size());
  if (found_ != nullptr) held_.clear();
  return out;
}

std::string StopMatcher::flush() {
  std::ranges::fill(states_, 0);
  return std::exchange(held_, {});
}

}  // namespace forge::text
