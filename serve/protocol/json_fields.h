#pragma once
// The members of one JSON object, taken one by one with their types and bounds; what nobody took is refused at the end.
// Errors are thrown as Refused and caught where a body's reading begins.

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serve/protocol/api_error.h"

namespace forge::serve {

using Json = nlohmann::ordered_json;

struct Refused {
  ApiError error;
};

[[noreturn]] void refuse_value(std::string_view name, std::string message);

/// Members of one object, which is looked through from its beginning for each.
inline constexpr std::size_t kMembersMax = 1024;

/// Errors: not JSON, nested deeper than any request of ours, an object with more than kMembersMax members, or no
/// object.
[[nodiscard]] Json parse_object(std::string_view text);
/// JSON in a string of the body, called `what` in messages; discarded when it is none. Errors: its bounds, which are
/// those of a body.
[[nodiscard]] Json parse_inner(const std::string& text, std::string_view what);

class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {}

  /// The member, or nullptr where it is absent or null.
  const Json* take(std::string_view name);
  /// Members that are looked at by nobody, and may be there.
  void ignore(std::initializer_list<std::string_view> names);
  /// A member that asks for what this server cannot do unless it has the value `neutral`.
  void only(std::string_view name, const Json& neutral, std::string_view why);
  /// Refuses what was not taken.
  void done() const;

  bool boolean(std::string_view name, bool fallback);
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t low, std::int64_t high);
  std::optional<double> number(std::string_view name, double low, double high);
  std::optional<std::string> text(std::string_view name);
  /// A string, or a list of at most `most` of them.
  std::vector<std::string> texts(std::string_view name, std::size_t most);

 private:
  const Json& object_;
  std::set<std::string, std::less<>> taken_;
};

/// A list of token ids; their upper bound is the vocabulary, which others know.
[[nodiscard]] std::vector<std::int32_t> token_ids(std::string_view name, const Json& value);

}  // namespace forge::serve
