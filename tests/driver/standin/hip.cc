// A stand-in libamdhip64: the functions of functions.def with the vendor's declarations, implemented on machine.h.
// STANDIN_R0600 selects HIP 6 and later; otherwise it acts as HIP 5, without the new properties and hipGraphUpload.
#define __HIP_PLATFORM_AMD__ 1
#define __HIP_PLATFORM_HCC__ 1
#define __HIP_DISABLE_CPP_FUNCTIONS__ 1
#include <hip/hip_runtime_api.h>
#undef hipGetDeviceProperties

#include "runtime/driver/hip_properties.h"
#include "tests/driver/standin/machine.h"

using namespace standin;

namespace {

hipError_t error(int code) {
  return static_cast<hipError_t>(code);
}

template <typename Properties>
void describe(Properties* p) {
  std::strcpy(p->name, "stand-in card");
  std::strcpy(p->gcn_arch_name, "gfx942:sramecc+:xnack-");
  p->total_global_mem = kMemoryBytes;
  p->shared_mem_per_block = 65536;
  p->warp_size = 64;
  p->max_threads_per_block = 1024;
  for (int i = 0; i < 3; ++i) p->max_threads_dim[i] = 1024, p->max_grid_size[i] = i == 0 ? 0x7fffffff : 65536;
  p->clock_rate_khz = 2'100'000;
  p->memory_clock_rate_khz = 1'300'000;
  p->memory_bus_width = 8192;
  p->multi_processor_count = 304;
  p->l2_cache_size = 4 << 20;
  p->max_threads_per_multi_processor = 2048;
  p->pci_domain_id = 1, p->pci_bus_id = 0x23, p->pci_device_id = 4;
  p->max_shared_memory_per_multi_processor = 65536;
}

}  // namespace

extern "C" {
hipError_t hipInit(unsigned flags) {
  return error(flags == 0 ? kOk : kInvalidValue);
}
hipError_t hipDriverGetVersion(int* version) {
  *version = STANDIN_R0600 ? 60412345 : 50221153;
  return hipSuccess;
}
hipError_t hipRuntimeGetVersion(int* version) {
  return hipDriverGetVersion(version);
}
hipError_t hipGetDeviceCount(int* count) {
  *count = 1;
  return hipSuccess;
}
hipError_t hipSetDevice(int ordinal) {
  current_is_set = true;
  return error(ordinal == 0 ? kOk : kInvalidDevice);
}
// Filling the old layout where the new one is expected, or the reverse, would give values that fail the tests.
[[gnu::visibility("default")]] hipError_t standin_properties(forge::driver::HipProperties* p,
                                                             int ordinal) __asm__("hipGetDeviceProperties");
hipError_t standin_properties(forge::driver::HipProperties* p, int ordinal) {
  if (ordinal != 0) return error(kInvalidDevice);
  describe(p);
  return hipSuccess;
}
#if STANDIN_R0600
[[gnu::visibility("default")]] hipError_t hipGetDevicePropertiesR0600(forge::driver::HipPropertiesR0600* p,
                                                                      int ordinal) {
  if (ordinal != 0) return error(kInvalidDevice);
  describe(p);
  return hipSuccess;
}
[[gnu::visibility("default")]] hipError_t hipGraphUpload(hipGraphExec_t exec, hipStream_t stream) {
  return error(exec != nullptr && live(reinterpret_cast<Stream*>(stream)) ? kOk : kInvalidHandle);
}
#endif
hipError_t hipMemGetInfo(size_t* free_bytes, size_t* total) {
  *free_bytes = kMemoryBytes / 2;
  *total = kMemoryBytes;
  return hipSuccess;
}
hipError_t hipMalloc(void** memory, size_t bytes) {
  return error(allocate(device_blocks, memory, bytes));
}
hipError_t hipFree(void* memory) {
  return error(release(device_blocks, memory));
}
hipError_t hipHostMalloc(void** memory, size_t bytes, unsigned) {
  return error(allocate(host_blocks, memory, bytes));
}
hipError_t hipHostFree(void* memory) {
  return error(release(host_blocks, memory));
}
hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream) {
  if (kind < hipMemcpyHostToDevice || kind > hipMemcpyDeviceToDevice) return error(kInvalidValue);
  return error(copy(kind == hipMemcpyDeviceToHost ? host_blocks : device_blocks, to,
                    kind == hipMemcpyHostToDevice ? host_blocks : device_blocks, from, bytes, stream));
}
hipError_t hipMemsetD8Async(hipDeviceptr_t to, unsigned char value, size_t count, hipStream_t stream) {
  return error(fill(to, value, count, stream));
}
hipError_t hipMemsetD32Async(hipDeviceptr_t to, int value, size_t count, hipStream_t stream) {
  return error(fill_words(to, static_cast<std::uint32_t>(value), count, stream));
}
hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags) {
  return error(stream_create(reinterpret_cast<void**>(stream), flags));
}
hipError_t hipStreamDestroy(hipStream_t stream) {
  return error(stream_destroy(stream));
}
hipError_t hipStreamQuery(hipStream_t stream) {
  return error(stream_wait_host(stream));
}
hipError_t hipStreamSynchronize(hipStream_t stream) {
  return error(stream_wait_host(stream));
}
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags) {
  return error(stream_wait_event(stream, event, flags));
}
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode) {
  return error(capture_begin(stream, mode));
}
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
  return error(capture_end(stream, reinterpret_cast<void**>(graph)));
}
hipError_t hipGraphInstantiate(hipGraphExec_t* exec, hipGraph_t graph, hipGraphNode_t*, char*, size_t) {
  return error(graph_instantiate(reinterpret_cast<void**>(exec), graph));
}
hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream) {
  return error(graph_launch(exec, stream));
}
hipError_t hipGraphExecDestroy(hipGraphExec_t exec) {
  return error(graph_destroy(exec));
}
hipError_t hipGraphDestroy(hipGraph_t graph) {
  return error(graph_destroy(graph));
}
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags) {
  return error(event_create(reinterpret_cast<void**>(event), flags));
}
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
  return error(event_record(event, stream));
}
hipError_t hipEventQuery(hipEvent_t) {
  return hipSuccess;
}
hipError_t hipEventSynchronize(hipEvent_t) {
  return hipSuccess;
}
hipError_t hipEventElapsedTime(float* ms, hipEvent_t from, hipEvent_t to) {
  return error(event_elapsed(ms, from, to));
}
hipError_t hipEventDestroy(hipEvent_t event) {
  return error(event_destroy(event));
}
hipError_t hipModuleLoadData(hipModule_t* module, const void* image) {
  return error(module_load(reinterpret_cast<void**>(module), image));
}
hipError_t hipModuleUnload(hipModule_t module) {
  return error(module_unload(module));
}
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
  return error(module_function(reinterpret_cast<void**>(function), module, name));
}
hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                 unsigned bz, unsigned, hipStream_t stream, void** args, void** extra) {
  if (extra != nullptr || gy * gz * by * bz != 1) return error(kInvalidValue);
  return error(launch(f, gx, bx, stream, args));
}
hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, hipFunction_t f, int threads, size_t lds) {
  return error(occupancy(blocks, f, threads, lds));
}
hipError_t hipFuncGetAttribute(int* value, hipFunction_attribute attribute, hipFunction_t f) {
  return error(function_fact(value, attribute, f));
}
const char* hipGetErrorName(hipError_t code) {
  return code_name(code);
}
const char* hipGetErrorString(hipError_t code) {
  return code_name(code);
}
hipError_t hipGetLastError(void) {
  return hipSuccess;
}
}
