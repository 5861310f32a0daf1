// The AMD implementation of Api and CompilerApi: libamdhip64 (versions 5 to 7) and hipRTC, loaded at run time. Types
// come from HIP's headers, so wrong argument types do not compile. Source: HIP API reference,
// https://rocm.docs.amd.com/projects/HIP (runtime API and hipRTC).

// NOLINTBEGIN(bugprone-reserved-identifier): switches of HIP's headers
#define __HIP_PLATFORM_AMD__ 1
#define __HIP_PLATFORM_HCC__ 1
#define __HIP_DISABLE_CPP_FUNCTIONS__ 1  // C++ overloads, whose address cannot be taken
// NOLINTEND(bugprone-reserved-identifier)
#include <hip/hip_runtime_api.h>
#include <hip/hip_version.h>
#include <hip/hiprtc.h>
// Newer headers map this name to the layout of HIP 6; both functions are needed under their own names.
#undef hipGetDeviceProperties

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>

#include "runtime/driver/api.h"
#include "runtime/driver/compile_program.h"
#include "runtime/driver/hip_properties.h"
#include "runtime/driver/library.h"

namespace forge::driver {

namespace {

using HipPropertiesFunction = hipError_t (*)(HipProperties*, int);
using HipPropertiesR0600Function = hipError_t (*)(HipPropertiesR0600*, int);
using HipGraphUploadFunction = hipError_t (*)(hipGraphExec_t, hipStream_t);

// Compares our layouts (hip_properties.h) with the headers of the build: whichever of the two layouts these have.
#if HIP_VERSION_MAJOR < 6
using HeaderProperties = hipDeviceProp_t;
using OwnProperties = HipProperties;
static_assert(std::is_same_v<decltype(&::hipGetDeviceProperties), hipError_t (*)(HeaderProperties*, int)>);
#else
using HeaderProperties = hipDeviceProp_tR0600;
using OwnProperties = HipPropertiesR0600;
static_assert(std::is_same_v<decltype(&::hipGetDevicePropertiesR0600), hipError_t (*)(HeaderProperties*, int)>);
static_assert(std::is_same_v<decltype(&::hipGraphUpload), HipGraphUploadFunction>);
#endif
static_assert(sizeof(OwnProperties) >= sizeof(HeaderProperties));
static_assert(offsetof(OwnProperties, warp_size) == offsetof(HeaderProperties, warpSize));
static_assert(offsetof(OwnProperties, max_grid_size) == offsetof(HeaderProperties, maxGridSize));
static_assert(offsetof(OwnProperties, clock_rate_khz) == offsetof(HeaderProperties, clockRate));
static_assert(offsetof(OwnProperties, multi_processor_count) == offsetof(HeaderProperties, multiProcessorCount));
static_assert(offsetof(OwnProperties, l2_cache_size) == offsetof(HeaderProperties, l2CacheSize));
static_assert(offsetof(OwnProperties, pci_bus_id) == offsetof(HeaderProperties, pciBusID));
static_assert(offsetof(OwnProperties, gcn_arch_name) == offsetof(HeaderProperties, gcnArchName));
static_assert(offsetof(OwnProperties, integrated) == offsetof(HeaderProperties, integrated));
static_assert(offsetof(OwnProperties, max_shared_memory_per_multi_processor) ==
              offsetof(HeaderProperties, maxSharedMemoryPerMultiProcessor));

// Function tables, generated from functions.def: one pointer per function, of the type that the header declares.
#define FORGE_HIPRTC(name, need)
#define FORGE_CUDA(name, need)
#define FORGE_NVRTC(name, need)
struct HipFunctions {
#define FORGE_HIP(name, need) decltype(&::name) name = nullptr;  // NOLINT(bugprone-macro-parentheses): a member
#define FORGE_HIP_TYPED(name, need, type) type name = nullptr;
#include "runtime/driver/functions.def"
};
#define FORGE_HIP(name, need)
#define FORGE_HIP_TYPED(name, need, type)
#define FORGE_CUDA(name, need)
#define FORGE_NVRTC(name, need)
struct HiprtcFunctions {
#define FORGE_HIPRTC(name, need) decltype(&::name) name = nullptr;  // NOLINT(bugprone-macro-parentheses): a member
#include "runtime/driver/functions.def"
};

constexpr int kVersions[] = {7, 6, 5};
constexpr const char* kFolder = "/opt/rocm/lib";
/// Debian's hipRTC, for the case that another libamdhip64 comes first in the linker's search order.
constexpr const char* kDebianHiprtc = "/usr/lib/x86_64-linux-gnu/libamdhip64.so.5";

std::string bounded_text(const char* text, std::size_t size) {
  return {text, strnlen(text, size)};
}

/// Copies the fields that both layouts have.
template <typename Properties>
void take(const Properties& from, DeviceInfo* info) {
  info->name = bounded_text(from.name, sizeof(from.name));
  info->arch = bounded_text(from.gcn_arch_name, sizeof(from.gcn_arch_name));
  info->pci = fmt::format("{:04x}:{:02x}:{:02x}.0", from.pci_domain_id, from.pci_bus_id, from.pci_device_id);
  info->wave_size = from.warp_size;
  info->memory_bytes = from.total_global_mem;
  info->units = from.multi_processor_count;
  info->lds_bytes_per_block = static_cast<std::uint32_t>(from.shared_mem_per_block);
  info->lds_bytes_per_unit = static_cast<std::uint32_t>(from.max_shared_memory_per_multi_processor);
  info->threads_per_block_max = from.max_threads_per_block;
  info->threads_per_unit_max = from.max_threads_per_multi_processor;
  for (std::size_t i = 0; i < 3; ++i) {
    info->block_max[i] = static_cast<std::uint32_t>(from.max_threads_dim[i]);
    info->grid_max[i] = static_cast<std::uint32_t>(from.max_grid_size[i]);
  }
  info->clock_khz = from.clock_rate_khz;
  info->memory_clock_khz = from.memory_clock_rate_khz;
  info->memory_bus_bits = from.memory_bus_width;
  info->l2_bytes = static_cast<std::uint64_t>(from.l2_cache_size > 0 ? from.l2_cache_size : 0);
  info->integrated = from.integrated != 0;
}

class HipApi final : public Api {
 public:
  explicit HipApi(const Library& library) : path_(library.path()) {
    SymbolReader reader(library);
    constexpr bool kRequired = true, kOptional = false;
#define FORGE_HIP(name, need) reader.read(f_.name, #name, need);
#define FORGE_HIP_TYPED(name, need, type) FORGE_HIP(name, need)
#define FORGE_HIPRTC(name, need)
#define FORGE_CUDA(name, need)
#define FORGE_NVRTC(name, need)
#include "runtime/driver/functions.def"
    // Without the R0600 function (HIP before 6) the old one is required.
    if (f_.hipGetDevicePropertiesR0600 == nullptr) {
      reader.read(f_.hipGetDeviceProperties, "hipGetDeviceProperties", true);
    }
    reader.finish(driver_package(Vendor::kAmd));
  }

