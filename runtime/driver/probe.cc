// RuntimeCompiler, and probe_drivers: which drivers and compilers this machine has, as `forge-inspect devices` shows.
#include <fmt/format.h>
#include <unistd.h>

#include "runtime/driver/state.h"

namespace forge::driver {

class RuntimeCompiler::Impl {
 public:
  explicit Impl(std::unique_ptr<CompilerApi> api) : api_(std::move(api)) {}
  CompilerApi& api() { return *api_; }

 private:
  std::unique_ptr<CompilerApi> api_;
};

RuntimeCompiler::RuntimeCompiler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RuntimeCompiler::RuntimeCompiler(RuntimeCompiler&&) noexcept = default;
RuntimeCompiler& RuntimeCompiler::operator=(RuntimeCompiler&&) noexcept = default;
RuntimeCompiler::~RuntimeCompiler() = default;

RuntimeCompiler RuntimeCompiler::open(Vendor vendor) {
  switch (vendor) {
    case Vendor::kAmd:
      return RuntimeCompiler(std::make_unique<Impl>(load_hiprtc()));
    case Vendor::kNvidia:
      return RuntimeCompiler(std::make_unique<Impl>(load_nvrtc()));
    case Vendor::kNull:
      break;
  }
  throw Error(ErrorCode::kDevice, "the null driver has no compiler");
}

std::string RuntimeCompiler::library() const {
  return impl_->api().library();
}
std::string RuntimeCompiler::version() const {
  return impl_->api().version();
}
CompileResult RuntimeCompiler::compile(const std::string& source, const std::string& name,
                                       std::span<const std::string> options) const {
  return impl_->api().compile(source, name, options);
}

namespace {

/// Explains why a loaded driver has no device, if the device file is missing or not accessible.
void explain_no_device(Vendor vendor, DriverReport& report) {
  const bool amd = vendor == Vendor::kAmd;
  const char* file = amd ? "/dev/kfd" : "/dev/nvidiactl";
  if (access(file, F_OK) != 0) {
    report.missing.push_back(
        {file, amd ? "a card, with the kernel's amdgpu driver and the package firmware-amd-graphics"
                   : "a card, with the package nvidia-driver (its kernel module must be loaded)"});
  } else if (access(file, R_OK | W_OK) != 0) {
    report.missing.push_back({fmt::format("the right to open {}", file),
                              amd ? "membership in the group render: adduser USER render" : "the group that owns it"});
  }
}

/// Fills the driver part of a report; errors become its problems.
void probe_driver(Vendor vendor, DriverReport& report) {
  try {
    const Driver driver = Driver::open(vendor);
    report.library = driver.library();
    report.version = driver.version();
    report.devices.assign(driver.devices().begin(), driver.devices().end());
    if (report.devices.empty()) explain_no_device(vendor, report);
  } catch (const Error& error) {
    report.problems.push_back(error.line());
    if (has_column(vendor)) {
      report.missing.push_back({fmt::format("a usable {} driver", vendor_name(vendor)), driver_package(vendor)});
    }
  }
}

/// Fills the compiler part of a report.
void probe_compiler(Vendor vendor, DriverReport& report) {
  try {
    const RuntimeCompiler compiler = RuntimeCompiler::open(vendor);
    report.compiler_library = compiler.library();
    report.compiler_version = compiler.version();
  } catch (const Error& error) {
    report.problems.push_back(error.line());
    if (has_column(vendor)) {
      report.missing.push_back({std::string(compiler_name(vendor)), compiler_package(vendor)});
    }
  }
}

}  // namespace

std::vector<DriverReport> probe_drivers() noexcept {
  std::vector<DriverReport> reports(kVendors.size());
  for (std::size_t i = 0; i < reports.size(); ++i) {
    reports[i].vendor = kVendors[i];
    try {
      probe_driver(kVendors[i], reports[i]);
      probe_compiler(kVendors[i], reports[i]);
    } catch (const std::exception& error) {
      reports[i].problems.emplace_back(error.what());
    }
  }
  return reports;
}

}  // namespace forge::driver
