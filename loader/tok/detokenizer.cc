#include "loader/tok/detokenizer.h"

#include <algorithm>

#include "loader/tok/unicode.h"

namespace forge::loader {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Bytes of the well-formed character at the start of `text`, or 0; then `wrong` is how many bytes one U+FFFD stands
/// for (the longest beginning of a character, at least one byte: Unicode 15, section 3.9, practice for replacement).
std::size_t character_bytes(std::string_view text, std::size_t& wrong) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  wrong = 1;
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const std::size_t bytes = tok::sequence_bytes(text[0]);
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < bytes; ++i) {
    if (i >= text.size() || byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xBF)) return 0;
    ++wrong;
  }
  return bytes;
}

std::string well_formed(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::size_t wrong = 0;
    const std::size_t bytes = character_bytes(text, wrong);
    out += bytes != 0 ? text.substr(0, bytes) : kReplacement;
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
  if (found_) return {};
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