  Vendor vendor() const noexcept override { return Vendor::kAmd; }
  std::string library() const override { return path_; }
  const char* code_name(int code) const noexcept override {
    const char* name = f_.hipGetErrorName(static_cast<hipError_t>(code));
    return name != nullptr ? name : "unknown";
  }
  const char* code_text(int code) const noexcept override {
    const char* text = f_.hipGetErrorString(static_cast<hipError_t>(code));
    return text != nullptr ? text : "unknown";
  }
  Outcome classify(int code) const noexcept override {
    switch (code) {
      case hipSuccess:
        return Outcome::kOk;
      case hipErrorNotReady:
        return Outcome::kNotReady;
      case hipErrorOutOfMemory:
        return Outcome::kOutOfMemory;
      case hipErrorNoDevice:
      case hipErrorInvalidDevice:
        return Outcome::kNoDevice;
      case hipErrorECCNotCorrectable:
      case hipErrorIllegalAddress:
      case hipErrorLaunchTimeOut:
      case hipErrorContextIsDestroyed:
      case hipErrorAssert:
      case hipErrorLaunchFailure:
        return Outcome::kLost;
      default:
        return Outcome::kFailed;
    }
  }

// result() clears the thread's last error, because a later kernel launch by other code in the process would report it
// as its own.
#define FORGE_CALL(name, ...) result(#name, f_.name(__VA_ARGS__))

