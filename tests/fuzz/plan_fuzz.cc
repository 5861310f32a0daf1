// Fuzzes the plan reader (runtime/plan/plan_file.h). The input is a plan's payload; the target adds a header with the
// right checksum, which a fuzzer would not find. Input that begins with the magic is read as a whole file image. An
// accepted plan must survive writing and reading, and the sizes that executors take from it must be refused or
// plausible. Only forge::Error may be thrown. The executors' own checks are not covered here.

#include "runtime/plan/plan_file.h"

#include <array>
#include <cstring>
#include <vector>

#include "runtime/program_bounds.h"
#include "runtime/program_facts.h"
#include "tests/fuzz/target.h"
#include "tests/runtime/plan_samples.h"

namespace {

using namespace forge;

constexpr std::array<std::uint8_t, 8> kMagic{0x89, 'F', 'R', 'G', 'P', '\r', '\n', 0x1a};

/// A copy aligned to 16 bytes and exactly as long as the plan, so that ASan detects every read beyond its end.
using Image = std::vector<std::byte>;
static_assert(__STDCPP_DEFAULT_NEW_ALIGNMENT__ >= 16);

void read_bounds(const plan::ProgramT& program) {
  fuzz::refuse_or_read([&] { (void)runtime::bounds_of(program); });
  fuzz::refuse_or_read([&] { (void)runtime::logits_bytes(program); });
  fuzz::refuse_or_read([&] { (void)runtime::facts_of(program); });
  fuzz::refuse_or_read([&] { (void)runtime::kv_blocks_for(program, program.context, program.batch_max); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::refuse_or_read([&] {
    const bool whole = size >= kMagic.size() && std::memcmp(data, kMagic.data(), kMagic.size()) == 0;
    const auto bytes = std::as_bytes(std::span(data, size));
    const Image image = whole ? Image(bytes.begin(), bytes.end()) : test::forged(bytes);
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
