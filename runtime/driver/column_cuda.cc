// The NVIDIA implementation of Api and CompilerApi: libcuda and NVRTC, loaded at run time. Types come from cuda.h and
// nvrtc.h. Source: CUDA Driver API and NVRTC references, https://docs.nvidia.com/cuda.

#include <cuda.h>
#include <fmt/format.h>
#include <nvrtc.h>

#include <bit>
#include <map>
#include <mutex>

#include "runtime/driver/api.h"
#include "runtime/driver/compile_program.h"
#include "runtime/driver/library.h"

namespace forge::driver {

namespace {

// Function tables, generated from functions.def: one pointer per function, of the type that the header declares.
#define FORGE_HIP(name, need)
#define FORGE_HIP_TYPED(name, need, type)
#define FORGE_HIPRTC(name, need)
#define FORGE_NVRTC(name, need)
struct CudaFunctions {
#define FORGE_CUDA(name, need) decltype(&::name) name = nullptr;  // NOLINT(bugprone-macro-parentheses): a member
#include "runtime/driver/functions.def"
};
#define FORGE_HIP(name, need)
#define FORGE_HIP_TYPED(name, need, type)
#define FORGE_HIPRTC(name, need)
#define FORGE_CUDA(name, need)
struct NvrtcFunctions {
#define FORGE_NVRTC(name, need) decltype(&::name) name = nullptr;  // NOLINT(bugprone-macro-parentheses): a member
#include "runtime/driver/functions.def"
};

// NVRTC versions to look for, newest first, and NVIDIA's own directory.
constexpr int kCompilerVersions[] = {13, 12};
constexpr const char* kFolder = "/usr/local/cuda/lib64";

CUdeviceptr address_of(const void* memory) {
  return reinterpret_cast<CUdeviceptr>(memory);
}
CUstream stream_of(void* stream) {
  return static_cast<CUstream>(stream);
}
CUevent event_of(void* event) {
  return static_cast<CUevent>(event);
}

/// libcuda works with contexts; each opened device uses its primary context, which other libraries in the process
/// share.
class CudaApi final : public Api {
 public:
  explicit CudaApi(const Library& library) : path_(library.path()) {
    SymbolReader reader(library);
    constexpr bool kRequired = true, kOptional = false;
#define FORGE_HIP(name, need)
#define FORGE_HIP_TYPED(name, need, type)
#define FORGE_HIPRTC(name, need)
#define FORGE_CUDA(name, need) reader.read(f_.name, #name, need);
#define FORGE_NVRTC(name, need)
#include "runtime/driver/functions.def"
    reader.finish(driver_package(Vendor::kNvidia));
  }

  Vendor vendor() const noexcept override { return Vendor::kNvidia; }
  std::string library() const override { return path_; }
  const char* code_name(int code) const noexcept override {
    const char* name = nullptr;
    static_cast<void>(f_.cuGetErrorName(static_cast<CUresult>(code), &name));
    return name != nullptr ? name : "unknown";
  }
  const char* code_text(int code) const noexcept override {
    const char* text = nullptr;
    static_cast<void>(f_.cuGetErrorString(static_cast<CUresult>(code), &text));
    return text != nullptr ? text : "unknown";
  }
  Outcome classify(int code) const noexcept override {
    switch (code) {
      case CUDA_SUCCESS:
        return Outcome::kOk;
      case CUDA_ERROR_NOT_READY:
        return Outcome::kNotReady;
      case CUDA_ERROR_OUT_OF_MEMORY:
        return Outcome::kOutOfMemory;
      case CUDA_ERROR_NO_DEVICE:
      case CUDA_ERROR_INVALID_DEVICE:
        return Outcome::kNoDevice;
      case CUDA_ERROR_DEVICE_UNAVAILABLE:
      case CUDA_ERROR_ECC_UNCORRECTABLE:
      case CUDA_ERROR_NVLINK_UNCORRECTABLE:
      case CUDA_ERROR_ILLEGAL_ADDRESS:
      case CUDA_ERROR_LAUNCH_TIMEOUT:
      case CUDA_ERROR_CONTEXT_IS_DESTROYED:
      case CUDA_ERROR_ASSERT:
      case CUDA_ERROR_HARDWARE_STACK_ERROR:
      case CUDA_ERROR_ILLEGAL_INSTRUCTION:
      case CUDA_ERROR_MISALIGNED_ADDRESS:
      case CUDA_ERROR_INVALID_ADDRESS_SPACE:
      case CUDA_ERROR_INVALID_PC:
      case CUDA_ERROR_LAUNCH_FAILED:
        return Outcome::kLost;
      default:
        return Outcome::kFailed;
    }
  }

// Calls a function of the table and wraps its result together with its name.
#define FORGE_CALL(name, ...) result(#name, f_.name(__VA_ARGS__))