  Status start() override { return FORGE_CALL(hipInit, 0); }
  Status versions(int* driver, int* runtime) override {
    if (Status status = FORGE_CALL(hipDriverGetVersion, driver); !status.ok()) return status;
    return FORGE_CALL(hipRuntimeGetVersion, runtime);
  }
  Status device_count(int* count) override { return FORGE_CALL(hipGetDeviceCount, count); }
  Status describe(int ordinal, DeviceInfo* info) override {
    if (f_.hipGetDevicePropertiesR0600 != nullptr) {
      auto properties = std::make_unique<HipPropertiesR0600>();
      const Status status = FORGE_CALL(hipGetDevicePropertiesR0600, properties.get(), ordinal);
      if (status.ok()) take(*properties, info);
      return status;
    }
    auto properties = std::make_unique<HipProperties>();
    const Status status = FORGE_CALL(hipGetDeviceProperties, properties.get(), ordinal);
    if (status.ok()) take(*properties, info);
    return status;
  }
  Status open_device(int ordinal) override { return make_current(ordinal); }
  Status close_device(int) override { return {}; }  // HIP's contexts live as long as the process
  Status make_current(int ordinal) override { return FORGE_CALL(hipSetDevice, ordinal); }

  Status memory_info(std::size_t* free_bytes, std::size_t* total_bytes) override {
    return FORGE_CALL(hipMemGetInfo, free_bytes, total_bytes);
  }
  Status mem_alloc(void** memory, std::size_t bytes) override { return FORGE_CALL(hipMalloc, memory, bytes); }
  Status mem_free(void* memory) override { return FORGE_CALL(hipFree, memory); }
  Status host_alloc(void** memory, std::size_t bytes) override {
    // Request coherent memory explicitly: otherwise an environment variable decides. The device uses the host's
    // address.
    return FORGE_CALL(hipHostMalloc, memory, bytes,
                      hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent);
  }
  Status host_free(void* memory) override { return FORGE_CALL(hipHostFree, memory); }

  Status copy_to_device(void* to, const void* from, std::size_t bytes, void* stream) override {
    return FORGE_CALL(hipMemcpyAsync, to, from, bytes, hipMemcpyHostToDevice, stream_of(stream));
  }
  Status copy_to_host(void* to, const void* from, std::size_t bytes, void* stream) override {
    return FORGE_CALL(hipMemcpyAsync, to, from, bytes, hipMemcpyDeviceToHost, stream_of(stream));
  }
  Status copy_on_device(void* to, const void* from, std::size_t bytes, void* stream) override {
    return FORGE_CALL(hipMemcpyAsync, to, from, bytes, hipMemcpyDeviceToDevice, stream_of(stream));
  }
  Status fill_bytes(void* to, std::uint8_t value, std::size_t bytes, void* stream) override {
    return FORGE_CALL(hipMemsetD8Async, to, value, bytes, stream_of(stream));
  }
  Status fill_words(void* to, std::uint32_t value, std::size_t words, void* stream) override {
    return FORGE_CALL(hipMemsetD32Async, to, static_cast<int>(value), words, stream_of(stream));
  }

  Status stream_create(void** stream) override {
    return FORGE_CALL(hipStreamCreateWithFlags, reinterpret_cast<hipStream_t*>(stream), hipStreamNonBlocking);
  }
  Status stream_destroy(void* stream) override { return FORGE_CALL(hipStreamDestroy, stream_of(stream)); }
  Status stream_query(void* stream) override { return FORGE_CALL(hipStreamQuery, stream_of(stream)); }
  Status stream_synchronize(void* stream) override { return FORGE_CALL(hipStreamSynchronize, stream_of(stream)); }
  Status stream_wait(void* stream, void* event) override {
    return FORGE_CALL(hipStreamWaitEvent, stream_of(stream), event_of(event), 0);
  }

