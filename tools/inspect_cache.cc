#include "tools/inspect_cache.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <vector>

#include "codegen/gpu/kernel_cache.h"
#include "runtime/cpu/packed_weights.h"
#include "runtime/plan/cache.h"
#include "runtime/plan/cache_folder.h"
#include "support/error.h"
#include "support/json_text.h"
#include "tools/card_verdict.h"
#include "tools/console.h"
#include "tools/session.h"

namespace forge::tools {
namespace {

namespace fs = std::filesystem;

struct Part {
  std::string name, what;
  fs::path folder;
  std::string_view suffix;

  [[nodiscard]] std::vector<plan::CacheFile> files() const { return plan::cache_files(folder, suffix); }
};

fs::path cache_folder() {
  const auto options = plan::CacheOptions::from_environment();
  if (options.directory.empty())
    throw Error(ErrorCode::kCache, "there is no cache", "$HOME is not known", "name one with FORGE_CACHE_DIR");
  return options.directory;
}

std::array<Part, 4> parts_of(const fs::path& folder) {
  return {{{"plans", "compiled plans", folder, plan::kPlanSuffix},
           {"kernels", "compiled GPU kernels", folder / codegen::kKernelFolder, codegen::kKernelSuffix},
           {"weights", "packed weights (--repack-cache)", folder / kPackedWeightsFolder, runtime::kPackedWeightsSuffix},
           {"verdicts", "self-tests of cards", folder / kVerdictFolder, kVerdictSuffix}}};
}

std::uint64_t bytes_of(const std::vector<plan::CacheFile>& files) {
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
  text += "forge-inspect cache --clear weights removes the packed weights, --clear all everything; it is made again\n";
  return json ? writer.take() : text;
}

std::string clear_cache(const std::string& part) {
  const auto folder = cache_folder();
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  for (const auto& one : parts_of(folder)) {
    if (part != "all" && part != one.name) continue;
    for (const auto& file : plan::cache_temporaries(one.folder, one.suffix)) remove_file(file.path);
    for (const auto& file : one.files()) {
      remove_file(file.path);
      ++count;
      bytes += file.bytes;
    }
  }
  return fmt::format("{} files of {} removed from {}", count, human_bytes(bytes), printable(folder.native(), 200));
}

}  // namespace forge::tools
