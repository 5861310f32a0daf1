#pragma once
// The JSON types that the offered tools' schemas allow for their parameters, for formats that print values untyped.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace forge::text {

/// A set of JSON types; 0: unknown.
enum ValueType : std::uint8_t {
  kStringType = 1,
  kNumberType = 2,
  kBooleanType = 4,
  kNullType = 8,
  kObjectType = 16,
  kArrayType = 32
};
using ValueTypes = std::uint8_t;

class ToolTypes {
 public:
  ToolTypes() = default;
  /// Reads a list of tools in OpenAI's form, as JSON; also without the "function" level. Error: kUsage if it is no JSON
  /// list or null. Members of other forms are ignored.
  static ToolTypes parse(std::string_view json);

  [[nodiscard]] bool empty() const { return tools_.empty(); }
  [[nodiscard]] bool has(std::string_view tool) const { return tools_.contains(tool); }
  /// True if `text` is the beginning of a tool's name.
  [[nodiscard]] bool begins(std::string_view text) const;
  [[nodiscard]] ValueTypes types(std::string_view tool, std::string_view parameter) const;

 private:
  std::map<std::string, std::map<std::string, ValueTypes, std::less<>>, std::less<>> tools_;
};

/// The JSON text of a value that a model wrote untyped: what its types allow, a string if nothing else fits. If the
/// types are unknown, JSON is kept and anything else is a string.
[[nodiscard]] std::string json_of_value(std::string_view text, ValueTypes types);

}  // namespace forge::text
