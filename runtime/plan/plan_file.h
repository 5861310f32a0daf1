#pragma once
// Plan files: a fixed header of 64 bytes and one FlatBuffer (plan.fbs). What is read here has passed the hash, the
// FlatBuffers verifier and a bound on its unpacked size; whether offsets and step arguments make sense is the
// executor's own check, made once when it is built. See docs/plan-format.md.
//
// Header, little-endian: magic[8] · u32 container version · u32 plan version · u64 payload bytes · u64 zero ·
// key[16] (XXH3-128 of the cache key, zero when there is none) · hash[16] (XXH3-128 of the payload, seeded with XXH3-64
// of the 48 bytes before it; canonical byte order). Source: xxHash, doc/xxhash_spec.md; FlatBuffers internals.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/plan/plan_generated.h"
#include "runtime/plan/version.h"

namespace forge::plan {

inline constexpr std::size_t kHeaderBytes = 64;

/// Who may read a file that is written: everybody the umask allows (a plan the user asked for), or the owner only.
enum class FileAccess : std::uint8_t { kUmask, kOwner };

/// The whole file image of `plan`. `plan.version` must be kPlanVersion. `cache_key` binds the image to a cache entry.
/// Errors: Error(kInternal) for a wrong version, Error(kPlan) above the format's 2 GiB.
[[nodiscard]] std::vector<std::byte> serialize_plan(const PlanT& plan, std::string_view cache_key = {});

/// The plan in a file image. `name` stands in errors. With a non-empty `cache_key` the image must be bound to it.
/// The image must be aligned to 16 bytes. Errors: Error(kPlan) for anything that is not exactly such an image.
[[nodiscard]] PlanT parse_plan(std::span<const std::byte> image, std::string_view name,
                               std::string_view cache_key = {});

/// Writes `image` to `path` through a temporary file in the same directory, fsync and rename: at every moment `path` is
/// the old file, the new one, or absent. Errors: Error(kIo); the temporary file is removed.
void write_image(const std::filesystem::path& path, std::span<const std::byte> image,
                 FileAccess access = FileAccess::kUmask);

/// serialize_plan and write_image.
void write_plan(const std::filesystem::path& path, const PlanT& plan);

/// Reads and checks a plan file. The file is copied into memory first (0.2 ms for 2 MB), so that the bytes that were
/// checked are the bytes that are used, whatever happens to the file.
/// Errors: Error(kIo) when it cannot be opened or read, Error(kPlan) as parse_plan.
[[nodiscard]] PlanT read_plan(const std::filesystem::path& path, std::string_view cache_key = {});

/// True when the file can be read and begins like a plan: how tools tell PLAN from MODEL.gguf. Never throws.
[[nodiscard]] bool looks_like_plan(const std::filesystem::path& path) noexcept;

}  // namespace forge::plan
