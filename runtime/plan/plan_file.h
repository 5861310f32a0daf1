#pragma once
// Reading and writing plan files: a header of 64 bytes and one FlatBuffer (plan.fbs). A plan returned from here has
// passed the checksum, the FlatBuffers verifier and a bound on its unpacked size. Whether offsets and step arguments
// make sense is checked by the executor when it opens the program. See docs/plan-format.md.
//
// Header, little-endian:
//
//   offset  bytes
//   0       8      magic
//   8       4      container version
//   12      4      plan version
//   16      8      payload bytes
//   24      8      zero
//   32      16     XXH3-128 of the cache key; zero without one
//   48      16     XXH3-128 of the payload, seeded with XXH3-64 of bytes 0 to 47; canonical byte order
//
// Source: xxHash, doc/xxhash_spec.md; FlatBuffers internals.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/plan/plan_generated.h"
#include "runtime/plan/version.h"

namespace forge::plan {

/// Size of the header.
inline constexpr std::size_t kHeaderBytes = 64;

/// Permissions of a written file: what the umask allows (plans that the user asked for), or owner only (cache entries).
enum class FileAccess : std::uint8_t { kUmask, kOwner };

/// Returns the complete file image of `plan`, whose version must be kPlanVersion. A non-empty `cache_key` binds the
/// image to that cache entry. Errors: Error(kInternal) for a wrong version, Error(kPlan) above the format's 2 GiB.
[[nodiscard]] std::vector<std::byte> serialize_plan(const PlanT& plan, std::string_view cache_key = {});

/// Checks and unpacks a file image, which must be aligned to 16 bytes. `name` is used in errors. If `cache_key` is not
/// empty, the image must be bound to it. Errors: Error(kPlan) for anything but a valid image.
[[nodiscard]] PlanT parse_plan(std::span<const std::byte> image, std::string_view name,
                               std::string_view cache_key = {});

/// Writes `image` to `path` atomically: temporary file in the same directory, fsync, rename. At any moment `path` is
/// the old file, the new one, or absent. Errors: Error(kIo); the temporary file is removed.
void write_image(const std::filesystem::path& path, std::span<const std::byte> image,
                 FileAccess access = FileAccess::kUmask);

/// serialize_plan, then write_image.
void write_plan(const std::filesystem::path& path, const PlanT& plan);

/// Reads and checks a plan file. The file is copied into memory first (0.2 ms for 2 MB), so that the bytes checked are
/// the bytes used even if the file changes. Errors: Error(kIo) if it cannot be read, Error(kPlan) as parse_plan.
[[nodiscard]] PlanT read_plan(const std::filesystem::path& path, std::string_view cache_key = {});

/// True if the file can be read and starts with a plan's magic. Tools use it to tell a plan from a GGUF model. Never
/// throws.
[[nodiscard]] bool looks_like_plan(const std::filesystem::path& path) noexcept;

}  // namespace forge::plan
