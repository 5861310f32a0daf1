// The rules that every driver must obey, run on the null driver (immediate and deferred) and on each vendor's GPU that
// is present.
#include <dlfcn.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "tests/driver/target.h"
#include "tests/support/skip.h"

namespace forge::driver::test {

namespace {

constexpr int kCount = 1000;
constexpr std::size_t kBytes = kCount * sizeof(std::int32_t);

std::int32_t* words(const PinnedBuffer& buffer) {
  return reinterpret_cast<std::int32_t*>(buffer.data());
}

PinnedBuffer counted(const Device& device, std::int32_t first) {
  PinnedBuffer buffer(device, kBytes, "test values");
  std::iota(words(buffer), words(buffer) + kCount, first);
  return buffer;
}

/// True if value i of `buffer` equals `first` + i, for all i.
bool counts_from(const PinnedBuffer& buffer, std::int32_t first) {
  for (int i = 0; i < kCount; ++i) {
    if (words(buffer)[i] != first + i) return false;
  }
  return true;
}

Status add(const Stream& stream, const Function& kernel, const Buffer& data, int value) {
  return stream.launch(kernel, blocks_for(kCount), {256, 1, 1}, 0, data.address(), kCount, value);
}

void check_description(const Target& t) {
  const DeviceInfo& info = t.device.info();
  CHECK_FALSE(info.name.empty());
  CHECK(info.arch.starts_with(info.target));
  CHECK(info.target.find(':') == std::string::npos);
  CHECK((info.wave_size == 32 || info.wave_size == 64));
  CHECK(info.units > 0);
  CHECK(info.memory_bytes >= t.device.free_bytes());
  CHECK(info.lds_bytes_per_block >= 32768);
  CHECK(info.threads_per_block_max >= 256);
  CHECK(info.grid_max[0] >= 65535);
  CHECK(info.pci.size() >= 12);
  CHECK_THROWS_AS(t.driver.device(static_cast<int>(t.driver.devices().size())), Error);
  CHECK_THROWS_AS(t.driver.device(-1), Error);
}

void check_copies(const Target& t) {
  const Stream stream(t.device);
  const PinnedBuffer in = counted(t.device, 7), out(t.device, kBytes, "results");
  const Buffer first(t.device, kBytes, "first"), second(t.device, kBytes + 64, "second");
  std::memset(out.data(), 0, kBytes);
  stream.upload(first, 0, in, 0, kBytes).check("test");
  stream.copy(second, 64, first, 0, kBytes).check("test");
  stream.download(out, 0, second, 64, kBytes).check("test");
  stream.synchronize().check("test");
  CHECK(counts_from(out, 7));
  // A quarter of the buffer, from the middle of one to the middle of the other.
  constexpr std::size_t kQuarter = kBytes / 4;
  std::memset(out.data(), 0, kBytes);
  stream.upload(first, 2 * kQuarter, in, kQuarter, kQuarter).check("test");
  stream.download(out, 3 * kQuarter, first, 2 * kQuarter, kQuarter).check("test");
  stream.synchronize().check("test");
  CHECK(words(out)[3 * kCount / 4 - 1] == 0);
  CHECK(words(out)[3 * kCount / 4] == 7 + kCount / 4);
  CHECK(words(out)[kCount - 1] == 7 + kCount / 2 - 1);

  stream.fill(first, 0, 0xab, kBytes).check("test");
  stream.fill_words(first, 8, 0x01020304, 2).check("test");
  stream.download(out, 0, first, 0, kBytes).check("test");
  stream.synchronize().check("test");
  CHECK(words(out)[1] == static_cast<std::int32_t>(0xabababab));
  CHECK(words(out)[2] == 0x01020304);
  CHECK(words(out)[3] == 0x01020304);
  CHECK(words(out)[4] == static_cast<std::int32_t>(0xabababab));
}

void check_refusals(const Target& t) {
  const Stream stream(t.device);
  const PinnedBuffer host(t.device, 64, "host");
  const Buffer memory(t.device, 64, "memory");
  const auto refused = [](const Status& status) { return status.outcome() == Outcome::kRefused; };
  CHECK(refused(stream.upload(memory, 1, host, 0, 64)));
  CHECK(refused(stream.upload(memory, 0, host, 65, 0)));
  CHECK(refused(stream.download(host, 0, memory, ~std::size_t{0}, 2)));
  CHECK(refused(stream.copy(memory, 0, memory, 0, 65)));
  CHECK(refused(stream.copy(memory, 0, memory, 16, 32)));
  CHECK(refused(stream.fill(memory, 60, 0, 5)));
  CHECK(refused(stream.fill_words(memory, 2, 0, 1)));
  CHECK(refused(stream.fill_words(memory, 0, 0, 17)));
  CHECK(refused(stream.fill_words(memory, 0, 0, ~std::size_t{0} / 2)));
  CHECK(stream.fill(memory, 64, 0, 0).ok());
  CHECK(stream.copy(memory, 0, memory, 32, 32).ok());

  const Module module(t.device, t.image, "test");
  const Function kernel = module.function(kKernel);
  const Address address = memory.address();
  const auto launch = [&](Dim3 grid, Dim3 block, std::uint32_t lds) {
    return stream.launch(kernel, grid, block, lds, address, 0, 0);
  };
  CHECK(refused(launch({0, 1, 1}, {64, 1, 1}, 0)));
  CHECK(refused(launch({1, 1, 0x7fffffff}, {64, 1, 1}, 0)));
  CHECK(refused(launch({1, 1, 1}, {0, 1, 1}, 0)));
  CHECK(refused(launch({1, 1, 1}, {1024, 1024, 1}, 0)));
  CHECK(refused(launch({1, 1, 1}, {64, 1, 1}, 0x10000000)));
  CHECK(launch({1, 1, 1}, {64, 1, 1}, 0).ok());
  CHECK_THROWS_AS(kernel.allow_lds(0x10000000), Error);
  const Error error = launch({0, 1, 1}, {64, 1, 1}, 0).error("a test");
  CHECK(error.code() == ErrorCode::kInternal);
  CHECK(error.line().find("a test") != std::string::npos);
  stream.synchronize().check("test");
}

void check_kernels(const Target& t) {
  const Stream stream(t.device);
  const PinnedBuffer in = counted(t.device, 0), out(t.device, kBytes, "results");
  const Buffer data(t.device, kBytes, "data");
  const Module module(t.device, t.image, "test");
  const Function kernel = module.function(kKernel);
  CHECK(kernel.name() == kKernel);
  const FunctionFacts facts = kernel.facts();
  CHECK(facts.registers > 0);
  CHECK(facts.lds_bytes == 0);
  CHECK(facts.scratch_bytes == 0);
  CHECK(facts.threads_per_block_max >= 256);
  CHECK(kernel.occupancy(256, 0) >= 1);
  kernel.allow_lds(16384);

  stream.upload(data, 0, in, 0, kBytes).check("test");
  add(stream, kernel, data, 40).check("test");
  int n = kCount, value = 2;
  Address address = data.address();
  const std::array<void*, 3> args{&address, &n, &value};
  stream.launch_args(kernel, blocks_for(n), {256, 1, 1}, 0, args, {.overlap_predecessor = false}).check("test");
  value = 1000;  // the launch has its own copy
  stream.download(out, 0, data, 0, kBytes).check("test");
  stream.synchronize().check("test");
  CHECK(counts_from(out, 42));
}

/// Launches with all arguments in one struct, which may overlap their predecessors; launched directly and recorded.
void check_argument_blocks(const Target& t) {
  const Stream stream(t.device);
  const PinnedBuffer in = counted(t.device, 0), out(t.device, kBytes, "results");
  const Buffer data(t.device, kBytes, "data");
  const Module module(t.device, t.image, "test");
  const Function kernel = module.function(kBlockKernel);
  const auto add_block = [&](Address to, std::int64_t value, bool overlap) {
    const AddBlock args{to, kCount, value};
    return stream.launch_block(kernel, blocks_for(kCount), {256, 1, 1}, 0, std::as_bytes(std::span(&args, 1)),
                               {.overlap_predecessor = overlap});
  };
  stream.upload(data, 0, in, 0, kBytes).check("test");
  for (int i = 0; i < 20; ++i) add_block(data.address(), 1, i != 0).check("test");
  stream.download(out, 0, data, 0, kBytes).check("test");
  stream.synchronize().check("test");
  CHECK(counts_from(out, 20));

  const GraphExec chain = GraphExec::record(stream, "a chain", [&] {
    for (int i = 0; i < 20; ++i) add_block(data.address(), i, i != 0).check("recording");
    stream.download(out, 0, data, 0, kBytes).check("recording");
  });
  for (int i = 0; i < 3; ++i) chain.launch(stream).check("test");
  stream.synchronize().check("test");
  CHECK(counts_from(out, 20 + 3 * 190));

  // The device can access pinned memory, at the same address.
  add_block(out.address(), 7, false).check("test");
  stream.synchronize().check("test");
  CHECK(counts_from(out, 20 + 3 * 190 + 7));

  const std::vector<std::byte> large(kArgumentBytesMax + 1);
  CHECK(stream.launch_block(kernel, {1, 1, 1}, {64, 1, 1}, 0, {}).outcome() == Outcome::kRefused);
  CHECK(stream.launch_block(kernel, {1, 1, 1}, {64, 1, 1}, 0, large).outcome() == Outcome::kRefused);
}

void check_events(const Target& t) {
  const Stream first(t.device), second(t.device);
  Event uploaded(t.device), before(t.device, {.timing = true}), after(t.device, {.timing = true, .blocking = true});
  CHECK(uploaded.query().ok());  // nothing was recorded
  const PinnedBuffer in = counted(t.device, 5), out(t.device, kBytes, "results");
  const Buffer data(t.device, kBytes, "data");
  const Module module(t.device, t.image, "test");
  const Function kernel = module.function(kKernel);
  before.record(first).check("test");
  first.upload(data, 0, in, 0, kBytes).check("test");
  uploaded.record(first).check("test");
  second.wait(uploaded).check("test");
  add(second, kernel, data, 1).check("test");
  second.download(out, 0, data, 0, kBytes).check("test");
  after.record(second).check("test");
  after.synchronize().check("test");
  CHECK(after.query().ok());
  CHECK(counts_from(out, 6));
  float milliseconds = -1;
  Event::elapsed(before, after, &milliseconds).check("test");
  CHECK(milliseconds >= 0);
  // A query makes progress visible and never blocks; the loop ends because the work does.
  add(second, kernel, data, 1).check("test");
  after.record(second).check("test");
  Status status = after.query();
  for (int i = 0; i < 100'000'000 && status.outcome() == Outcome::kNotReady; ++i) status = after.query();
  CHECK(status.ok());
  for (status = second.query(); status.outcome() == Outcome::kNotReady;) status = second.query();
  CHECK(status.ok());
  first.synchronize().check("test");
}

void check_graphs(const Target& t) {
  const Stream stream(t.device), side(t.device);
  Event fork(t.device), join(t.device);
  const PinnedBuffer in = counted(t.device, 0), out(t.device, kBytes, "results");
  const Buffer data(t.device, kBytes, "data"), other(t.device, kBytes, "other");
  const Module module(t.device, t.image, "test");
  const Function kernel = module.function(kKernel);
  stream.upload(data, 0, in, 0, kBytes).check("test");
  stream.synchronize().check("test");
  const GraphExec graph = GraphExec::record(stream, "a step", [&] {
    add(stream, kernel, data, 10).check("recording");
    fork.record(stream).check("recording");
    side.wait(fork).check("recording");
    side.copy(other, 0, data, 0, kBytes).check("recording");
    add(side, kernel, other, 1).check("recording");
    join.record(side).check("recording");
    stream.wait(join).check("recording");
    stream.download(out, 0, other, 0, kBytes).check("recording");
  });
  graph.upload(stream).check("test");
  const AllocationCounts allocations = t.driver.device_allocations();
  for (int step = 1; step <= 3; ++step) {
    graph.launch(stream).check("test");
    stream.synchronize().check("test");
    CHECK(counts_from(out, 10 * step + 1));
  }
  CHECK(t.driver.device_allocations().total == allocations.total);

  // A recording that fails leaves its stream usable.
  CHECK_THROWS_AS(GraphExec::record(stream, "a failure", [] { throw std::bad_alloc(); }), std::bad_alloc);
  stream.fill(data, 0, 0, kBytes).check("test");
  stream.synchronize().check("test");
  // A call that must not be recorded fails the recording, and also leaves the stream usable.
  CHECK_THROWS_AS(GraphExec::record(stream, "a wait", [&] { CHECK_FALSE(stream.synchronize().ok()); }), Error);
  add(stream, kernel, data, 3).check("test");
  stream.download(out, 0, data, 0, kBytes).check("test");
  stream.synchronize().check("test");
  CHECK(words(out)[kCount - 1] == 3);
}

void check_memory(const Target& t) {
  const AllocationCounts before = t.driver.device_allocations(), pinned = t.driver.pinned_allocations();
  {
    Buffer a(t.device, 4096, "a");
    const Buffer none(t.device, 0, "none");
    CHECK(none.address() == Address{});
    CHECK(a.address().value % 256 == 0);
    const Address address = a.address();
    Buffer b(t.device, 100, "b");
    b = std::move(a);  // frees the 100 bytes
    CHECK(b.address() == address);
    CHECK(a.bytes() == 0);
    const PinnedBuffer host(t.device, 50, "host");
    const AllocationCounts now = t.driver.device_allocations();
    CHECK(now.live == before.live + 1);
    CHECK(now.live_bytes == before.live_bytes + 4096);
    CHECK(now.total == before.total + 2);
    CHECK(now.total_bytes == before.total_bytes + 4196);
    CHECK(t.driver.pinned_allocations().live_bytes == pinned.live_bytes + 50);
  }
  CHECK(t.driver.device_allocations().live == before.live);
  CHECK(t.driver.pinned_allocations().live == pinned.live);
  try {
    const Buffer huge(t.device, std::size_t{1} << 50, "KV pool");
    FAIL("a pebibyte was allocated");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kMemory);
    CHECK(error.exit_status() == 5);
    CHECK(error.line().find("KV pool") != std::string::npos);
    CHECK(error.line().find("1125899906842624") != std::string::npos);
  }
  const Buffer after(t.device, 64, "after");  // the device still works
  CHECK(after.bytes() == 64);
}

void check_modules(const Target& t) {
  const std::vector<std::byte> garbage(4096);
  try {
    const Module module(t.device, garbage, "rms_norm");
    FAIL("garbage was loaded");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kDevice);
    CHECK(error.exit_status() == 4);
    CHECK(error.line().find("rms_norm") != std::string::npos);
    CHECK(error.line().find("ModuleLoad") != std::string::npos);
  }
  CHECK_THROWS_AS(Module(t.device, {}, "nothing"), Error);
  const Module module(t.device, t.image, "test");
  try {
    static_cast<void>(module.function("no_such_kernel"));
    FAIL("a kernel that is not there was found");
  } catch (const Error& error) {
    CHECK(error.line().find("no_such_kernel") != std::string::npos);
  }
}

