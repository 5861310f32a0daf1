#include "codegen/gpu/compile/cache_entry.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>

#include "codegen/gpu/compile/compile_wire.h"
#include "support/os/unique_fd.h"

namespace forge::codegen {
namespace {

constexpr std::size_t kHashDigits = 32;

std::string hash_of(std::string_view key, std::string_view body) {
  return kernel_key({std::string(key), std::string(body)});
}

/// The file's bytes; nothing if it is not a readable regular file or is longer than an entry can be. Symbolic links are
/// not followed, and a FIFO does not block.
std::optional<std::string> read_entry(const std::filesystem::path& path) {
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

}  // namespace

std::string kernel_key(const std::vector<std::string>& texts) {
  const std::string bytes = encode_texts(texts);
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string cache_entry(std::string_view magic, std::string_view key, const std::vector<std::string>& texts) {
  const std::string body = encode_texts(texts);
  return std::string(magic) + hash_of(key, body) + body;
}

std::optional<std::vector<std::string>> read_cache_entry(const std::filesystem::path& path, std::string_view magic,
                                                         std::string_view key) {
  const auto bytes = read_entry(path);
  if (!bytes || !bytes->starts_with(magic) || bytes->size() < magic.size() + kHashDigits) return std::nullopt;
  const auto sealed = std::string_view(*bytes).substr(magic.size());
  const std::string_view hash = sealed.substr(0, kHashDigits), body = sealed.substr(kHashDigits);
  if (hash != hash_of(key, body)) return std::nullopt;
  return decode_texts(body);
}

}  // namespace forge::codegen
