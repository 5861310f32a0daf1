#include "codegen/gpu/tuning.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "support/error.h"

namespace forge::codegen {

namespace {

constexpr std::string_view kKeys[] = {"ahead",
                                      "attention_chunk",
                                      "attention_tokens",
                                      "attention_waves",
                                      "beside",
                                      "block_rows",
                                      "block_tokens",
                                      "chunk",
                                      "head_tiles",
                                      "heads",
                                      "k_splits",
                                      "lanes",
                                      "matrix",
                                      "matrix_tokens",
                                      "min_blocks",
                                      "rows",
                                      "select_rows",
                                      "slabs",
                                      "split",
                                      "stages",
                                      "team_tokens",
                                      "tile",
                                      "units",
                                      "waves",
                                      "waves_across",
                                      "waves_down",
                                      "worker_tokens",
                                      "workers"};

bool is_key(std::string_view name) {
  return std::ranges::find(kKeys, name) != std::end(kKeys);
}

/// True for "2048x8192".
bool is_shape(std::string_view text) {
  const auto x = text.find('x');
  const auto is_number = [](std::string_view digits) {
    return !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
  };
  return x != std::string_view::npos && is_number(text.substr(0, x)) && is_number(text.substr(x + 1));
}

/// `key` is that of the setting `text`.
void check_key(std::string_view key, std::string_view text) {
  const auto colon = key.find(':');
  const auto name = colon == std::string_view::npos ? key : key.substr(colon + 1);
  if (!is_key(name))
    throw Error(ErrorCode::kUsage,
                fmt::format("tuning '{}': the keys are {}", printable(text), fmt::join(kKeys, ", ")));
  if (colon != std::string_view::npos && !is_shape(key.substr(0, colon)))
    throw Error(ErrorCode::kUsage, "tuning '" + printable(text) + "': a shape is ROWSxCOLUMNS, as in 2048x8192:rows");
}

}  // namespace

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
      throw Error(ErrorCode::kUsage, "tuning '" + printable(one) + "' is not KEY=NUMBER");
    check_key(one.substr(0, equals), one);
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
  invariant(is_key(key), "TUNE-001", "every key that is looked up can be set");
  const auto found = tuning.find(key);
  return found == tuning.end() ? fallback : found->second;
}

std::int64_t tuned_positive(const Tuning& tuning, std::string_view key, std::int64_t fallback) {
  return std::max<std::int64_t>(tuned(tuning, key, fallback), 1);
}

}  // namespace forge::codegen