  Status start() override { return FORGE_CALL(cuInit, 0); }
  Status versions(int* driver, int* runtime) override {
    *runtime = 0;
    return FORGE_CALL(cuDriverGetVersion, driver);
  }
  Status device_count(int* count) override { return FORGE_CALL(cuDeviceGetCount, count); }
  Status describe(int ordinal, DeviceInfo* info) override;

  Status open_device(int ordinal) override {
    CUdevice device = 0;
    if (Status status = FORGE_CALL(cuDeviceGet, &device, ordinal); !status.ok()) return status;
    CUcontext context = nullptr;
    if (Status status = FORGE_CALL(cuDevicePrimaryCtxRetain, &context, device); !status.ok()) return status;
    const std::scoped_lock lock(mutex_);
    contexts_[ordinal] = context;
    return {};
  }
  Status close_device(int ordinal) override {
    CUdevice device = 0;
    if (Status status = FORGE_CALL(cuDeviceGet, &device, ordinal); !status.ok()) return status;
    return FORGE_CALL(cuDevicePrimaryCtxRelease_v2, device);
  }
  Status make_current(int ordinal) override {
    CUcontext context = nullptr;
    {
      const std::scoped_lock lock(mutex_);
      context = contexts_[ordinal];
    }
    return FORGE_CALL(cuCtxSetCurrent, context);
  }

  Status memory_info(std::size_t* free_bytes, std::size_t* total_bytes) override {
    return FORGE_CALL(cuMemGetInfo_v2, free_bytes, total_bytes);
  }
  Status mem_alloc(void** memory, std::size_t bytes) override {
    CUdeviceptr address = 0;
    const Status status = FORGE_CALL(cuMemAlloc_v2, &address, bytes);
    *memory = status.ok() ? std::bit_cast<void*>(address) : nullptr;
    return status;
  }
  Status mem_free(void* memory) override { return FORGE_CALL(cuMemFree_v2, address_of(memory)); }
  Status host_alloc(void** memory, std::size_t bytes) override {
    return FORGE_CALL(cuMemHostAlloc, memory, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  }
  Status host_free(void* memory) override { return FORGE_CALL(cuMemFreeHost, memory); }

  Status copy_to_device(void* to, const void* from, std::size_t bytes, void* stream) override {
    return FORGE_CALL(cuMemcpyHtoDAsync_v2, address_of(to), from, bytes, stream_of(stream));
  }
  Status copy_to_host(void* to, const void* from, std::size_t bytes, void* stream) override {
    return FORGE_CALL(cuMemcpyDtoHAsync_v2, to, address_of(from), bytes, stream_of(stream));
  }
  Status copy_on_device(void* to, const void* from, std::size_t bytes, void* stream) override {
    return FORGE_CALL(cuMemcpyDtoDAsync_v2, address_of(to), address_of(from), bytes, stream_of(stream));
  }
  Status fill_bytes(void* to, std::uint8_t value, std::size_t bytes, void* stream) override {
    return FORGE_CALL(cuMemsetD8Async, address_of(to), value, bytes, stream_of(stream));
  }
  Status fill_words(void* to, std::uint32_t value, std::size_t words, void* stream) override {
    return FORGE_CALL(cuMemsetD32Async, address_of(to), value, words, stream_of(stream));
  }

  Status stream_create(void** stream) override {
    return FORGE_CALL(cuStreamCreate, reinterpret_cast<CUstream*>(stream), CU_STREAM_NON_BLOCKING);
  }
  Status stream_destroy(void* stream) override { return FORGE_CALL(cuStreamDestroy_v2, stream_of(stream)); }
  Status stream_query(void* stream) override { return FORGE_CALL(cuStreamQuery, stream_of(stream)); }
  Status stream_synchronize(void* stream) override { return FORGE_CALL(cuStreamSynchronize, stream_of(stream)); }
  Status stream_wait(void* stream, void* event) override {
    return FORGE_CALL(cuStreamWaitEvent, stream_of(stream), event_of(event), 0);
  }

  Status event_create(void** event, EventOptions options) override {
    const unsigned flags = (options.timing ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING) |
                           (options.blocking ? CU_EVENT_BLOCKING_SYNC : CU_EVENT_DEFAULT);
    return FORGE_CALL(cuEventCreate, reinterpret_cast<CUevent*>(event), flags);
  }
  Status event_destroy(void* event) override { return FORGE_CALL(cuEventDestroy_v2, event_of(event)); }
  Status event_record(void* event, void* stream) override {
    return FORGE_CALL(cuEventRecord, event_of(event), stream_of(stream));
  }
  Status event_query(void* event) override { return FORGE_CALL(cuEventQuery, event_of(event)); }
  Status event_synchronize(void* event) override { return FORGE_CALL(cuEventSynchronize, event_of(event)); }
  Status event_elapsed(float* milliseconds, void* from, void* to) override {
    return FORGE_CALL(cuEventElapsedTime, milliseconds, event_of(from), event_of(to));
  }

  Status module_load(void** module, std::span<const std::byte> image) override {
    return FORGE_CALL(cuModuleLoadData, reinterpret_cast<CUmodule*>(module), image.data());
  }
  Status module_unload(void* module) override { return FORGE_CALL(cuModuleUnload, static_cast<CUmodule>(module)); }
  Status module_function(void** function, void* module, const char* name) override {
    return FORGE_CALL(cuModuleGetFunction, reinterpret_cast<CUfunction*>(function), static_cast<CUmodule>(module),
                      name);
  }
  Status function_facts(void* function, FunctionFacts* facts) override {
    const std::pair<CUfunction_attribute, int*> wanted[] = {
        {CU_FUNC_ATTRIBUTE_NUM_REGS, &facts->registers},
        {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &facts->lds_bytes},
        {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &facts->scratch_bytes},
        {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &facts->threads_per_block_max},
    };
    for (const auto& [attribute, value] : wanted) {
      Status status = FORGE_CALL(cuFuncGetAttribute, value, attribute, static_cast<CUfunction>(function));
      if (!status.ok()) return status;
    }
    return {};
  }
  Status allow_lds(void* function, std::uint32_t bytes) override {
    return FORGE_CALL(cuFuncSetAttribute, static_cast<CUfunction>(function),
                      CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(bytes));
  }
  Status occupancy(int* blocks, void* function, int threads, std::size_t lds_bytes) override {
    return FORGE_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, blocks, static_cast<CUfunction>(function), threads,
                      lds_bytes);
  }
  Status launch(const LaunchCall& c) override;

