#include "runtime/plan/plan_file.h"

#include <fcntl.h>
#include <flatbuffers/minireflect.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "support/error.h"
#include "support/os/random.h"
#include "support/os/unique_fd.h"
#include "support/os/write_all.h"

namespace forge::plan {
namespace {

static_assert(std::endian::native == std::endian::little, "plan headers are copied as they stand");

// 89 "FRGP" CR LF 1A, as PNG's signature: a text-mode transfer breaks it visibly.
constexpr std::array<char, 8> kMagic{'\x89', 'F', 'R', 'G', 'P', '\r', '\n', '\x1a'};
constexpr std::uint32_t kContainerVersion = 1;
constexpr std::uint64_t kPayloadBytesMax = FLATBUFFERS_MAX_BUFFER_SIZE - 1024;
constexpr std::uint64_t kBlobBytesMax = 1'500'000'000;
constexpr std::size_t kImageAlign = 16;
/// Nesting limit for the verifier. Plan > Program > Variant > Step > Tile > Section > TileOp > body is eight tables
/// deep.
constexpr flatbuffers::uoffset_t kDepthMax = 16;
constexpr flatbuffers::uoffset_t kTablesMax = 1'000'000;

/// On-disk header; the layout is in plan_file.h.
struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t container_version = kContainerVersion;
  std::uint32_t plan_version = kPlanVersion;
  std::uint64_t payload_bytes = 0;
  std::uint64_t zero = 0;
  std::array<std::byte, 16> key{};
  std::array<std::byte, 16> hash{};
};
static_assert(sizeof(Header) == kHeaderBytes && offsetof(Header, hash) == 48);

/// xxHash's canonical (big-endian) byte order.
std::array<std::byte, 16> canonical(XXH128_hash_t hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  return std::bit_cast<std::array<std::byte, 16>>(bytes.digest);
}

/// The first 48 bytes of the header seed the payload's hash, so one hash covers the whole file.
std::array<std::byte, 16> hash_of(const Header& header, std::span<const std::byte> payload) {
  const XXH64_hash_t seed = XXH3_64bits(&header, offsetof(Header, hash));
  return canonical(XXH3_128bits_withSeed(payload.data(), payload.size(), seed));
}

std::array<std::byte, 16> key_of(std::string_view cache_key) {
  if (cache_key.empty()) return {};
  return canonical(XXH3_128bits(cache_key.data(), cache_key.size()));
}

Error bad_plan(std::string_view name, std::string why, std::string fix = "compile the model again (forge-compile)") {
  return Error(ErrorCode::kPlan, fmt::format("cannot use {}", printable(name, 200)), std::move(why), std::move(fix));
}

Error io_error(std::string_view doing, const std::filesystem::path& path, int error_number, std::string fix) {
  return Error(ErrorCode::kIo, fmt::format("cannot {} {}", doing, printable(path.native(), 200)),
               std::generic_category().message(error_number), std::move(fix));
}

/// Adds up what unpacking a buffer would allocate, using the schema's type table. In a crafted buffer many tables can
/// point at the same long vector, which unpacking would copy each time; an honest buffer shares nothing, so the sum
/// cannot exceed its size. Also rejects misaligned structs. Use on verified buffers only.
class UnpackedSize {
 public:
  explicit UnpackedSize(std::uint64_t bytes_max) : left_(bytes_max) {}

  /// Returns false if the limit is exceeded, a struct is misaligned or a union has an unknown type. The recursion is as
  /// deep as the schema's nesting, which the verifier has bounded.
  bool add_table(const flatbuffers::Table& table, const flatbuffers::TypeTable& type) {
    if (!take(sizeof(flatbuffers::uoffset_t) + sizeof(flatbuffers::soffset_t))) return false;  // smallest table
    for (std::size_t i = 0; i < type.num_elems; ++i) {
      const flatbuffers::TypeCode code = type.type_codes[i];
      const auto field = static_cast<flatbuffers::voffset_t>((i + 2) * sizeof(flatbuffers::voffset_t));
      const flatbuffers::TypeTable* sub = code.sequence_ref >= 0 ? type.type_refs[code.sequence_ref]() : nullptr;
      if (!add_field(table, field, code, sub)) return false;
    }
    return true;
  }

 private:
  using Offset = flatbuffers::Offset<void>;

  bool take(std::uint64_t bytes) {
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }

