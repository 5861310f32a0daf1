#include "codegen/gpu/kernel_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "codegen/gpu/compile_wire.h"
#include "runtime/plan/cache_folder.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/unique_fd.h"
#include "support/error.h"

namespace forge::codegen {
namespace {

namespace fs = std::filesystem;
using plan::UniqueFd;

/// An entry: this line, the hash of key and texts, the texts (compiler, code).
constexpr std::string_view kMagic = "forge kernel 1\n";
constexpr std::size_t kHashDigits = 32;
/// Kernels may take this part of what the whole cache may: they are some 20 KB each.
constexpr std::uint64_t kShare = 8;

std::string hash_of(std::string_view key, std::string_view body) {
  return kernel_key({std::string(key), std::string(body)});
}

std::string cannot_use(const fs::path& directory, const std::string& why) {
  return Error(ErrorCode::kCache, fmt::format("cannot keep kernels in {}", printable(directory.native(), 200)), why,
               "they are compiled each time; set FORGE_CACHE_DIR to a directory of yours")
      .line();
}

/// The file's bytes; nothing when it is no regular file that can be read or is longer than an entry can be.
std::optional<std::string> read_entry(const fs::path& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status{};
  if (!fd || fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  if (static_cast<std::uint64_t>(status.st_size) > kFrameBytesMax) return std::nullopt;
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = read(fd.get(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    have += static_cast<std::size_t>(got);
  }
  return bytes;
}

std::optional<CachedKernel> parse_entry(std::string_view bytes, std::string_view key) {
  if (!bytes.starts_with(kMagic) || bytes.size() < kMagic.size() + kHashDigits) return std::nullopt;
  bytes.remove_prefix(kMagic.size());
  const std::string_view hash = bytes.substr(0, kHashDigits), body = bytes.substr(kHashDigits);
  if (hash != hash_of(key, body)) return std::nullopt;
  auto texts = decode_texts(body);
  if (!texts || texts->size() != 2) return std::nullopt;
  return CachedKernel{std::move((*texts)[0]), std::move((*texts)[1])};
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
  const std::string problem = plan::prepare_cache_part(directory_);
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
  const auto bytes = read_entry(path);
  auto kernel = bytes ? parse_entry(*bytes, key) : std::nullopt;
  if (kernel)
    plan::touch_cache_file(path);
  else if (lstat(path.c_str(), &status) == 0)  // not merely evicted by another process meanwhile
    note_(Error(ErrorCode::kCache, fmt::format("{} is damaged", printable(path.native(), 200)), {},
                "ignored, compiling the kernel again")
              .line());
  return kernel;
}

void KernelCache::store(const std::string& key, const CachedKernel& kernel) {
  if (!usable()) return;
  const std::string body = encode_texts({kernel.compiler, kernel.code});
  const std::string image = std::string(kMagic) + hash_of(key, body) + body;
  try {
    plan::write_image(entry_path(key), std::as_bytes(std::span(image)), plan::FileAccess::kOwner);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInternal) throw;
    note_(error.line() + " (the kernel is used from memory)");
    directory_.clear();  // once is enough
  }
}

void KernelCache::evict() const {
  if (directory_.empty()) return;
  plan::remove_cache_temporaries(directory_, kKernelSuffix);
  plan::evict_cache_files(plan::cache_files(directory_, kKernelSuffix), bytes_max_);
}

std::string kernel_key(const std::vector<std::string>& texts) {
  const std::string bytes = encode_texts(texts);
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace forge::codegen