  Status capture_begin(void* stream) override {
    return FORGE_CALL(cuStreamBeginCapture_v2, stream_of(stream), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  }
  Status capture_end(void* stream, void** graph) override {
    *graph = nullptr;
    return FORGE_CALL(cuStreamEndCapture, stream_of(stream), reinterpret_cast<CUgraph*>(graph));
  }
  Status graph_destroy(void* graph) override { return FORGE_CALL(cuGraphDestroy, static_cast<CUgraph>(graph)); }
  Status graph_instantiate(void** exec, void* graph) override {
    return FORGE_CALL(cuGraphInstantiateWithFlags, reinterpret_cast<CUgraphExec*>(exec), static_cast<CUgraph>(graph),
                      0);
  }
  Status graph_exec_destroy(void* exec) override {
    return FORGE_CALL(cuGraphExecDestroy, static_cast<CUgraphExec>(exec));
  }
  Status graph_upload(void* exec, void* stream) override {
    return FORGE_CALL(cuGraphUpload, static_cast<CUgraphExec>(exec), stream_of(stream));
  }
  Status graph_launch(void* exec, void* stream) override {
    return FORGE_CALL(cuGraphLaunch, static_cast<CUgraphExec>(exec), stream_of(stream));
  }

 private:
  Status result(const char* function, CUresult code) const { return {this, function, static_cast<int>(code)}; }

  std::string path_;
  CudaFunctions f_;
  std::mutex mutex_;
  std::map<int, CUcontext> contexts_;
};

Status CudaApi::describe(int ordinal, DeviceInfo* info) {
  CUdevice device = 0;
  if (Status status = FORGE_CALL(cuDeviceGet, &device, ordinal); !status.ok()) return status;
  char name[256] = {};
  if (Status status = FORGE_CALL(cuDeviceGetName, name, static_cast<int>(sizeof(name)) - 1, device); !status.ok()) {
    return status;
  }
  info->name = name;
  std::size_t total_bytes = 0;
  if (Status status = FORGE_CALL(cuDeviceTotalMem_v2, &total_bytes, device); !status.ok()) return status;
  info->memory_bytes = total_bytes;

  int major = 0, minor = 0, lds_block = 0, lds_unit = 0, l2 = 0, integrated = 0, domain = 0, bus = 0, slot = 0;
  int block[3] = {}, grid[3] = {};
  const std::pair<CUdevice_attribute, int*> wanted[] = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, &info->wave_size},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &info->units},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &lds_block},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, &lds_unit},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &info->threads_per_block_max},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, &info->threads_per_unit_max},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, &block[0]},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, &block[1]},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, &block[2]},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &grid[0]},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &grid[1]},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &grid[2]},
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &info->clock_khz},
      {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, &info->memory_clock_khz},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, &info->memory_bus_bits},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &l2},
      {CU_DEVICE_ATTRIBUTE_INTEGRATED, &integrated},
      {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, &domain},
      {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, &bus},
      {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, &slot},
  };
  for (const auto& [attribute, value] : wanted) {
    if (Status status = FORGE_CALL(cuDeviceGetAttribute, value, attribute, device); !status.ok()) return status;
  }
  info->arch = fmt::format("sm_{}{}", major, minor);
  info->pci = fmt::format("{:04x}:{:02x}:{:02x}.0", domain, bus, slot);
  info->lds_bytes_per_block = static_cast<std::uint32_t>(lds_block);
  info->lds_bytes_per_unit = static_cast<std::uint32_t>(lds_unit);
  info->l2_bytes = static_cast<std::uint64_t>(l2 > 0 ? l2 : 0);
  info->integrated = integrated != 0;
  for (std::size_t i = 0; i < 3; ++i) {
    info->block_max[i] = static_cast<std::uint32_t>(block[i]);
    info->grid_max[i] = static_cast<std::uint32_t>(grid[i]);
  }
  return {};
}

