// Makes the devices and modules that the conformance suite runs on (target.h).
#include "tests/driver/target.h"

#include <array>
#include <catch2/catch.hpp>

namespace forge::driver::test {

namespace {

constexpr const char* kSource = R"(
extern "C" __global__ void add_value(int* data, int n, int value) {
  int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) data[i] += value;
}
struct AddBlock {
  int* data;
  long long n, value;
};
extern "C" __global__ void add_block(AddBlock args) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  long long i = static_cast<long long>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < args.n) args.data[i] += static_cast<int>(args.value);
}
)";

}  // namespace

std::vector<std::byte> prepare_null(NullControl& control) {
  control.set_kernel(kKernel, [](const NullLaunch& launch) {
    auto* data = launch.pointer<std::int32_t>(0);
    const auto threads = static_cast<int>(launch.grid.x * launch.block.x);
    for (int i = 0; i < threads && i < launch.arg<int>(1); ++i) data[i] += launch.arg<int>(2);
  });
  control.set_kernel(kBlockKernel, [](const NullLaunch& launch) {
    const auto args = launch.arg<AddBlock>(0);
    auto* data = reinterpret_cast<std::int32_t*>(args.data.value);
    const auto threads = static_cast<std::int64_t>(launch.grid.x * launch.block.x);
    for (std::int64_t i = 0; i < threads && i < args.n; ++i) data[i] += static_cast<std::int32_t>(args.value);
  });
  const std::array kernels{NullKernelImage{.name = kKernel, .arg_bytes = {8, 4, 4}},
                           NullKernelImage{.name = kBlockKernel, .arg_bytes = {sizeof(AddBlock)}}};
  return null_image(kernels);
}

Target null_target(NullOptions options) {
  auto control = std::make_shared<NullControl>(std::move(options));
  std::vector<std::byte> image = prepare_null(*control);
  Driver driver = open_null(control);
  Device device = driver.device(0);
  return {"null", std::move(driver), std::move(device), std::move(image), std::move(control)};
}

std::optional<Target> vendor_target(Vendor vendor, std::string* why) {
  std::optional<Driver> driver;
  std::optional<RuntimeCompiler> compiler;
  bool standin = false;
  try {
    driver = Driver::open(vendor);
    if (driver->devices().empty()) {
      *why = driver->library() + " finds no card";
      return std::nullopt;
    }
    standin = driver->library().find("standin") != std::string::npos;
    if (!standin) compiler = RuntimeCompiler::open(vendor);
  } catch (const Error& error) {
    *why = error.line();
    return std::nullopt;
  }
  Device device = driver->device(0);
  std::vector<std::byte> code;
  if (standin) {
    const auto magic = std::as_bytes(std::span("standin-module"));  // stand-ins have the kernel built in
    code.assign(magic.begin(), magic.end());
  } else {
    const std::string option =
        (vendor == Vendor::kAmd ? "--offload-arch=" : "--gpu-architecture=") + device.info().arch;
    CompileResult compiled = compiler->compile(kSource, "add_value.hip", std::span(&option, 1));
    INFO(compiled.failure << ": " << compiled.log);
    REQUIRE(compiled.ok());
    code = std::move(compiled.code);
  }
  std::string name = std::string(vendor_name(vendor)) + " (" + driver->library() + ")";
  return Target{std::move(name), *std::move(driver), std::move(device), std::move(code), nullptr};
}

}  // namespace forge::driver::test
