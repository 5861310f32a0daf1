// Behaviour that only the null driver can show: a failure of any call, lost devices, missing waits, leaks, strict
// argument checks.
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "tests/driver/target.h"

namespace forge::driver::test {

namespace {

/// The life of a small engine: allocation, an upload, and a recorded step that is replayed twice. Returns the last
/// value read.
std::int32_t small_run(const Driver& driver, std::span<const std::byte> image) {
  const Device device = driver.device(0);
  const Stream stream(device), copies(device);
  Event uploaded(device);
  const PinnedBuffer host(device, 256, "staging");
  const Buffer data(device, 256, "arena");
  const Module module(device, image, "kernels");
  const Function kernel = module.function(kKernel);
  std::memset(host.data(), 0, 256);
  copies.upload(data, 0, host, 0, 256).check("uploading");
  uploaded.record(copies).check("uploading");
  stream.wait(uploaded).check("uploading");
  const GraphExec step = GraphExec::record(stream, "a step", [&] {
    stream.launch(kernel, {1, 1, 1}, {64, 1, 1}, 0, data.address(), 64, 5).check("recording");
    stream.download(host, 0, data, 0, 256).check("recording");
  });
  for (int i = 0; i < 2; ++i) step.launch(stream).check("a step");
  stream.synchronize().check("reading");
  std::int32_t value = 0;
  std::memcpy(&value, host.data() + 252, 4);
  return value;
}

Buffer allocate(const Device& device) {
  return {device, 64, "memory"};
}

}  // namespace

// Counts the driver calls of a complete run, then repeats the run once for each call with that call failing.
TEST_CASE("a failure of any call is an error that names the call, and nothing leaks") {
  auto control = std::make_shared<NullControl>();
  const std::vector<std::byte> image = prepare_null(*control);
  std::uint64_t calls = 0;
  {
    const Driver driver = open_null(control);
    const std::uint64_t before = control->counts().calls;
    CHECK(small_run(driver, image) == 10);
    calls = control->counts().calls - before;
    CHECK(control->counts().held() == 0);
  }
  REQUIRE(calls > 40);
  std::uint64_t thrown = 0, released = 0;
  for (std::uint64_t nth = 1; nth <= calls; ++nth) {
    INFO("call " << nth);
    auto one = std::make_shared<NullControl>();
    const std::vector<std::byte> code = prepare_null(*one);
    const Driver driver = open_null(one);
    one->fail_call(nth, kNullIllegalState);
    bool failed = false;
    try {
      const std::int32_t value = small_run(driver, code);
      CHECK(value == 10);
    } catch (const Error& error) {
      failed = true;
      CHECK(error.code() == ErrorCode::kDevice);
      CHECK(error.line().find("illegal_state (401)") != std::string::npos);
    }
    const std::uint64_t left = driver.failed_releases();
    CHECK(failed != (left > 0));  // thrown where a caller can handle it, counted in destructors
    CHECK(one->counts().held() == left);
    (failed ? thrown : released) += 1;
  }
  CHECK(thrown > 25);
  CHECK(released > 10);
}

TEST_CASE("an error says what was being done, which function failed, and how") {
  const Target t = null_target();
  t.control->fail("stream_create", 2, kNullOutOfMemory);
  const Stream fine(t.device);
  try {
    const Stream fails(t.device);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kMemory);
    CHECK(error.line() ==
          "error[memory]: creating a stream: stream_create returned out_of_memory (2): out of memory; free memory on "
          "the device, or use a smaller context (-c)");
  }
  CHECK(t.control->calls("stream_create") == 2);
  t.control->fail("mem_alloc");
  t.control->clear_failures();
  CHECK(allocate(t.device).bytes() == 64);
}

