#pragma once
// Kernel choices that were measured on a card for a model (forge-bench --tune), in the cache: one file
// <cache>/tuned/<key>.tuned per card, target and model. Compilations for that card use them.
//
// The file is JSON that people can read:
//
//   {"format": "forge tuned 1", "forge": "0.1.0 (build)", "card": "NVIDIA H100", "target": "sm_90",
//    "model": "<identity>", "model_name": "...", "tune": "4096x4096x1:waves=8,...",
//    "measured": [{"test": "tg16", "before": 201.5, "after": 214.2}]}

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/cache.h"

namespace forge::session {

inline constexpr const char* kTunedFolder = "tuned";  ///< folder in the cache
inline constexpr std::string_view kTunedSuffix = ".tuned";

/// What choices were measured for.
struct TunedSubject {
  std::string card;    ///< the card's name, as the driver reports it
  std::string target;  ///< its full name
  std::string model;   ///< the model's identity, as hex digits
};

/// A workload's rate with the cost model's choices and with the stored ones, tokens/s.
struct TunedRate {
  std::string test;
  double before = 0, after = 0;
};

struct TunedChoices {
  std::string model_name;
  std::string tune;  ///< as CompileOptions::tune; empty: the cost model's choices are the best
  std::vector<TunedRate> measured;
};

/// The file of a subject, whether it exists or not; empty without a cache.
[[nodiscard]] std::filesystem::path tuned_path(const plan::CacheOptions& cache, const TunedSubject& subject);

/// The stored choices, or none. `why`, unless the file does not exist: why it is not used, one line.
struct FoundChoices {
  bool found = false;
  TunedChoices choices;
  std::string why;
};
/// Reads the choices. A file that is damaged, of another subject or of another build of forge is not used.
[[nodiscard]] FoundChoices find_tuned(const plan::CacheOptions& cache, const TunedSubject& subject);

/// Errors: kCache if choices cannot be stored there.
void check_tuned_cache(const plan::CacheOptions& cache);

/// Writes the file, at once or not at all, and returns its path. Errors: kCache without a usable cache; kIo.
std::filesystem::path store_tuned(const plan::CacheOptions& cache, const TunedSubject& subject,
                                  const TunedChoices& choices);

/// Errors: kUsage if there are no choices for the subject in the user's cache, or they cannot be used.
void require_tuned(const TunedSubject& subject);

/// CompileOptions::tune of a compilation for the subject: the stored choices of the user's cache, of which `given`
/// (--tune) replaces what it sets. Without stored choices, or if the subject has no card: `given`. Prints a line for a
/// file that cannot be used. Errors: kUsage for an invalid `given`.
[[nodiscard]] std::string tune_with_stored(const TunedSubject& subject, const std::string& given);

}  // namespace forge::session
