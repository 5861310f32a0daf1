#include "loader/tok/detokenizer.h"

#include <algorithm>

#include "loader/tok/unicode.h"

namespace forge::loader {
namespace {

std::string well_formed(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::size_t wrong = 0;
    const std::size_t bytes = tok::well_formed_bytes(text, wrong);
    out += bytes != 0 ? text.substr(0, bytes) : tok::kReplacementText;
    text.remove_prefix(bytes != 0 ? bytes : wrong);
  }
  return out;
}

}  // namespace

std::string Detokenizer::push(std::int32_t id) {
  return push_bytes(tokenizer_->decode_piece(id, special_));
}

std::string Detokenizer::push_bytes(std::string_view bytes) {
  pending_ += bytes;
  const std::size_t whole = tok::complete_utf8_prefix(pending_);
  std::string out = well_formed(std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
  return out;
}

std::string Detokenizer::flush() {
  std::string out = well_formed(pending_);
  pending_.clear();
  return out;
}

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (auto& text : stops) {
    if (text.empty()) continue;
    Stop stop{std::move(text), {}, 0};
    stop.fallback.assign(stop.text.size(), 0);
    for (std::uint32_t i = 1, k = 0; i < stop.text.size(); ++i) {
      while (k > 0 && stop.text[i] != stop.text[k]) k = stop.fallback[k - 1];
      if (stop.text[i] == stop.text[k]) ++k;
      stop.fallback[i] = k;
    }
    stops_.push_back(std::move(stop));
  }
}

std::string StopMatcher::push(std::string_view text) {
  if (found_ || text.empty()) return {};
  if (stops_.empty()) return std::string(text);
  std::size_t hold = 0;
  for (const char c : text) {
    held_ += c;
    hold = 0;
    for (Stop& stop : stops_) {
      while (stop.state > 0 && stop.text[stop.state] != c) stop.state = stop.fallback[stop.state - 1];
      if (stop.text[stop.state] == c) ++stop.state;
      if (stop.state == stop.text.size() && (!found_ || stop.text.size() > found_->size())) found_ = stop.text;
      hold = std::max<std::size_t>(hold, stop.state);
    }
    if (found_) {
      hold = found_->size();
      break;
    }
  }
  std::string out = held_.substr(0, held_.size() - hold);
  held_.erase(0, out.size());
  if (found_) held_.clear();
  return out;
}

std::string StopMatcher::flush() {
  for (Stop& stop : stops_) stop.state = 0;
  return std::exchange(held_, {});
}

}  // namespace forge::loader