/// Number of overlapped launches that the stand-in libcuda counted; a real GPU's results would not show them. A
/// recorded launch counts once.
int overlapped_launches(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD);
  const auto* count = handle != nullptr ? static_cast<const int*>(dlsym(handle, "standin_overlapped")) : nullptr;
  return count != nullptr ? *count : -1;
}

void check_all(const Target& t) {
  INFO(t.name);
  check_description(t);
  check_copies(t);
  check_refusals(t);
  check_kernels(t);
  check_argument_blocks(t);
  check_events(t);
  check_graphs(t);
  check_memory(t);
  if (t.control == nullptr) check_modules(t);
  CHECK(t.driver.device_allocations().live == 0);
  CHECK(t.driver.pinned_allocations().live == 0);
  CHECK(t.driver.failed_releases() == 0);
}

}  // namespace

TEST_CASE("conformance: the null driver, immediate and deferred") {
  for (const bool deferred : {false, true}) {
    for (const int wave_size : {32, 64}) {
      const Target t = null_target({.wave_size = wave_size, .deferred = deferred});
      check_all(t);
      CHECK(t.control->counts().held() == 1);  // the target's own context
    }
  }
}

TEST_CASE("conformance: the vendors' drivers", "[vendors]") {
  std::vector<std::string> absent;
  for (const Vendor vendor : {Vendor::kAmd, Vendor::kNvidia}) {
    std::string why;
    if (const auto target = vendor_target(vendor, &why))
      check_all(*target);
    else
      absent.push_back(std::string(vendor_name(vendor)) + ": " + why);
  }
  if (absent.size() == 2)
    tests::skip_case(absent[0] + "; " + absent[1]);
  else if (!absent.empty())
    tests::skip_part(absent[0]);
}