  Status event_create(void** event, EventOptions options) override {
    const unsigned flags = (options.timing ? hipEventDefault : hipEventDisableTiming) |
                           (options.blocking ? hipEventBlockingSync : hipEventDefault);
    return FORGE_CALL(hipEventCreateWithFlags, reinterpret_cast<hipEvent_t*>(event), flags);
  }
  Status event_destroy(void* event) override { return FORGE_CALL(hipEventDestroy, event_of(event)); }
  Status event_record(void* event, void* stream) override {
    return FORGE_CALL(hipEventRecord, event_of(event), stream_of(stream));
  }
  Status event_query(void* event) override { return FORGE_CALL(hipEventQuery, event_of(event)); }
  Status event_synchronize(void* event) override { return FORGE_CALL(hipEventSynchronize, event_of(event)); }
  Status event_elapsed(float* milliseconds, void* from, void* to) override {
    return FORGE_CALL(hipEventElapsedTime, milliseconds, event_of(from), event_of(to));
  }

  Status module_load(void** module, std::span<const std::byte> image) override {
    return FORGE_CALL(hipModuleLoadData, reinterpret_cast<hipModule_t*>(module), image.data());
  }
  Status module_unload(void* module) override { return FORGE_CALL(hipModuleUnload, static_cast<hipModule_t>(module)); }
  Status module_function(void** function, void* module, const char* name) override {
    return FORGE_CALL(hipModuleGetFunction, reinterpret_cast<hipFunction_t*>(function),
                      static_cast<hipModule_t>(module), name);
  }
  Status function_facts(void* function, FunctionFacts* facts) override {
    if (f_.hipFuncGetAttribute == nullptr) return Status::unavailable("hipFuncGetAttribute");
    const std::pair<hipFunction_attribute, int*> wanted[] = {
        {HIP_FUNC_ATTRIBUTE_NUM_REGS, &facts->registers},
        {HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &facts->lds_bytes},
        {HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &facts->scratch_bytes},
        {HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &facts->threads_per_block_max},
    };
    for (const auto& [attribute, value] : wanted) {
      Status status = FORGE_CALL(hipFuncGetAttribute, value, attribute, static_cast<hipFunction_t>(function));
      if (!status.ok()) return status;
    }
    return {};
  }
  // Nothing to do: a block may use all of a device's LDS. (hipFuncSetAttribute would not work anyway: it takes the
  // address of a host function, which kernels of loaded modules do not have.)
  Status allow_lds(void*, std::uint32_t) override { return {}; }
  Status occupancy(int* blocks, void* function, int threads, std::size_t lds_bytes) override {
    if (f_.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor == nullptr) {
      return Status::unavailable("hipModuleOccupancyMaxActiveBlocksPerMultiprocessor");
    }
    return FORGE_CALL(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor, blocks, static_cast<hipFunction_t>(function),
                      threads, lds_bytes);
  }
  Status launch(const LaunchCall& c) override {
    return FORGE_CALL(hipModuleLaunchKernel, static_cast<hipFunction_t>(c.function), c.grid.x, c.grid.y, c.grid.z,
                      c.block.x, c.block.y, c.block.z, c.lds_bytes, stream_of(c.stream), c.args, nullptr);
  }

