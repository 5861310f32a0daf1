// Fuzzes the plan reader (runtime/plan/plan_file.h). The input is a plan's payload, which gets a header with the right
// checksum, since no chance finds one; input that begins with the magic is read as the whole image. A plan that is
// accepted must survive being written and read again, and the sizes that executors take from it must be refused or
// sane. Nothing but forge::Error may be thrown. The executor's own checks are not in here.

#include "runtime/plan/plan_file.h"

#include <xxhash.h>

#include <array>
#include <cstring>
#include <vector>

#include "runtime/program_bounds.h"
#include "tests/fuzz/target.h"

namespace {

using namespace forge;

constexpr std::array<std::uint8_t, 8> kMagic{0x89, 'F', 'R', 'G', 'P', '\r', '\n', 0x1a};

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

/// A plan's image: at a multiple of 16, and not a byte longer, so that ASan sees every read behind its end.
using Image = std::vector<std::byte>;
static_assert(__STDCPP_DEFAULT_NEW_ALIGNMENT__ >= 16);

/// `payload` behind a header that fits it (docs/plan-format.md).
Image sealed(std::span<const std::uint8_t> payload) {
  Image image(plan::kHeaderBytes + payload.size());
  std::byte* at = image.data();
  std::memcpy(at, kMagic.data(), kMagic.size());
  put(at + 8, std::uint32_t{1});
  put(at + 12, static_cast<std::uint32_t>(plan::kPlanVersion));
  put(at + 16, std::uint64_t{payload.size()});
  if (!payload.empty()) std::memcpy(at + plan::kHeaderBytes, payload.data(), payload.size());
  XXH128_canonical_t hash;
  XXH128_canonicalFromHash(
      &hash, XXH3_128bits_withSeed(at + plan::kHeaderBytes, payload.size(), XXH3_64bits(at, plan::kHeaderBytes - 16)));
  std::memcpy(at + plan::kHeaderBytes - 16, hash.digest, sizeof hash.digest);
  return image;
}

void read_bounds(const plan::ProgramT& program) {
  fuzz::refuse_or_read([&] { (void)runtime::bounds_of(program); });
  fuzz::refuse_or_read([&] { (void)runtime::logits_bytes(program); });
  fuzz::refuse_or_read([&] { (void)runtime::kv_blocks_for(program, program.context, program.batch_max); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::refuse_or_read([&] {
    const bool whole = size >= kMagic.size() && std::memcmp(data, kMagic.data(), kMagic.size()) == 0;
    Image image = whole ? Image(size) : sealed({data, size});
    if (whole) std::memcpy(image.data(), data, size);
    const plan::PlanT read = plan::parse_plan(image, "fuzzed.plan");
    for (const auto& program : read.programs)
      if (program) read_bounds(*program);
    const auto written = plan::serialize_plan(read);
    try {
      const auto again = plan::serialize_plan(plan::parse_plan(written, "again.plan"));
      fuzz::expect(again == written, "a plan changes when it is read and written");
    } catch (const Error& error) {
      fuzz::finding(error.line());
    }
  });
}
