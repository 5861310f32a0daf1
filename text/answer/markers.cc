#include "text/answer/markers.h"

#include <algorithm>
#include <utility>

namespace forge::text {
namespace {

constexpr std::size_t kMarkerBytesMax = 64;

/// Whether text[i] may be inside the marker that text[0] opens: in angle or in square brackets. In these a capital or
/// '/' is first, so that the beginning tells a marker from a list.
bool is_inside(std::string_view text, std::size_t i) {
  const char c = text[i];
  if (text[0] == '[') return (c >= 'A' && c <= 'Z') || c == '/' || (c == '_' && i > 1);
  return static_cast<unsigned char>(c) > 0x20 && std::string_view("<>\"'=(){}[],;\\").find(c) == std::string_view::npos;
}

}  // namespace

std::size_t begun_marker(std::string_view text, std::string_view marker) {
  for (std::size_t size = std::min(text.size(), marker.size() - 1); size > 0; --size)
    if (marker.starts_with(text.substr(text.size() - size))) return size;
  return 0;
}

std::size_t marker_size(std::string_view text) {
  if (text.size() < 3 || (text[0] != '<' && text[0] != '[')) return 0;
  const char end = text[0] == '<' ? '>' : ']';
  for (std::size_t i = 1; i < std::min(text.size(), kMarkerBytesMax); ++i) {
    if (text[i] == end) return i > 1 ? i + 1 : 0;
    if (!is_inside(text, i)) return 0;
  }
  return 0;
}

bool may_become_marker(std::string_view text) {
  if (text.empty() || (text[0] != '<' && text[0] != '[') || text.size() >= kMarkerBytesMax) return false;
  for (std::size_t i = 1; i < text.size(); ++i)
    if (!is_inside(text, i)) return false;
  return true;
}

std::string word_of(std::string_view marker) {
  std::string word;
  for (const char c : marker) {
    if (c >= 'a' && c <= 'z') word += c;
    if (c >= 'A' && c <= 'Z') word += static_cast<char>(c - 'A' + 'a');
  }
  return word;
}

std::vector<std::string> markers_in(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t size = text[i] == '<' || text[i] == '[' ? marker_size(text.substr(i)) : 0;
    if (size > 0 && std::ranges::find(out, text.substr(i, size)) == out.end()) out.emplace_back(text.substr(i, size));
    i += std::max<std::size_t>(size, 1);
  }
  return out;
}

bool is_closing(std::string_view marker) {
  if (marker.starts_with("</") || marker.starts_with("[/") || marker.starts_with("<|/")) return true;
  if (marker.ends_with("|>") && !marker.starts_with("<|")) return true;  // <tool_call|>
  const std::string word = word_of(marker);
  return word.starts_with("end") || word.ends_with("end") || word.ends_with("suffix") || word.ends_with("stop");
}

std::string closing_of(std::string_view marker, std::span<const std::string> known) {
  std::vector<std::string> candidates;
  const auto replaced = [&](std::string_view from, std::string_view to) {
    std::string out(marker);
    if (const std::size_t at = out.find(from); at != std::string::npos) {
      out.replace(at, from.size(), to);
      candidates.push_back(std::move(out));
    }
  };
  for (const auto& [from, to] : {std::pair<std::string_view, std::string_view>{"START", "END"},
                                 {"start", "end"},
                                 {"begin", "end"},
                                 {"prefix", "suffix"}})
    replaced(from, to);
  if (!candidates.empty()) return candidates.front();
  const std::string body(marker.substr(1));
  candidates.push_back(std::string(1, marker[0]) + '/' + body);
  if (marker.starts_with("<|")) candidates.push_back("<|/" + std::string(marker.substr(2)));
  if (marker.starts_with("<|") && !marker.ends_with("|>"))
    candidates.push_back("<" + std::string(marker.substr(2, marker.size() - 3)) + "|>");
  for (const auto& candidate : candidates)
    if (std::ranges::find(known, candidate) != known.end()) return candidate;
  return marker.starts_with("<|") ? std::string() : candidates.front();
}

MarkerSet::MarkerSet(std::vector<std::string> markers) : markers_(std::move(markers)) {
  for (const auto& marker : markers_)
    if (first_bytes_.find(marker[0]) == std::string::npos) first_bytes_ += marker[0];
}

MarkerSet::Found MarkerSet::find(std::string_view text, bool end) const {
  if (first_bytes_.empty()) return {.at = text.size()};
  for (std::size_t at = text.find_first_of(first_bytes_); at != std::string_view::npos;
       at = text.find_first_of(first_bytes_, at + 1)) {
    const std::string_view rest = text.substr(at);
    Found found{.at = at};
    bool begun = false;
    for (std::size_t i = 0; i < markers_.size(); ++i) {
      const std::string& marker = markers_[i];
      if (rest.starts_with(marker)) {
        if (marker.size() > found.size) found = {.at = at, .size = marker.size(), .which = i};
      } else if (!end && marker.starts_with(rest)) {
        begun = true;
      }
    }
    if (begun) return {.at = at};
    if (found.size > 0) return found;
  }
  return {.at = text.size()};
}

}  // namespace forge::text
