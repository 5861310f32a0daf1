#include "serve/protocol/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/constraint/bounded_json.h"

namespace forge::serve {
namespace {

constexpr std::size_t kDepthMax = 100;

/// Limits depth and members, so that a small body cannot become expensive to build or to read.
text::JsonWatch<Json> watch(std::string_view what) {
  return {{.depth = kDepthMax, .members = kMembersMax}, [what = std::string(what)](const std::string& why) {
            throw Refused{bad_request("invalid_json", fmt::format("{} {}", what, why))};
          }};
}

}  // namespace

void refuse_value(std::string_view name, std::string message) {
  throw Refused{bad_request("invalid_value", std::move(message), std::string(name))};
}

Json parse_object(std::string_view text) {
  if (text.find('\0') != std::string_view::npos)  // nlohmann's parser takes it as the end of the input
    throw Refused{bad_request("invalid_json", "the body is not JSON: it has a NUL byte")};
  try {
    auto json = Json::parse(text.begin(), text.end(), watch("the body"));
    if (!json.is_object()) throw Refused{bad_request("invalid_json", "the body is not a JSON object")};
    return json;
  } catch (const Json::parse_error& error) {
    throw Refused{bad_request("invalid_json", fmt::format("the body is not JSON: at byte {}", error.byte))};
  } catch (const Json::exception&) {
    throw Refused{bad_request("invalid_json", "the body has a number that is out of range")};
  }
}

Json parse_inner(const std::string& text, std::string_view what) {
  return Json::parse(text, watch(what), false);
}

const Json* Fields::take(std::string_view name) {
  taken_.emplace(name);
  const auto found = object_.find(std::string(name));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void Fields::ignore(std::initializer_list<std::string_view> names) {
  for (const auto name : names) taken_.emplace(name);
}

void Fields::only(std::string_view name, const Json& neutral, std::string_view why) {
  const auto* value = take(name);
  if (value != nullptr && *value != neutral) refuse(name, why);
}

void Fields::refuse(std::string_view name, std::string_view why) const {
  throw Refused{bad_request("not_supported", fmt::format("{} cannot be used: {}", full(name), why), full(name))};
}

void Fields::done() const {
  for (const auto& [name, value] : object_.items())
    if (!taken_.contains(name)) {
      const auto shown = within_ + printable(name);
      throw Refused{bad_request("unknown_member", fmt::format("unknown member '{}'", shown), shown)};
    }
}

bool Fields::boolean(std::string_view name, bool fallback) {
  const auto* value = take(name);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) refuse_value(full(name), fmt::format("{} is not true or false", full(name)));
  return value->get<bool>();
}

std::optional<std::int64_t> Fields::integer(std::string_view name, std::int64_t low, std::int64_t high) {
  const auto* value = take(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) refuse_value(full(name), fmt::format("{} is not a whole number", full(name)));
  const bool huge = value->is_number_unsigned() && value->get<std::uint64_t>() > std::uint64_t{INT64_MAX};
  const auto number = huge ? std::numeric_limits<std::int64_t>::max() : value->get<std::int64_t>();
  if (huge || number < low || number > high)
    refuse_value(full(name), fmt::format("{} is {}; it must be from {} to {}", full(name), value->dump(), low, high));
  return number;
}

std::optional<double> Fields::number(std::string_view name, double low, double high) {
  const auto* value = take(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse_value(full(name), fmt::format("{} is not a number", full(name)));
  const auto number = value->get<double>();
  if (!(number >= low && number <= high))
    refuse_value(full(name), fmt::format("{} is {}; it must be from {} to {}", full(name), value->dump(), low, high));
  return number;
}

std::optional<std::string> Fields::text(std::string_view name) {
  const auto* value = take(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse_value(full(name), fmt::format("{} is not a string", full(name)));
  return value->get<std::string>();
}

std::vector<std::string> Fields::texts(std::string_view name, std::size_t most) {
  const auto* value = take(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array() || !std::ranges::all_of(*value, [](const Json& item) { return item.is_string(); }))
    refuse_value(full(name), fmt::format("{} is not a string or a list of strings", full(name)));
  if (value->size() > most)
    refuse_value(full(name), fmt::format("{} has {} strings; at most {} are allowed", full(name), value->size(), most));
  return value->get<std::vector<std::string>>();
}

std::vector<std::int32_t> token_ids(std::string_view name, const Json& value) {
  if (!value.is_array()) refuse_value(name, fmt::format("{} is not a list of token ids", name));
  std::vector<std::int32_t> ids;
  ids.reserve(value.size());
  for (const auto& item : value) {
    const bool fits = item.is_number_unsigned() && item.get<std::uint64_t>() <= std::uint64_t{INT32_MAX};
    if (!fits) refuse_value(name, fmt::format("{} has an item that is not a token id", name));
    ids.push_back(item.get<std::int32_t>());
  }
  return ids;
}

}  // namespace forge::serve