TEST_CASE("after a device is lost every call fails with exit status 4") {
  auto t = std::make_unique<Target>(null_target());
  auto stream = std::make_unique<Stream>(t->device);
  auto memory = std::make_unique<Buffer>(allocate(t->device));
  t->control->lose_device();
  const Status status = stream->fill(*memory, 0, 0, 64);
  CHECK(status.outcome() == Outcome::kLost);
  const Error error = status.error("a decode step");
  CHECK(error.exit_status() == 4);
  CHECK(error.line().find("restart the program") != std::string::npos);
  CHECK(stream->synchronize().outcome() == Outcome::kLost);
  CHECK_THROWS_AS(Event(t->device), Error);
  CHECK_THROWS_AS(t->device.free_bytes(), Error);
  memory.reset();
  stream.reset();
  CHECK(t->driver.failed_releases() == 2);
  CHECK(t->driver.device_allocations().live == 0);
}

TEST_CASE("memory has a limit, and an error states the sizes of what does not fit") {
  const Target t = null_target({.memory_bytes = 1 << 20});
  CHECK(t.device.free_bytes() == 1 << 20);
  const Buffer most(t.device, 1000000, "weights");
  CHECK(t.device.free_bytes() == (1 << 20) - 1000000);
  try {
    const Buffer more(t.device, 100000, "KV pool");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kMemory);
    CHECK(error.line().find("100000 bytes") != std::string::npos);
    CHECK(error.line().find("48576 bytes) of") != std::string::npos);
  }
  const NullCounts counts = t.control->counts();
  CHECK(counts.device_blocks == 1);
  CHECK(counts.device_bytes == 1000000);
  t.control->limit_memory(0);
  CHECK(t.device.free_bytes() == 0);
}

// A synchronous driver hides a missing wait, because the work is already done. The deferred driver runs work only on a
// wait, so reading too early gives the old data every time, where a GPU would do so only sometimes.
TEST_CASE("a deferred driver makes a missing wait visible as missing data") {
  const Target t = null_target({.deferred = true});
  const Stream copies(t.device), stream(t.device);
  Event uploaded(t.device);
  const PinnedBuffer in(t.device, 64, "in"), out(t.device, 64, "out");
  const Buffer data = allocate(t.device);
  std::memset(in.data(), 7, 64);
  copies.upload(data, 0, in, 0, 64).check("test");
  uploaded.record(copies).check("test");
  stream.download(out, 0, data, 0, 64).check("test");
  CHECK(t.control->counts().pending == 3);
  stream.synchronize().check("test");
  CHECK(out.data()[0] == std::byte{0xff});  // fresh memory: the upload has not run
  CHECK(t.control->counts().pending == 2);
  CHECK(uploaded.query().outcome() == Outcome::kNotReady);
  stream.wait(uploaded).check("test");
  stream.download(out, 0, data, 0, 64).check("test");
  stream.synchronize().check("test");
  CHECK(out.data()[0] == std::byte{7});
  CHECK(uploaded.query().ok());
  CHECK(t.control->counts().executed == 5);
}

TEST_CASE("waiting for an event means its recording at the time of the call, not a later one") {
  const Target t = null_target({.deferred = true});
  const Stream first(t.device), second(t.device);
  Event event(t.device);
  const Buffer a = allocate(t.device);
  first.fill(a, 0, 1, 64).check("test");
  event.record(first).check("test");
  second.wait(event).check("test");
  first.fill(a, 0, 2, 64).check("test");
  event.record(first).check("test");
  second.synchronize().check("test");
  CHECK(t.control->counts().pending == 2);  // the second fill and the second recording of the event
  event.synchronize().check("test");
  CHECK(t.control->counts().pending == 0);
}

