#include "session/tuned/tuned_choices.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "codegen/gpu/compile/cache_entry.h"
#include "codegen/gpu/tuning.h"
#include "support/error.h"
#include "support/json_text.h"
#include "support/os/cache_folder.h"
#include "support/os/console.h"
#include "support/version.h"

namespace forge::session {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kFormat = "forge tuned 1";
constexpr std::size_t kFileBytesMax = std::size_t{1} << 20;

std::string this_forge() {
  return fmt::format("{} ({})", kVersion, kBuildId);
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) throw Error(ErrorCode::kCache, fmt::format("it has no {}", key));
  return found->get<std::string>();
}

double rate_of(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number() || !std::isfinite(found->get<double>()))
    throw Error(ErrorCode::kCache, fmt::format("a test has no {}", key));
  return found->get<double>();
}

/// Errors: kCache with what is wrong, without the file.
TunedChoices parse(const std::string& text, const TunedSubject& subject) {
  const auto file = json::parse(text, nullptr, false);
  if (!file.is_object() || text_of(file, "format") != kFormat) throw Error(ErrorCode::kCache, "it is damaged");
  const auto check = [&](const char* key, const std::string& wanted) {
    if (const auto is = text_of(file, key); is != wanted)
      throw Error(ErrorCode::kCache, fmt::format("its {} is '{}', not '{}'", key, printable(is), printable(wanted)));
  };
  check("card", subject.card);
  check("target", subject.target);
  check("model", subject.model);
  if (text_of(file, "forge") != this_forge())
    throw Error(ErrorCode::kCache, fmt::format("forge {} measured it", printable(text_of(file, "forge"))));
  TunedChoices out{.model_name = text_of(file, "model_name"), .tune = text_of(file, "tune"), .measured = {}};
  (void)codegen::parse_tuning(out.tune);
  const auto measured = file.find("measured");
  if (measured == file.end() || !measured->is_array()) throw Error(ErrorCode::kCache, "it has no measured");
  for (const auto& row : *measured) {
    if (!row.is_object()) throw Error(ErrorCode::kCache, "it is damaged");
    out.measured.push_back({text_of(row, "test"), rate_of(row, "before"), rate_of(row, "after")});
  }
  return out;
}

}  // namespace

fs::path tuned_path(const plan::CacheOptions& cache, const TunedSubject& subject) {
  if (cache.directory.empty() || cache.bytes_max == 0) return {};
  const auto key = codegen::kernel_key({subject.card, subject.target, subject.model});
  return cache.directory / kTunedFolder / (key + std::string(kTunedSuffix));
}

FoundChoices find_tuned(const plan::CacheOptions& cache, const TunedSubject& subject) {
  FoundChoices out;
  const auto path = tuned_path(cache, subject);
  struct stat status{};
  if (path.empty() || ::lstat(path.c_str(), &status) != 0) return out;
  try {
    if (!S_ISREG(status.st_mode)) throw Error(ErrorCode::kCache, "it is no file");
    out.choices = parse(read_text(path, kFileBytesMax), subject);
    out.found = true;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInternal) throw;
    out.why = Error(ErrorCode::kCache, fmt::format("{} is not used", printable(path.native(), 200)),
                    strip_error_code(error.line()), "forge-bench MODEL --tune measures again")
                  .line();
  }
  return out;
}

void check_tuned_cache(const plan::CacheOptions& cache) {
  const bool none = cache.directory.empty() || cache.bytes_max == 0;
  const auto why = none ? "there is no cache" : prepare_cache_subfolder(cache.directory / kTunedFolder);
  if (!why.empty())
    throw Error(ErrorCode::kCache, "cannot store the choices", why, "set FORGE_CACHE_DIR to a writable directory");
}

fs::path store_tuned(const plan::CacheOptions& cache, const TunedSubject& subject, const TunedChoices& choices) {
  check_tuned_cache(cache);
  const auto path = tuned_path(cache, subject);
  JsonWriter writer;
  writer.open('{')
      .field("format", kFormat)
      .field("forge", this_forge())
      .field("card", subject.card)
      .field("target", subject.target)
      .field("model", subject.model)
      .field("model_name", choices.model_name)
      .field("tune", choices.tune)
      .open("measured", '[');
  for (const auto& row : choices.measured)
    writer.open('{').field("test", row.test).field("before", row.before).field("after", row.after).close();
  writer.close().close();
  remove_cache_temporaries(path.parent_path(), kTunedSuffix);
  const auto text = writer.take();
  plan::write_image(path, std::as_bytes(std::span(text)), plan::FileAccess::kOwner);
  return path;
}

void require_tuned(const TunedSubject& subject) {
  const auto cache = plan::CacheOptions::from_environment();
  const auto stored = find_tuned(cache, subject);
  if (stored.found) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("there are no choices for {} ({}) and this model", printable(subject.card), subject.target),
              stored.why.empty()
                  ? fmt::format("there is no file {}", printable(tuned_path(cache, subject).native(), 200))
                  : strip_error_code(stored.why),
              "forge-bench MODEL --tune on that GPU measures them");
}

std::string tune_with_stored(const TunedSubject& subject, const std::string& given) {
  (void)codegen::parse_tuning(given);  // CPUs have no use for it, but a wrong key is one there, too
  if (subject.card.empty()) return given;
  const auto stored = find_tuned(plan::CacheOptions::from_environment(), subject);
  if (!stored.why.empty()) warn(stored.why);
  return stored.found ? codegen::merged_tuning(stored.choices.tune, given) : given;
}

}  // namespace forge::session