/// Uses cuLaunchKernelEx only for programmatic dependent launch; older drivers do not have it, then the hint is
/// ignored.
Status CudaApi::launch(const LaunchCall& c) {
  const auto function = static_cast<CUfunction>(c.function);
  if (!c.hints.overlap_predecessor || f_.cuLaunchKernelEx == nullptr) {
    return FORGE_CALL(cuLaunchKernel, function, c.grid.x, c.grid.y, c.grid.z, c.block.x, c.block.y, c.block.z,
                      c.lds_bytes, stream_of(c.stream), c.args, nullptr);
  }
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = c.grid.x, config.gridDimY = c.grid.y, config.gridDimZ = c.grid.z;
  config.blockDimX = c.block.x, config.blockDimY = c.block.y, config.blockDimZ = c.block.z;
  config.sharedMemBytes = c.lds_bytes;
  config.hStream = stream_of(c.stream);
  config.attrs = &attribute;
  config.numAttrs = 1;
  return FORGE_CALL(cuLaunchKernelEx, &config, function, c.args, nullptr);
}
#undef FORGE_CALL

class NvrtcApi final : public CompilerApi {
 public:
  explicit NvrtcApi(const Library& library) : path_(library.path()) {
    SymbolReader reader(library);
    constexpr bool kRequired = true;
#define FORGE_HIP(name, need)
#define FORGE_HIP_TYPED(name, need, type)
#define FORGE_HIPRTC(name, need)
#define FORGE_CUDA(name, need)
#define FORGE_NVRTC(name, need) reader.read(f_.name, #name, need);
#include "runtime/driver/functions.def"
    reader.finish(compiler_package(Vendor::kNvidia));
  }
  std::string library() const override { return path_; }
  std::string version() override {
    int major = 0, minor = 0;
    if (f_.nvrtcVersion(&major, &minor) != NVRTC_SUCCESS) return "unknown";
    return fmt::format("{}.{}", major, minor);
  }
  CompileResult compile(const std::string& source, const std::string& name,
                        std::span<const std::string> options) override {
    const CompilerCalls<nvrtcProgram, nvrtcResult> calls{
        .create = f_.nvrtcCreateProgram,
        .destroy = f_.nvrtcDestroyProgram,
        .compile = [this](nvrtcProgram program, int count,
                          const char** texts) { return f_.nvrtcCompileProgram(program, count, texts); },
        .log_size = f_.nvrtcGetProgramLogSize,
        .log = f_.nvrtcGetProgramLog,
        .text = f_.nvrtcGetErrorString,
        // A real architecture (sm_90) yields machine code, a virtual one (compute_90) only PTX.
        .code = {{"nvrtcGetCUBIN", f_.nvrtcGetCUBINSize, f_.nvrtcGetCUBIN},
                 {"nvrtcGetPTX", f_.nvrtcGetPTXSize, f_.nvrtcGetPTX}},
        .prefix = "nvrtc",
    };
    return compile_program(calls, source, name, options);
  }

 private:
  std::string path_;
  NvrtcFunctions f_;
};

}  // namespace

std::unique_ptr<Api> load_cuda(LibrarySearch& search) {
  const Library library = search.next();
  return library ? std::make_unique<CudaApi>(library) : nullptr;
}

std::unique_ptr<CompilerApi> load_nvrtc() {
  const Library library = Library::load(library_names("libnvrtc.so", kCompilerVersions, kFolder));
  if (!library) throw not_loaded("libnvrtc.so", library.failure(), compiler_package(Vendor::kNvidia));
  return std::make_unique<NvrtcApi>(library);
}

}  // namespace forge::driver