  Status capture_begin(void* stream) override {
    return FORGE_CALL(hipStreamBeginCapture, stream_of(stream), hipStreamCaptureModeThreadLocal);
  }
  Status capture_end(void* stream, void** graph) override {
    *graph = nullptr;
    return FORGE_CALL(hipStreamEndCapture, stream_of(stream), reinterpret_cast<hipGraph_t*>(graph));
  }
  Status graph_destroy(void* graph) override { return FORGE_CALL(hipGraphDestroy, static_cast<hipGraph_t>(graph)); }
  Status graph_instantiate(void** exec, void* graph) override {
    return FORGE_CALL(hipGraphInstantiate, reinterpret_cast<hipGraphExec_t*>(exec), static_cast<hipGraph_t>(graph),
                      nullptr, nullptr, 0);
  }
  Status graph_exec_destroy(void* exec) override {
    return FORGE_CALL(hipGraphExecDestroy, static_cast<hipGraphExec_t>(exec));
  }
  Status graph_upload(void* exec, void* stream) override {
    if (f_.hipGraphUpload == nullptr) return Status::unavailable("hipGraphUpload");
    return FORGE_CALL(hipGraphUpload, static_cast<hipGraphExec_t>(exec), stream_of(stream));
  }
  Status graph_launch(void* exec, void* stream) override {
    return FORGE_CALL(hipGraphLaunch, static_cast<hipGraphExec_t>(exec), stream_of(stream));
  }
#undef FORGE_CALL

 private:
  static hipStream_t stream_of(void* stream) { return static_cast<hipStream_t>(stream); }
  static hipEvent_t event_of(void* event) { return static_cast<hipEvent_t>(event); }
  Status result(const char* function, hipError_t code) const {
    if (code != hipSuccess && code != hipErrorNotReady) static_cast<void>(f_.hipGetLastError());
    return {this, function, static_cast<int>(code)};
  }

  std::string path_;
  HipFunctions f_;
};

class HiprtcApi final : public CompilerApi {
 public:
  explicit HiprtcApi(const Library& library) : path_(library.path()) {
    SymbolReader reader(library);
    constexpr bool kRequired = true;
#define FORGE_HIP(name, need)
#define FORGE_HIP_TYPED(name, need, type)
#define FORGE_HIPRTC(name, need) reader.read(f_.name, #name, need);
#define FORGE_CUDA(name, need)
#define FORGE_NVRTC(name, need)
#include "runtime/driver/functions.def"
    reader.finish(compiler_package(Vendor::kAmd));
  }
  std::string library() const override { return path_; }
  std::string version() override {
    int major = 0, minor = 0;
    if (f_.hiprtcVersion(&major, &minor) != HIPRTC_SUCCESS) return "unknown";
    return fmt::format("{}.{}", major, minor);
  }
  CompileResult compile(const std::string& source, const std::string& name,
                        std::span<const std::string> options) override {
    const CompilerCalls<hiprtcProgram, hiprtcResult> calls{
        .create = f_.hiprtcCreateProgram,
        .destroy = f_.hiprtcDestroyProgram,
        .compile = [this](hiprtcProgram program, int count,
                          const char** texts) { return f_.hiprtcCompileProgram(program, count, texts); },
        .log_size = f_.hiprtcGetProgramLogSize,
        .log = f_.hiprtcGetProgramLog,
        .text = f_.hiprtcGetErrorString,
        .code = {{"hiprtcGetCode", f_.hiprtcGetCodeSize, f_.hiprtcGetCode}},
        .prefix = "hiprtc",
    };
    return compile_program(calls, source, name, options);
  }

 private:
  std::string path_;
  HiprtcFunctions f_;
};

}  // namespace

std::unique_ptr<Api> load_hip(LibrarySearch& search) {
  const Library library = search.next();
  return library ? std::make_unique<HipApi>(library) : nullptr;
}

std::unique_ptr<CompilerApi> load_hiprtc() {
  // The newest compiler supports the most targets. Before HIP 5.3 hipRTC has no library of its own but is part of
  // libamdhip64.
  std::vector<std::string> names = library_names("libhiprtc.so", kVersions, kFolder);
  std::ranges::move(library_names("libamdhip64.so", kVersions, kFolder), std::back_inserter(names));
  names.emplace_back(kDebianHiprtc);
  LibrarySearch search(std::move(names));
  std::optional<Error> lacking;
  for (Library library = search.next(); library; library = search.next()) {
    try {
      return std::make_unique<HiprtcApi>(library);
    } catch (const Error& error) {
      if (!lacking) lacking = error;
    }
  }
  throw lacking ? *lacking : not_loaded("libhiprtc.so", search.failure(), compiler_package(Vendor::kAmd));
}

}  // namespace forge::driver
