// Sources become code objects of the null driver, and the executor runs them through the driver layer.

#include <numeric>

#include "support/error.h"
#include "tests/gpu_host/host_compiler.h"
#include "tests/gpu_host/support.h"
#include "tests/support/kernel_macros.h"

using namespace forge;
using namespace forge::gpu_host;
using Catch::Matchers::Contains;

namespace {

struct SumArgs {
  const int* in;
  int* out;
  std::int64_t factor;
};

codegen::KernelSource sum_source(int wave, const std::string& entry, int blocks = 2) {
  return {entry, forge::tests::kernel_macros(wave) + R"(
#include "kernels/gpu/prelude/prelude.h"
using namespace forge::gpu;
struct Args {
  const int* in;
  int* out;
  long long factor;
};
FORGE_KERNEL()" + entry +
                     ", " + std::to_string(blocks) + R"(, 64, Args) {
  const int i = block_id() * 64 + thread_id();
  args.out[i] = sum_lanes<kWave>(load(args.in + i)) * static_cast<int>(args.factor);
}
)"};
}

struct HostDevice {
  std::shared_ptr<driver::NullControl> control;
  driver::Driver driver;
  driver::Device device;
  driver::Stream stream;
  HostDevice()
      : control(std::make_shared<driver::NullControl>()),
        driver(driver::open_null((run_on_host(*control, {.order = Order::kReverse}), control))),
        device(driver.device(0)),
        stream(device) {}
};

}  // namespace

TEST_CASE("a compiled kernel runs through the driver layer, launched and recorded") {
  HostKernelCompiler compiler;
  for (const int wave : kWaves) {
    const auto compiled = compiler.compile("host-wave" + std::to_string(wave), std::vector{sum_source(wave, "sums")});
    REQUIRE(compiled.size() == 1);
    CHECK(compiled[0].facts.wave == wave);
    CHECK(compiled[0].compiler == "host");

    HostDevice host;
    const driver::Module module(host.device, compiled[0].code, "sums");
    const auto kernel = module.function("sums");
    const driver::Buffer memory(host.device, 2 * 512, "numbers");
    int* in = reinterpret_cast<int*>(memory.address().value);
    int* out = in + 128;
    std::iota(in, in + 128, 1);
    const auto launch = [&](std::int64_t factor, unsigned blocks = 2, unsigned threads = 64) {
      const SumArgs args{in, out, factor};
      return host.stream.launch_block(kernel, {blocks}, {threads}, 0, std::as_bytes(std::span(&args, 1)));
    };
    const auto check_sums = [&](int factor) {
      for (int i = 0; i < 128; ++i) REQUIRE(out[i] == factor * (wave * (i / wave * wave + 1) + wave * (wave - 1) / 2));
    };
    launch(3).check("launching");
    check_sums(3);
    const auto graph = driver::GraphExec::record(host.stream, "sums", [&] { launch(5).check("recording"); });
    check_sums(3);
    graph.launch(host.stream).check("replaying");
    check_sums(5);
    CHECK_THROWS_WITH((void)launch(1, 3), Contains("sums: it has 2 blocks, not 3"));
    CHECK_THROWS_WITH((void)launch(1, 2, 32), Contains("sums: a block has 64 threads, not 32"));
  }
}

TEST_CASE("a kernel's fault is thrown by its launch") {
  HostKernelCompiler compiler;
  codegen::KernelSource source = sum_source(32, "faulty");
  source.text.replace(source.text.find("sum_lanes<kWave>"), 16, "uniform");
  const auto compiled = compiler.compile("gfx1100", std::vector{source});
  HostDevice host;
  const driver::Module module(host.device, compiled[0].code, "faulty");
  Buffer<int> in{128}, out{128};
  std::iota(in.data(), in.data() + 128, 1);
  const SumArgs args{in.data(), out.data(), 1};
  CHECK_THROWS_AS(
      (void)host.stream.launch_block(module.function("faulty"), {2}, {64}, 0, std::as_bytes(std::span(&args, 1))),
      LaneFault);
}

TEST_CASE("equal sources are compiled once") {
  HostKernelCompiler compiler;
  const std::vector sources{sum_source(32, "one"), sum_source(32, "two"), sum_source(32, "one"),
                            sum_source(32, "three")};
  const auto first = compiler.compile("host-wave32", sources);
  CHECK(compiler.compilations() == 3);
  CHECK(first[0].code == first[2].code);
  CHECK(first[0].code != first[1].code);
  CHECK(compiler.compile("host-wave32", sources)[3].code == first[3].code);
  CHECK(compiler.compilations() == 3);
  CHECK(load_host_kernel("three", first[3].code).code.threads == 64);
}

TEST_CASE("a compile error is reported with the compiler's message") {
  HostKernelCompiler compiler;
  const auto refused = [&](const std::string& target, codegen::KernelSource source) {
    try {
      compiler.compile(target, std::vector{std::move(source)});
    } catch (const Error& error) {
      return error.line();
    }
    return std::string();
  };
  codegen::KernelSource broken = sum_source(32, "broken");
  broken.text += "int wrong = nonsense;\n";
  CHECK_THAT(refused("host-wave32", broken), Contains("refuses kernel broken") && Contains("nonsense"));
  CHECK_THAT(refused("host-wave64", sum_source(32, "small")), Contains("kernel small is not for host-wave64"));
  codegen::KernelSource renamed = sum_source(32, "one");
  renamed.entry = "other";
  CHECK_THAT(refused("host-wave32", renamed), Contains("there is no kernel 'other'"));
  CHECK_THROWS_WITH(load_host_kernel("none", {}), Contains("no code object of the host"));
}
