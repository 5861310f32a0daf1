#pragma once
// Reads untrusted JSON request bodies: members of an object are taken one by one with a type and bounds, and members
// that were not taken are refused at the end. Errors are thrown as Refused; request_json.cc catches them at the start
// of each body.

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

/// Thrown for a body that is refused.
struct Refused {
  ApiError error;
};

/// Throws Refused with the code invalid_value for the member `name`.
[[noreturn]] void refuse_value(std::string_view name, std::string message);

/// Limit of members of one object: ordered_json looks members up linearly, so reading n members takes n * n steps.
inline constexpr std::size_t kMembersMax = 1024;

/// Parses a body. Errors: not JSON, not an object, nested deeper than 100 levels, or an object with more than
/// kMembersMax members.
[[nodiscard]] Json parse_object(std::string_view text);
/// Parses JSON inside a string of the body, called `what` in messages; returns a discarded value if it is not JSON.
/// Errors: the same limits of depth and members.
[[nodiscard]] Json parse_inner(const std::string& text, std::string_view what);

class Fields {
 public:
  /// `within`: what precedes its members' names in errors ("structured_outputs.").
  explicit Fields(const Json& object, std::string_view within = {}) : object_(object), within_(within) {}

  /// The member, or nullptr if it is absent or null. Marks it as known.
  const Json* take(std::string_view name);
  /// Marks members as known that are accepted without effect.
  void ignore(std::initializer_list<std::string_view> names);
  /// Takes a member of an unsupported feature: refuses any value but `neutral`, with the reason `why`.
  void only(std::string_view name, const Json& neutral, std::string_view why);
  /// Throws Refused with the code not_supported for the member `name`.
  [[noreturn]] void refuse(std::string_view name, std::string_view why) const;
  /// Refuses the body if it has a member that was not taken or ignored.
  void done() const;

  bool boolean(std::string_view name, bool fallback);
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t low, std::int64_t high);
  std::optional<double> number(std::string_view name, double low, double high);
  std::optional<std::string> text(std::string_view name);
  /// A string, or a list of at most `most` of them.
  std::vector<std::string> texts(std::string_view name, std::size_t most);

 private:
  [[nodiscard]] std::string full(std::string_view name) const { return within_ + std::string(name); }

  const Json& object_;
  std::string within_;
  std::set<std::string, std::less<>> taken_;
};

/// A list of token ids from 0 to 2^31 - 1. The caller checks them against the vocabulary.
[[nodiscard]] std::vector<std::int32_t> token_ids(std::string_view name, const Json& value);

}  // namespace forge::serve