  /// Adds one field. Absent fields take nothing.
  bool add_field(const flatbuffers::Table& table, flatbuffers::voffset_t field, flatbuffers::TypeCode code,
                 const flatbuffers::TypeTable* sub) {
    const bool is_table = code.base_type == flatbuffers::ET_SEQUENCE && sub->st == flatbuffers::ST_TABLE;
    const bool is_struct = code.base_type == flatbuffers::ET_SEQUENCE && sub->st == flatbuffers::ST_STRUCT;
    if (code.base_type == flatbuffers::ET_SEQUENCE && sub->st == flatbuffers::ST_UNION)
      return add_union(table, field, *sub);
    if (code.is_repeating) {
      const auto* items = table.GetPointer<const flatbuffers::Vector<std::uint8_t>*>(field);
      if (items == nullptr) return true;
      if (is_table) return add_tables(*reinterpret_cast<const flatbuffers::Vector<Offset>*>(items), *sub);
      const auto item_bytes = flatbuffers::InlineSize(static_cast<flatbuffers::ElementaryType>(code.base_type), sub);
      if (items->size() > 0 && !aligned(items->Data(), is_struct ? alignof(std::uint64_t) : item_bytes)) return false;
      return take(std::uint64_t{items->size()} * item_bytes);
    }
    if (is_table) {
      const auto* inner = table.GetPointer<const flatbuffers::Table*>(field);
      return inner == nullptr || add_table(*inner, *sub);
    }
    if (code.base_type == flatbuffers::ET_STRING) {
      const auto* text = table.GetPointer<const flatbuffers::String*>(field);
      return text == nullptr || take(text->size());
    }
    return !is_struct || aligned(table.GetStruct<const std::uint8_t*>(field), alignof(std::uint64_t));
  }

  /// The type of a union is in the field before it. Returns false for a type without a table and for types that this
  /// version does not know: unpacking would turn both into a type without a value.
  bool add_union(const flatbuffers::Table& table, flatbuffers::voffset_t field, const flatbuffers::TypeTable& type) {
    const auto kind = table.GetField<std::uint8_t>(static_cast<flatbuffers::voffset_t>(field - sizeof field), 0);
    const auto* inner = table.GetPointer<const flatbuffers::Table*>(field);
    if (kind == 0) return inner == nullptr;
    if (inner == nullptr || kind >= type.num_elems) return false;
    return add_table(*inner, *type.type_refs[type.type_codes[kind].sequence_ref]());
  }

  /// The verifier accepts structs and vector elements at any address, but they are read in place.
  static bool aligned(const void* at, std::size_t alignment) {
    return reinterpret_cast<std::uintptr_t>(at) % alignment == 0;
  }

  bool add_tables(const flatbuffers::Vector<Offset>& items, const flatbuffers::TypeTable& type) {
    for (flatbuffers::uoffset_t i = 0; i < items.size(); ++i) {
      const auto* inner =
          reinterpret_cast<const flatbuffers::Vector<flatbuffers::Offset<flatbuffers::Table>>&>(items).Get(i);
      if (!add_table(*inner, type)) return false;
    }
    return true;
  }

  std::uint64_t left_;
};

/// Verifies and unpacks a payload. Throws Error(kPlan).
PlanT unpack(std::span<const std::byte> payload, std::string_view name) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(payload.data());
  flatbuffers::Verifier::Options limits;
  limits.max_depth = kDepthMax;
  limits.max_tables = kTablesMax;
  flatbuffers::Verifier verifier(data, payload.size(), limits);
  if (!VerifyPlanBuffer(verifier)) throw bad_plan(name, "its contents are not a well-formed plan");
  const auto& root = *flatbuffers::GetRoot<flatbuffers::Table>(data);
  if (!UnpackedSize(payload.size()).add_table(root, *PlanTypeTable()))
    throw bad_plan(name, "its parts exceed the file's size, are misaligned, or have an unknown type");
  const Plan& plan = *GetPlan(data);
  if (plan.version() != kPlanVersion) throw bad_plan(name, "its contents and its header have different versions");
  PlanT out;
  plan.UnPackTo(&out);
  if (!out.model) out.model = std::make_unique<ModelT>();
  return out;
}

/// A temporary file next to `target` that is removed unless it is renamed to it. Its name is random, because processes
/// of several containers can share a directory and have the same process ids.
class TemporaryFile {
 public:
  TemporaryFile(const std::filesystem::path& target, mode_t mode) {
    path_ = target.parent_path() / fmt::format(".{}.{:016x}.tmp", target.filename().native(), random_number());
    fd_ = UniqueFd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
    if (!fd_) open_errno_ = errno;
    armed_ = static_cast<bool>(fd_);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (armed_) ::unlink(path_.c_str());
  }

  /// Each returns 0 or an errno value.
  int opened() const { return open_errno_; }
  int write(std::span<const std::byte> bytes) {
    if (const int failed = write_all(fd_.get(), bytes); failed != 0) return failed;
    return ::fsync(fd_.get()) == 0 ? 0 : errno;
  }
  int move_to(const std::filesystem::path& target) {
    if (::rename(path_.c_str(), target.c_str()) != 0) return errno;
    armed_ = false;
    return 0;
  }

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  int open_errno_ = 0;
  bool armed_ = false;
};

struct AlignedDelete {
  void operator()(std::byte* bytes) const { ::operator delete[](bytes, std::align_val_t{kImageAlign}); }
};

}  // namespace