TEST_CASE("recordings: forbidden calls, and streams that were not joined") {
  const Target t = null_target();
  const Stream stream(t.device), side(t.device);
  Event event(t.device), outside(t.device);
  const Buffer a = allocate(t.device);
  const auto record = [&](auto&& body) { return GraphExec::record(stream, "a step", body); };
  const auto fails_with = [&](const char* text, auto&& body) {
    try {
      static_cast<void>(record(body));
      FAIL("no error: " << text);
    } catch (const Error& error) {
      INFO(error.line());
      CHECK(error.line().find(text) != std::string::npos);
    }
  };
  fails_with("capture_unsupported", [&] { static_cast<void>(allocate(t.device)); });
  fails_with("capture_invalidated", [&] { CHECK_FALSE(stream.query().ok()); });
  fails_with("capture_invalidated", [&] { CHECK_FALSE(stream.synchronize().ok()); });
  fails_with("illegal_state", [&] { static_cast<void>(record([] {})); });
  fails_with("capture_unjoined", [&] {
    event.record(stream).check("test");
    side.wait(event).check("test");
    side.fill(a, 0, 1, 64).check("test");
  });
  fails_with("capture_invalidated", [&] {
    outside.record(side).check("test");
    CHECK_FALSE(stream.wait(outside).ok());
  });
  // A stream joined through a third stream counts as joined.
  const Stream third(t.device);
  const GraphExec graph = record([&] {
    event.record(stream).check("test");
    side.wait(event).check("test");
    side.fill(a, 0, 1, 64).check("test");
    event.record(side).check("test");
    third.wait(event).check("test");
    event.record(third).check("test");
    stream.wait(event).check("test");
  });
  graph.launch(stream).check("test");
  CHECK(t.control->counts().graphs == 0);
  CHECK(t.control->counts().graph_execs == 1);
  CHECK(t.driver.failed_releases() == 0);
}

TEST_CASE("recorded work uses the values at recording, and runs only when launched") {
  const Target t = null_target();
  const Stream stream(t.device);
  int launches = 0, seen = 0;
  t.control->set_kernel(kKernel, [&](const NullLaunch& launch) {
    ++launches;
    seen = launch.arg<int>(2);
    CHECK(launch.grid.x == 3);
    CHECK(launch.block.x == 64);
    CHECK(launch.lds_bytes == 128);
    CHECK_THROWS_AS(launch.arg<double>(2), Error);
  });
  const Module module(t.device, t.image, "kernels");
  const Function kernel = module.function(kKernel);
  int value = 11;
  const GraphExec graph = GraphExec::record(
      stream, "a step", [&] { stream.launch(kernel, {3, 1, 1}, {64, 1, 1}, 128, Address{}, 0, value).check("test"); });
  value = 12;
  CHECK(launches == 0);
  graph.launch(stream).check("test");
  graph.launch(stream).check("test");
  CHECK(launches == 2);
  CHECK(seen == 11);
}

TEST_CASE("an argument struct of the wrong size is refused, and hints reach the driver") {
  const Target t = null_target();
  const Stream stream(t.device);
  const Module module(t.device, t.image, "kernels");
  const Function kernel = module.function(kBlockKernel), plain = module.function(kKernel);
  std::vector<bool> overlapped;
  t.control->set_kernel(kBlockKernel,
                        [&](const NullLaunch& launch) { overlapped.push_back(launch.hints.overlap_predecessor); });
  const std::vector<std::byte> args(sizeof(AddBlock)), longer(sizeof(AddBlock) + 8);
  const auto launch = [&](const Function& function, std::span<const std::byte> bytes, bool overlap) {
    return stream.launch_block(function, {1, 1, 1}, {64, 1, 1}, 0, bytes, {.overlap_predecessor = overlap});
  };
  CHECK(launch(kernel, args, false).ok());
  CHECK(launch(kernel, args, true).ok());
  CHECK(overlapped == std::vector<bool>{false, true});
  CHECK(launch(kernel, longer, false).code() == kNullInvalidValue);
  CHECK(launch(kernel, std::span(args).first(8), false).code() == kNullInvalidValue);
  CHECK(launch(plain, args, false).code() == kNullInvalidValue);
}

