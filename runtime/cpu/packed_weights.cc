#include "runtime/cpu/packed_weights.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "support/error.h"
#include "support/os/cache_folder.h"
#include "support/os/unique_fd.h"
#include "support/os/write_all.h"
#include "support/version.h"

namespace forge::runtime {
namespace {

namespace fs = std::filesystem;

/// Offset of the weights: a multiple of every page size that Linux has on the supported machines, so that they can be
/// mapped.
constexpr std::size_t kHeaderBytes = 64 << 10;
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;  ///< hashed by one task

static_assert(std::endian::native == std::endian::little, "headers are written as they are in memory");

/// The start of a file; the rest of kHeaderBytes is zeros.
struct Header {
  std::array<char, 16> magic{'f', 'o', 'r', 'g', 'e', ' ', 'w', 'e', 'i', 'g', 'h', 't', 's', ' ', '1', '\n'};
  std::array<char, 32> key{};
  std::uint64_t stamp = 0;
  std::uint64_t bytes = 0;
  std::uint64_t weights_hash = 0;
  std::uint64_t header_hash = 0;  ///< of all members before it
};

std::uint64_t hash_of(const Header& header) {
  return XXH3_64bits(&header, offsetof(Header, header_hash));
}

std::uint64_t hash_of(const std::string& text) {
  return XXH3_64bits(text.data(), text.size());
}

/// A hash of the chunks' hashes, which threads compute in parallel.
std::uint64_t hash_of(std::span<const std::byte> bytes, ThreadPool& pool) {
  std::vector<std::uint64_t> hashes((bytes.size() + kChunkBytes - 1) / kChunkBytes);
  pool.run(hashes.size(), [&](std::size_t i, std::size_t) {
    const auto chunk = bytes.subspan(i * kChunkBytes, std::min(kChunkBytes, bytes.size() - i * kChunkBytes));
    hashes[i] = XXH3_64bits(chunk.data(), chunk.size());
  });
  return XXH3_64bits(hashes.data(), hashes.size() * sizeof(std::uint64_t));
}

/// All fields that determine the place of a source.
std::string source_key(const plan::WeightSourceT& source) {
  return fmt::format(" {} {} {} {} {} {} {} {}", source.file, source.offset, source.tensor_rows, source.tensor_cols,
                     source.row_begin, source.rows, source.col_begin, source.cols);
}

/// The entry's key: a hash of a text with all fields that determine the packed bytes.
std::string key_of(const std::string& model, const plan::ProgramT& program) {
  auto text = fmt::format("{} {} {} {} {}\n", kVersion, kBuildId, model, program.target, program.weights_bytes);
  for (const auto& weight : program.weights) {
    if (weight == nullptr) {  // rejected when weights are loaded
      text += "-\n";
      continue;
    }
    text += fmt::format("w {} {} {} {} {} {} {} {} {}", weight->dtype, weight->layout, weight->rows, weight->cols,
                        weight->unit, weight->offset, weight->bytes, weight->slices, int{weight->scattered});
    for (const auto& source : weight->sources) text += source == nullptr ? " -" : source_key(*source);
    text += '\n';
  }
  for (const auto& step : program.load_steps) {  // numbers only: text from a plan could imitate further steps
    const auto* load = step == nullptr ? nullptr : step->body.AsLoadWeight();
    text += load == nullptr ? "-\n" : fmt::format("s {}\n", load->weight);
  }
  const auto hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

/// The temporary file of an entry. Its name is always the same, so leftovers of a killed process are overwritten. A
/// lock on it means that a process is writing it. It is removed at the end unless it was renamed.
class LockedFile {
 public:
  explicit LockedFile(fs::path path)
      : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {
    if (!fd_) {
      error_ = errno;
      return;
    }
    // Its last holder may have renamed or removed it between our open and lock; then we must not write it.
    locked_ = ::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0;
    if (!locked_ && errno != EWOULDBLOCK) error_ = errno;
    locked_ = locked_ && owns_path();
    // Truncating also updates its time: cleaning removes old temporary files, and this may be a killed process's.
    if (locked_ && ::ftruncate(fd_.get(), 0) != 0) error_ = errno;
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;
  ~LockedFile() {
    if (locked_ && owns_path()) ::unlink(path_.c_str());
  }

  [[nodiscard]] int error() const { return error_; }
  [[nodiscard]] bool locked() const { return locked_; }
  /// Writes header and weights and renames the file to `target`. Returns 0 or an errno. There is no fsync: a file that
  /// a power failure leaves incomplete fails its checksums.
  int write(std::span<const std::byte> header, std::span<const std::byte> weights, const fs::path& target) {
    int failed = write_all(fd_.get(), header);
    if (failed == 0) failed = write_all(fd_.get(), weights);
    if (failed != 0) return failed;
    if (!owns_path()) {  // removed by another process meanwhile: not stored, which costs only time
      locked_ = false;
      return 0;
    }
    if (::rename(path_.c_str(), target.c_str()) != 0) return errno;
    locked_ = false;
    return 0;
  }

 private:
  /// True if the path still names the open file.
  [[nodiscard]] bool owns_path() const {
    struct stat mine{}, there{};
    return ::fstat(fd_.get(), &mine) == 0 && ::lstat(path_.c_str(), &there) == 0 && mine.st_ino == there.st_ino &&
           mine.st_dev == there.st_dev;
  }

  fs::path path_;
  UniqueFd fd_;
  bool locked_ = false;
  int error_ = 0;
};

}  // namespace

PackedWeights::PackedWeights(PackedWeightsOptions options, const plan::ProgramT& program)
    : options_(std::move(options)),
      bytes_(static_cast<std::uint64_t>(std::max<std::int64_t>(program.weights_bytes, 0))),
      key_(key_of(options_.model, program)) {
  const auto why = folder_problem();
  usable_ = why.empty() && bytes_ > 0;
  if (!why.empty()) note_not_stored(why);
}

std::string PackedWeights::folder_problem() const {
  if (kHeaderBytes + bytes_ > options_.bytes_max)
    return fmt::format("they take {} bytes, more than FORGE_CACHE_MAX_BYTES ({})", kHeaderBytes + bytes_,
                       options_.bytes_max);
  return prepare_cache_subfolder(options_.folder);
}

fs::path PackedWeights::path() const {
  return options_.folder / (key_ + kPackedWeightsSuffix);
}

void PackedWeights::note_unused(const std::string& why) const {
  options_.note(Error(ErrorCode::kCache, fmt::format("packed weights {} are not used", printable(path().native(), 200)),
                      why, "packing them again")
                    .line());
}

void PackedWeights::note_not_stored(const std::string& why) const {
  options_.note(Error(ErrorCode::kCache,
                      fmt::format("packed weights cannot be stored in {}", printable(options_.folder.native(), 200)),
                      why, "they are packed at each start; set FORGE_CACHE_DIR to a directory that you own")
                    .line());
}

/// Compares the header of an open file. Returns what is wrong, or an empty text and the expected hash of the weights.
std::string PackedWeights::check_header(int fd, std::uint64_t& weights_hash) const {
  Header header, wanted;
  struct stat status{};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return "it is not a regular file";
  if (::pread(fd, &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header) || header.magic != wanted.magic ||
      header.header_hash != hash_of(header) || !std::ranges::equal(header.key, key_))
    return "the file is damaged";
  if (header.bytes != bytes_ || static_cast<std::uint64_t>(status.st_size) != kHeaderBytes + bytes_)
    return "the file is damaged: its size is wrong";
  if (header.stamp != hash_of(options_.stamp)) return "the model file has changed";
  weights_hash = header.weights_hash;
  return {};
}

MemoryBlock PackedWeights::find(ThreadPool& pool) const {
  if (!usable_) return {};
  const auto where = path();
  // O_NONBLOCK: opening a FIFO must not wait for its writer.
  const UniqueFd fd(::open(where.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) {
    if (errno != ENOENT && errno != ENOTDIR) note_unused(std::generic_category().message(errno));
    return {};
  }
  std::uint64_t hash = 0;
  if (const auto why = check_header(fd.get(), hash); !why.empty()) {
    note_unused(why);
    return {};
  }
  auto block = MemoryBlock::map(fd.get(), kHeaderBytes, bytes_);
  if (block.data() == nullptr) {
    note_unused(std::generic_category().message(errno));
    return {};
  }
  // Verifies the checksum of the whole mapping before any use.
  if (hash_of(std::span<const std::byte>(block.data(), block.bytes()), pool) != hash) {
    note_unused("the file is damaged");
    return {};
  }
  touch_cache_file(where);
  return block;
}

void PackedWeights::keep(std::span<const std::byte> weights, ThreadPool& pool) const {
  if (!usable_) return;
  LockedFile file(options_.folder / fmt::format(".{}{}.tmp", key_, kPackedWeightsSuffix));
  if (file.error() != 0) return note_not_stored(std::generic_category().message(file.error()));
  if (!file.locked()) return;
  Header header{.stamp = hash_of(options_.stamp), .bytes = weights.size(), .weights_hash = hash_of(weights, pool)};
  std::ranges::copy(key_, header.key.begin());
  header.header_hash = hash_of(header);
  std::vector<std::byte> head(kHeaderBytes);
  std::memcpy(head.data(), &header, sizeof header);
  if (const int failed = file.write(head, weights, path()); failed != 0)
    return note_not_stored(std::generic_category().message(failed));
  // Maintenance by the writer: leftovers of killed processes, then the least recently used entries beyond the limit.
  remove_cache_temporaries(options_.folder, kPackedWeightsSuffix);
  evict_cache_files(cache_files(options_.folder, kPackedWeightsSuffix), options_.bytes_max, path());
}

}  // namespace forge::runtime
