#include "codegen/gpu/tuning.h"

#include <algorithm>
#include <charconv>

#include "support/error.h"

namespace forge::codegen {

Tuning parse_tuning(std::string_view text) {
  Tuning out;
  while (!text.empty()) {
    const auto comma = text.find(',');
    const auto one = text.substr(0, comma);
    const auto equals = one.find('=');
    std::int64_t value = 0;
    const auto number = equals == std::string_view::npos ? std::string_view() : one.substr(equals + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (number.empty() || error != std::errc() || end != number.data() + number.size() || value < 0 || value > 1 << 20)
      throw Error(ErrorCode::kUsage, "tuning '" + printable(one) + "' is not NAME=NUMBER");
    out[std::string(one.substr(0, equals))] = value;
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return out;
}

Tuning tuning_for(const Tuning& all, std::string_view label) {
  Tuning out;
  for (const auto& [key, value] : all) {
    const auto colon = key.find(':');
    if (colon == std::string::npos) out.emplace(key, value);
  }
  for (const auto& [key, value] : all)
    if (const auto colon = key.find(':'); colon != std::string::npos && key.substr(0, colon) == label)
      out[key.substr(colon + 1)] = value;
  return out;
}

std::int64_t tuned(const Tuning& tuning, std::string_view key, std::int64_t fallback) {
  const auto found = tuning.find(key);
  return found == tuning.end() ? fallback : found->second;
}

std::int64_t tuned_positive(const Tuning& tuning, std::string_view key, std::int64_t fallback) {
  return std::max<std::int64_t>(tuned(tuning, key, fallback), 1);
}

}  // namespace forge::codegen
