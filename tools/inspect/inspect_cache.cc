#include "tools/inspect/inspect_cache.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <vector>

#include "codegen/gpu/compile/kernel_cache.h"
#include "runtime/cpu/packed_weights.h"
#include "runtime/plan/cache.h"
#include "session/self_test/card_verdict.h"
#include "session/session.h"
#include "session/tuned/tuned_choices.h"
#include "support/error.h"
#include "support/json_text.h"
#include "support/os/cache_folder.h"
#include "support/os/console.h"

namespace forge::tools {
namespace {

namespace fs = std::filesystem;

struct Part {
  std::string name, what;
  fs::path folder;
  std::string_view suffix;

  [[nodiscard]] std::vector<CacheFile> files() const { return cache_files(folder, suffix); }
};

fs::path cache_folder() {
  const auto options = plan::CacheOptions::from_environment();
  if (options.directory.empty())
    throw Error(ErrorCode::kCache, "there is no cache", "$HOME is not set", "set FORGE_CACHE_DIR");
  return options.directory;
}

std::array<Part, 5> parts_of(const fs::path& folder) {
  return {{{"plans", "compiled plans", folder, plan::kPlanSuffix},
           {"kernels", "compiled GPU kernels", folder / codegen::kKernelFolder, codegen::kKernelSuffix},
           {"weights", "repacked weights (--repack-cache)", folder / session::kPackedWeightsFolder,
            runtime::kPackedWeightsSuffix},
           {"verdicts", "self-test results of GPUs", folder / session::kVerdictFolder, session::kVerdictSuffix},
           {"tuned", "measured kernel choices (forge-bench --tune)", folder / session::kTunedFolder,
            session::kTunedSuffix}}};
}

std::uint64_t bytes_of(const std::vector<CacheFile>& files) {
  std::uint64_t bytes = 0;
  for (const auto& file : files) bytes += file.bytes;
  return bytes;
}

void remove_file(const fs::path& path) {
  std::error_code failed;
  fs::remove(path, failed);
  if (failed)
    throw Error(ErrorCode::kIo, "cannot remove " + printable(path.native(), 200), failed.message(),
                "check the permissions of its folder");
}

}  // namespace

std::string inspect_cache(bool json) {
  const auto folder = cache_folder();
  const auto most = plan::CacheOptions::from_environment().bytes_max;
  JsonWriter writer;
  writer.open('{').field("folder", folder.native()).field("bytes_max", most);
  auto text = fmt::format("{}\n", printable(folder.native(), 200));
  for (const auto& part : parts_of(folder)) {
    const auto files = part.files();
    writer.open(part.name, '{').field("files", static_cast<std::uint64_t>(files.size()));
    writer.field("bytes", bytes_of(files)).close();
    text +=
        fmt::format("  {:8} {:6} files {:>11}  {}\n", part.name, files.size(), human_bytes(bytes_of(files)), part.what);
  }
  writer.close();
  text +=
      "forge-inspect cache --clear PART deletes a part, --clear all everything; entries are made again when needed\n";
  return json ? writer.take() : text;
}

std::string clear_cache(const std::string& part) {
  const auto folder = cache_folder();
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  for (const auto& one : parts_of(folder)) {
    if (part != "all" && part != one.name) continue;
    for (const auto& file : cache_temporaries(one.folder, one.suffix)) remove_file(file.path);
    for (const auto& file : one.files()) {
      remove_file(file.path);
      ++count;
      bytes += file.bytes;
    }
  }
  return fmt::format("{} files ({}) deleted from {}", count, human_bytes(bytes), printable(folder.native(), 200));
}

}  // namespace forge::tools