TEST_CASE("freeing memory that a recorded graph uses is a fault of the replay") {
  const Target t = null_target();
  const Stream stream(t.device);
  auto data = std::make_unique<Buffer>(allocate(t.device));
  const GraphExec graph = GraphExec::record(stream, "a step", [&] { stream.fill(*data, 0, 1, 64).check("recording"); });
  graph.launch(stream).check("test");
  data.reset();
  const Status status = graph.launch(stream);
  CHECK(status.outcome() == Outcome::kLost);
  CHECK(status.error("a step").line().find("illegal_address") != std::string::npos);
}

TEST_CASE("unsuitable kernels, modules and devices are refused") {
  auto control = std::make_shared<NullControl>(NullOptions{.devices = 2, .lds_bytes = 1024});
  const std::vector<std::byte> image = prepare_null(*control);
  const Driver driver = open_null(control);
  const Device first = driver.device(0), second = driver.device(1);
  CHECK(first.info().arch == "null:feature+");
  CHECK(first.info().target == "null");
  const Stream stream(second);
  const Module module(first, image, "kernels");
  const Function kernel = module.function(kKernel);
  CHECK(stream.launch(kernel, {1, 1, 1}, {64, 1, 1}, 0, Address{}, 0, 0).outcome() == Outcome::kRefused);
  CHECK_THROWS_AS(driver.device(2), Error);

  const std::array small{NullKernelImage{
      .name = "small", .facts = {.registers = 9, .lds_bytes = 1000, .scratch_bytes = 16, .threads_per_block_max = 64}}};
  const Module limited(second, null_image(small), "kernels");
  const Function narrow = limited.function("small");
  CHECK(narrow.facts().scratch_bytes == 16);
  CHECK(narrow.occupancy(64, 0) == 1);
  CHECK(narrow.occupancy(128, 0) == 0);
  CHECK(stream.launch(narrow, {1, 1, 1}, {64, 1, 1}, 24).ok());
  CHECK(stream.launch(narrow, {1, 1, 1}, {64, 1, 1}, 25).code() == kNullOutOfResources);
  CHECK(stream.launch(narrow, {1, 1, 1}, {65, 1, 1}, 0).code() == kNullOutOfResources);
  for (const char* text : {"", "x", "forge-null-module", "forge-null-module 99999999999999999999",
                           "forge-null-module 1\nname 1 1 1 1 4096\n"}) {
    INFO(text);
    const auto bytes = std::as_bytes(std::span(text, std::strlen(text) + 1));
    CHECK_THROWS_AS(Module(first, bytes, "kernels"), Error);
  }
}

TEST_CASE("finding no device is not a failure of the driver") {
  const Driver driver = open_null(std::make_shared<NullControl>(NullOptions{.devices = 0}));
  CHECK(driver.devices().empty());
  CHECK_THROWS_AS(driver.device(0), Error);
}

TEST_CASE("a driver with an invalid wave size or architecture is refused") {
  CHECK_THROWS_AS(open_null(std::make_shared<NullControl>(NullOptions{.wave_size = 48})), Error);
  CHECK_THROWS_AS(open_null(std::make_shared<NullControl>(NullOptions{.arch = ""})), Error);
}

TEST_CASE("objects outlive the driver and device that made them") {
  auto control = std::make_shared<NullControl>();
  {
    std::optional<Stream> stream;
    std::optional<Buffer> memory;
    {
      const Driver driver = open_null(control);
      const Device device = driver.device(0);
      stream.emplace(device);
      memory.emplace(device, 64, "memory");
    }
    stream->fill(*memory, 0, 3, 64).check("test");
    CHECK(control->counts().contexts == 1);
  }
  CHECK(control->counts().held() == 0);
}

TEST_CASE("threads can use a device without making it current themselves") {
  const Target t = null_target();
  std::string problem;
  std::thread([&] {
    try {
      const Stream stream(t.device);
      const Buffer data = allocate(t.device);
      stream.fill(data, 0, 1, 64).check("in a thread");
    } catch (const Error& error) {
      problem = error.line();
    }
  }).join();
  CHECK(problem.empty());
}

}  // namespace forge::driver::test
