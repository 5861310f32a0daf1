#include "codegen/gpu/kernel_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "codegen/gpu/compile_wire.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/unique_fd.h"
#include "support/error.h"

namespace forge::codegen {
namespace {

namespace fs = std::filesystem;
using plan::UniqueFd;

/// An entry: this line, the hash of key and texts, the texts (compiler, code).
constexpr std::string_view kMagic = "forge kernel 1\n";
constexpr std::string_view kSuffix = ".kernel";
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

/// Makes `directory` with mode 0700. Code objects are code: a directory that others can write into is not trusted.
std::string prepare(const fs::path& directory) {
  std::error_code failed;
  fs::create_directories(directory.parent_path(), failed);
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return cannot_use(directory, std::generic_category().message(errno));
  struct stat status{};
  if (lstat(directory.c_str(), &status) != 0) return cannot_use(directory, std::generic_category().message(errno));
  if (!S_ISDIR(status.st_mode)) return cannot_use(directory, "it is no directory");
  const uid_t self = geteuid();
  if (self != 0 && status.st_uid != self && status.st_uid != 0)
    return cannot_use(directory, "it belongs to another user");
  if ((status.st_mode & S_IWOTH) != 0) return cannot_use(directory, "every user can write into it");
  return {};
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
    : directory_(options.directory.empty() || options.bytes_max == 0 ? fs::path() : options.directory / "kernels"),
      bytes_max_(options.bytes_max / kShare),
      note_(std::move(note)) {}

fs::path KernelCache::entry_path(const std::string& key) const {
  return directory_.empty() ? fs::path() : directory_ / (key + std::string(kSuffix));
}

bool KernelCache::usable() {
  if (directory_.empty() || std::exchange(prepared_, true)) return !directory_.empty();
  const std::string problem = prepare(directory_);
  if (problem.empty()) return true;
  note_(problem);
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
    utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // most recently used; fails harmlessly in a read-only cache
  else if (lstat(path.c_str(), &status) == 0)       // not merely evicted by another process meanwhile
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
  struct Entry {
    fs::path path;
    std::uint64_t bytes;
    std::pair<time_t, long> used;
  };
  std::vector<Entry> entries;
  std::uint64_t bytes = 0;
  std::error_code failed;
  for (fs::directory_iterator it(directory_, failed), end; !failed && it != end; it.increment(failed)) {
    struct stat status{};
    if (it->path().extension() != kSuffix || lstat(it->path().c_str(), &status) != 0) continue;
    entries.push_back(
        {it->path(), static_cast<std::uint64_t>(status.st_size), {status.st_mtim.tv_sec, status.st_mtim.tv_nsec}});
    bytes += entries.back().bytes;
  }
  std::ranges::sort(entries, {}, &Entry::used);
  for (const Entry& entry : entries) {
    if (bytes <= bytes_max_) return;
    unlink(entry.path.c_str());
    bytes -= entry.bytes;
  }
}

std::string kernel_key(const std::vector<std::string>& texts) {
  const std::string bytes = encode_texts(texts);
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace forge::codegen
