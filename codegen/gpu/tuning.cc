#include "codegen/gpu/tuning.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "support/error.h"

namespace forge::codegen {

namespace {

constexpr std::string_view kKeys[] = {"ahead",         "attention_chunk", "attention_tokens", "attention_waves",
                                      "beside",        "block_rows",      "block_tokens",     "chunk",
                                      "head_tiles",    "heads",           "join_heads",       "k_splits",
                                      "lanes",         "matrix",          "matrix_tokens",    "min_blocks",
                                      "rows",          "select_rows",     "short_tokens",     "slabs",
                                      "split",         "stages",          "team_tokens",      "tile",
                                      "units",         "waves",           "waves_across",     "waves_down",
                                      "worker_tokens", "workers"};

bool is_key(std::string_view name) {
  return std::ranges::find(kKeys, name) != std::end(kKeys);
}

/// A key's shape and name: {"2048x8192", "rows"}; the shape is empty if it has none.
std::pair<std::string_view, std::string_view> parts_of(std::string_view key) {
  const auto colon = key.find(':');
  if (colon == std::string_view::npos) return {{}, key};
  return {key.substr(0, colon), key.substr(colon + 1)};
}

/// True for "2048x8192" and "2048x8192x512".
bool is_shape(std::string_view text) {
  int numbers = 0;
  for (;;) {
    const auto x = text.find('x');
    const auto digits = text.substr(0, x);
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) return false;
    ++numbers;
    if (x == std::string_view::npos) return numbers == 2 || numbers == 3;
    text.remove_prefix(x + 1);
  }
}

/// True if a setting for `shape` also applies where one for `part` does: no shape is all shapes, "2048x8192" includes
/// "2048x8192x512".
bool includes(std::string_view shape, std::string_view part) {
  return shape.empty() || shape == part || (part.starts_with(shape) && part[shape.size()] == 'x');
}

/// `key` is that of the setting `text`.
void check_key(std::string_view key, std::string_view text) {
  const auto [shape, name] = parts_of(key);
  if (!is_key(name))
    throw Error(ErrorCode::kUsage,
                fmt::format("tuning '{}': the keys are {}", printable(text), fmt::join(kKeys, ", ")));
  if (name.size() != key.size() && !is_shape(shape))
    throw Error(ErrorCode::kUsage,
                "tuning '" + printable(text) +
                    "': a shape is ROWSxCOLUMNS or ROWSxCOLUMNSxTOKENS, as in 2048x8192:rows and 2048x8192x1:rows");
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

Tuning tuning_for(const Tuning& all, std::int64_t rows, std::int64_t k, std::int64_t tokens) {
  const auto shape = fmt::format("{}x{}", rows, k);
  Tuning out;
  for (const auto& of : {std::string(), shape, fmt::format("{}x{}", shape, tokens)})
    for (const auto& [key, value] : all)
      if (const auto [of_key, name] = parts_of(key); of_key == of) out[std::string(name)] = value;
  return out;
}

std::string merged_tuning(std::string_view base, std::string_view over) {
  const auto upper = parse_tuning(over);
  auto out = upper;
  for (const auto& [key, value] : parse_tuning(base)) {
    const auto [shape, name] = parts_of(key);
    const bool replaced = std::ranges::any_of(upper, [&, &shape = shape, &name = name](const auto& setting) {
      const auto [over_shape, over_name] = parts_of(setting.first);
      return over_name == name && includes(over_shape, shape);
    });
    if (!replaced) out.emplace(key, value);
  }
  std::string text;
  for (const auto& [key, value] : out) text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, value);
  return text;
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
