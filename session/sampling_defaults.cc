#include "session/sampling_defaults.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string_view>
#include <type_traits>

#include "loader/gguf/gguf.h"
#include "support/error.h"

namespace forge::session {
namespace {

constexpr std::string_view kPrefix = "general.sampling.";
constexpr std::size_t kShown = 80;

/// The entry's value if it is a number from `low` to `high` (an integer if T is one); else nullopt, and a message in
/// `ignored`.
template <class T>
std::optional<T> number_of(const loader::GgufEntry& entry, double low, double high, std::vector<std::string>& ignored) {
  const auto value = entry.value.type == loader::GgufType::kBool ? std::nullopt : entry.value.to_f64();
  constexpr bool kWhole = std::is_integral_v<T>;
  if (value && *value >= low && *value <= high && (!kWhole || *value == std::floor(*value)))
    return static_cast<T>(*value);
  ignored.push_back(fmt::format("{} is {}; it must be {} from {} to {}", printable(entry.key, kShown),
                                printable(entry.value.describe(), kShown), kWhole ? "a whole number" : "a number", low,
                                high));
  return std::nullopt;
}

}  // namespace

SamplingDefaults read_sampling_defaults(const loader::Gguf& file) {
  constexpr double kTemperatureMax = 100, kPenaltyMin = 0.01, kPenaltyMax = 100, kWindowMax = 1 << 20;
  constexpr auto kTopKMax = static_cast<double>(std::numeric_limits<std::int32_t>::max());
  SamplingDefaults out;
  for (const auto& entry : file.metadata()) {
    if (!entry.key.starts_with(kPrefix)) continue;
    const auto name = entry.key.substr(kPrefix.size());
    auto& ignored = out.ignored;
    if (name == "temp") {
      out.temperature = number_of<float>(entry, 0, kTemperatureMax, ignored);
    } else if (name == "top_k") {
      out.top_k = number_of<std::int32_t>(entry, -1, kTopKMax, ignored);
      if (out.top_k == -1) out.top_k = 0;
    } else if (name == "top_p") {
      out.top_p = number_of<float>(entry, 0, 1, ignored);
    } else if (name == "min_p") {
      out.min_p = number_of<float>(entry, 0, 1, ignored);
    } else if (name == "penalty_repeat") {
      out.repeat_penalty = number_of<float>(entry, kPenaltyMin, kPenaltyMax, ignored);
    } else if (name == "penalty_last_n") {
      out.penalty_window = number_of<std::int32_t>(entry, 0, kWindowMax, ignored);
    } else {
      ignored.push_back(fmt::format("{} is {}; forge has no such setting", printable(entry.key, kShown),
                                    printable(entry.value.describe(), kShown)));
    }
  }
  return out;
}

}  // namespace forge::session
