#include "codegen/gpu/compile/kernel_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "codegen/gpu/compile/cache_entry.h"
#include "runtime/plan/plan_file.h"
#include "support/error.h"
#include "support/os/cache_folder.h"

namespace forge::codegen {
namespace {

namespace fs = std::filesystem;

/// The magic line of an entry, whose texts are compiler and code.
constexpr std::string_view kMagic = "forge kernel 1\n";
/// Kernels may use 1/8 of the whole cache's limit; they are about 20 KB each.
constexpr std::uint64_t kShare = 8;

std::string cannot_use(const fs::path& directory, const std::string& why) {
  return Error(ErrorCode::kCache, fmt::format("cannot keep kernels in {}", printable(directory.native(), 200)), why,
               "they are compiled each time; set FORGE_CACHE_DIR to a directory of yours")
      .line();
}

}  // namespace

KernelCache::KernelCache(const plan::CacheOptions& options, std::function<void(const std::string&)> note)
    : directory_(options.directory.empty() || options.bytes_max == 0 ? fs::path() : options.directory / kKernelFolder),
      bytes_max_(options.bytes_max / kShare),
      note_(std::move(note)) {}

fs::path KernelCache::entry_path(const std::string& key) const {
  return directory_.empty() ? fs::path() : directory_ / (key + std::string(kKernelSuffix));
}

bool KernelCache::usable() {
  if (directory_.empty() || std::exchange(prepared_, true)) return !directory_.empty();
  const std::string problem = prepare_cache_subfolder(directory_);
  if (problem.empty()) return true;
  note_(cannot_use(directory_, problem));
  directory_.clear();
  return false;
}

std::optional<CachedKernel> KernelCache::find(const std::string& key) {
  if (!usable()) return std::nullopt;
  const fs::path path = entry_path(key);
  struct stat status{};
  if (lstat(path.c_str(), &status) != 0) return std::nullopt;
  auto texts = read_cache_entry(path, kMagic, key);
  if (texts && texts->size() == 2) {
    touch_cache_file(path);
    return CachedKernel{std::move((*texts)[0]), std::move((*texts)[1])};
  }
  if (lstat(path.c_str(), &status) == 0)  // else another process has evicted it meanwhile
    note_(Error(ErrorCode::kCache, fmt::format("{} is damaged", printable(path.native(), 200)), {},
                "ignored, compiling the kernel again")
              .line());
  return std::nullopt;
}

void KernelCache::store(const std::string& key, const CachedKernel& kernel) {
  if (!usable()) return;
  const std::string image = cache_entry(kMagic, key, {kernel.compiler, kernel.code});
  try {
    plan::write_image(entry_path(key), std::as_bytes(std::span(image)), plan::FileAccess::kOwner);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInternal) throw;
    note_(error.line() + " (the kernel is used from memory)");
    directory_.clear();  // do not try, and warn, again
  }
}

void KernelCache::evict() const {
  if (directory_.empty()) return;
  remove_cache_temporaries(directory_, kKernelSuffix);
  evict_cache_files(cache_files(directory_, kKernelSuffix), bytes_max_);
}

}  // namespace forge::codegen