/// Blob sizes are checked before packing, because FlatBufferBuilder has no error result for buffers beyond 2 GiB.
std::vector<std::byte> serialize_plan(const PlanT& plan, std::string_view cache_key) {
  invariant(plan.version == kPlanVersion, "PLAN-001", "a plan is written with version = kPlanVersion");
  std::uint64_t blob_bytes = plan.graph.size();
  for (const auto& program : plan.programs) {
    blob_bytes += program->constants.size();
    for (const auto& object : program->code_objects) blob_bytes += object->bytes.size();
  }
  const auto check_size = [](std::uint64_t bytes, std::uint64_t bytes_max) {
    if (bytes > bytes_max)
      throw Error(ErrorCode::kPlan, "cannot write the plan",
                  fmt::format("its {} bytes exceed the format's limit of {}", bytes, bytes_max),
                  "compile for fewer targets at once (--target)");
  };
  check_size(blob_bytes, kBlobBytesMax);
  flatbuffers::FlatBufferBuilder builder(64 * 1024 + blob_bytes + blob_bytes / 8);
  FinishPlanBuffer(builder, Plan::Pack(builder, &plan));
  check_size(builder.GetSize(), kPayloadBytesMax);

  const auto payload = std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
  Header header;
  header.payload_bytes = payload.size();
  header.key = key_of(cache_key);
  header.hash = hash_of(header, payload);
  std::vector<std::byte> image(sizeof header + payload.size());
  std::memcpy(image.data(), &header, sizeof header);
  std::memcpy(image.data() + sizeof header, payload.data(), payload.size());
  return image;
}

/// The checks are in the order of docs/plan-format.md: magic, versions, size, checksum, cache key, contents.
PlanT parse_plan(std::span<const std::byte> image, std::string_view name, std::string_view cache_key) {
  Header header;
  if (image.size() < sizeof header || std::memcmp(image.data(), kMagic.data(), kMagic.size()) != 0)
    throw bad_plan(name, "it is not a forge plan", "give a GGUF model, or a plan written by forge-compile");
  std::memcpy(&header, image.data(), sizeof header);
  if (header.container_version != kContainerVersion || header.plan_version != kPlanVersion)
    throw bad_plan(name, fmt::format("it is a plan of format {}.{} and this forge reads {}.{}",
                                     header.container_version, header.plan_version, kContainerVersion, kPlanVersion));
  const auto payload = image.subspan(sizeof header);
  if (header.payload_bytes > payload.size())
    throw bad_plan(name,
                   fmt::format("it is truncated: it has {} of {} payload bytes", payload.size(), header.payload_bytes));
  if (header.payload_bytes < payload.size() || payload.size() > kPayloadBytesMax)
    throw bad_plan(name, "it has extra bytes at the end");
  if (header.zero != 0 || header.hash != hash_of(header, payload))
    throw bad_plan(name, "it is damaged: its checksum does not match its contents");
  if (!cache_key.empty() && header.key != key_of(cache_key))
    throw bad_plan(name, "it was written for another cache key");
  invariant(reinterpret_cast<std::uintptr_t>(image.data()) % kImageAlign == 0, "PLAN-002",
            "a plan image is aligned to 16 bytes");
  return unpack(payload, name);
}

/// fsync before rename, so that after a crash the name never refers to incomplete contents.
void write_image(const std::filesystem::path& path, std::span<const std::byte> image, FileAccess access) {
  const std::string fix = "choose a directory that exists, is writable and has room";
  TemporaryFile file(path, access == FileAccess::kOwner ? 0600 : 0666);
  int failed = file.opened();
  if (failed == 0) failed = file.write(image);
  if (failed == 0) failed = file.move_to(path);
  if (failed != 0) throw io_error("write", path, failed, fix);
}

void write_plan(const std::filesystem::path& path, const PlanT& plan) {
  write_image(path, serialize_plan(plan));
}

PlanT read_plan(const std::filesystem::path& path, std::string_view cache_key) {
  // O_NONBLOCK: opening a FIFO must not block.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status{};
  if (!fd || ::fstat(fd.get(), &status) != 0) throw io_error("open", path, errno, "check the path and its permissions");
  if (!S_ISREG(status.st_mode))
    throw bad_plan(path.native(), "it is not a regular file", "give a GGUF model, or a plan written by forge-compile");
  const auto bytes = static_cast<std::size_t>(status.st_size);
  if (bytes > kPayloadBytesMax + sizeof(Header))
    throw bad_plan(path.native(), "it is larger than a plan can be", "give a plan written by forge-compile");
  // Check the magic before reading a large foreign file (e.g. a model) completely.
  if (!looks_like_plan(path)) return parse_plan({}, path.native());
  const std::unique_ptr<std::byte[], AlignedDelete> image(
      static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{kImageAlign})));
  std::size_t have = 0;
  while (have < bytes) {
    const ssize_t n = ::pread(fd.get(), image.get() + have, bytes - have, static_cast<off_t>(have));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw io_error("read", path, errno, "check the disk");
    if (n == 0) break;  // the file shrank since fstat; parse_plan reports it as truncated
    have += static_cast<std::size_t>(n);
  }
  return parse_plan({image.get(), have}, path.native(), cache_key);
}

bool looks_like_plan(const std::filesystem::path& path) noexcept {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status{};
  std::array<char, kMagic.size()> start{};
  return fd && ::fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode) &&
         ::pread(fd.get(), start.data(), start.size(), 0) == static_cast<ssize_t>(start.size()) && start == kMagic;
}

}  // namespace forge::plan
