#pragma once
// JSON from clients, read with limits: what is built of a small text stays small, and code that recurses over values
// or looks members up one by one stays cheap.

#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace forge::text {

struct JsonLimits {
  std::size_t depth = 100;
  std::size_t members = 1024;  ///< of one object
};

/// A callback of nlohmann's parser. Calls `refuse`, which must throw, with what is wrong: "is nested deeper than ...".
template <class Json>
class JsonWatch {
 public:
  using Refuse = std::function<void(const std::string& why)>;
  JsonWatch(JsonLimits limits, Refuse refuse)
      : limits_(limits), members_(limits.depth + 2), refuse_(std::move(refuse)) {}

  bool operator()(int depth, typename Json::parse_event_t event, const Json&) {
    using Event = typename Json::parse_event_t;
    const auto level = static_cast<std::size_t>(depth);
    if (level > limits_.depth) refuse_(fmt::format("is nested deeper than {} levels", limits_.depth));
    if (event == Event::object_start) members_[level + 1] = 0;
    if (event == Event::key && ++members_[level] > limits_.members)
      refuse_(fmt::format("has an object with more than {} members", limits_.members));
    return true;
  }

 private:
  JsonLimits limits_;
  std::vector<std::size_t> members_;  ///< so far, of the open object at each depth
  Refuse refuse_;
};

/// A text as JSON; discarded if it is none. `refuse` as above.
template <class Json>
Json parse_bounded(std::string_view text, JsonLimits limits, typename JsonWatch<Json>::Refuse refuse) {
  // The parser takes a NUL byte as the end of its input.
  if (text.find('\0') != std::string_view::npos) return Json(Json::value_t::discarded);
  return Json::parse(text.begin(), text.end(), JsonWatch<Json>(limits, std::move(refuse)), false);
}

}  // namespace forge::text