TEST_CASE("conformance: both vendors' columns on stand-in libraries", "[.standin]") {
  for (const Vendor vendor : {Vendor::kAmd, Vendor::kNvidia}) {
    std::string why;
    const auto target = vendor_target(vendor, &why);
    INFO(why);
    REQUIRE(target);
    if (target->driver.library().find("standin") == std::string::npos) {
      tests::skip_part("a newer library of this machine hides the stand-in: " + target->driver.library());
      continue;
    }
    check_all(*target);
    CHECK(target->device.info().arch == (vendor == Vendor::kAmd ? "gfx942:sramecc+:xnack-" : "sm_90"));
    CHECK(target->device.info().target == (vendor == Vendor::kAmd ? "gfx942" : "sm_90"));
    CHECK(target->device.info().wave_size == (vendor == Vendor::kAmd ? 64 : 32));
    CHECK(target->device.info().pci == "0001:23:04.0");
    CHECK(target->device.info().clock_khz == 2'100'000);
    CHECK(target->device.info().l2_bytes == 4 << 20);
    if (vendor == Vendor::kNvidia) CHECK(overlapped_launches(target->driver.library()) == 2 * 19);
    CHECK(target->driver.version() == (vendor == Vendor::kAmd ? std::getenv("FORGE_STANDIN_HIP") : "13.0"));
  }
}

}  // namespace forge::driver::test
