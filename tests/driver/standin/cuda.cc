// A stand-in libcuda: the functions of functions.def with the vendor's declarations, implemented on machine.h.
#include <cuda.h>

#include "tests/driver/standin/machine.h"

using namespace standin;

namespace {

int context_object;

CUresult error(int code) {
  return static_cast<CUresult>(code);
}
void* pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);
}

}  // namespace

extern "C" {
/// Number of launches with the overlap hint, read by the conformance suite.
int standin_overlapped = 0;

CUresult cuInit(unsigned flags) {
  return error(flags == 0 ? kOk : kInvalidValue);
}
CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = 5;  // a handle that differs from the ordinal
  return error(ordinal == 0 ? kOk : kInvalidDevice);
}
CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  if (device != 5 || length < 32) return error(kInvalidValue);
  std::strcpy(name, "stand-in card");
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  *bytes = kMemoryBytes;
  return error(device == 5 ? kOk : kInvalidDevice);
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  static const std::map<int, int> kValues = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7fffffff},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 2'100'000},
      {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3'200'000},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 4 << 20},
      {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0},
      {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 1},
      {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0x23},
      {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 4},
  };
  const auto found = kValues.find(attribute);
  if (device != 5 || found == kValues.end()) return error(kInvalidValue);
  *value = found->second;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = reinterpret_cast<CUcontext>(&context_object);
  return error(device == 5 ? kOk : kInvalidDevice);
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return error(device == 5 ? kOk : kInvalidDevice);
}
CUresult cuCtxSetCurrent(CUcontext context) {
  current_is_set = context == reinterpret_cast<CUcontext>(&context_object);
  return error(current_is_set ? kOk : kInvalidContext);
}
CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  *free_bytes = kMemoryBytes / 2;
  *total = kMemoryBytes;
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  return error(allocate(device_blocks, reinterpret_cast<void**>(address), bytes));
}
CUresult cuMemFree_v2(CUdeviceptr address) {
  return error(release(device_blocks, pointer(address)));
}
CUresult cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  return error(allocate(host_blocks, memory, bytes));
}
CUresult cuMemFreeHost(void* memory) {
  return error(release(host_blocks, memory));
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return error(copy(device_blocks, pointer(to), host_blocks, from, bytes, stream));
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return error(copy(host_blocks, to, device_blocks, pointer(from), bytes, stream));
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return error(copy(device_blocks, pointer(to), device_blocks, pointer(from), bytes, stream));
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  return error(fill(pointer(to), value, bytes, stream));
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t words, CUstream stream) {
  return error(fill_words(pointer(to), value, words, stream));
}
CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return error(stream_create(reinterpret_cast<void**>(stream), flags));
}
CUresult cuStreamDestroy_v2(CUstream stream) {
  return error(stream_destroy(stream));
}
CUresult cuStreamQuery(CUstream stream) {
  return error(stream_wait_host(stream));
}
CUresult cuStreamSynchronize(CUstream stream) {
  return error(stream_wait_host(stream));
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return error(stream_wait_event(stream, event, flags));
}
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return error(capture_begin(stream, mode));
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return error(capture_end(stream, reinterpret_cast<void**>(graph)));
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  if (flags != 0) return error(kInvalidValue);
  return error(graph_instantiate(reinterpret_cast<void**>(exec), graph));
}
CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  return error(exec != nullptr && live(reinterpret_cast<Stream*>(stream)) ? kOk : kInvalidHandle);
}
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return error(graph_launch(exec, stream));
}
CUresult cuGraphExecDestroy(CUgraphExec exec) {
  return error(graph_destroy(exec));
}
CUresult cuGraphDestroy(CUgraph graph) {
  return error(graph_destroy(graph));
}
CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return error(event_create(reinterpret_cast<void**>(event), flags));
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  return error(event_record(event, stream));
}
CUresult cuEventQuery(CUevent) {
  return CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent) {
  return CUDA_SUCCESS;
}
#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float* ms, CUevent from, CUevent to) {
  return error(event_elapsed(ms, from, to));
}
CUresult cuEventDestroy_v2(CUevent event) {
  return error(event_destroy(event));
}
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return error(module_load(reinterpret_cast<void**>(module), image));
}
CUresult cuModuleUnload(CUmodule module) {
  return error(module_unload(module));
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return error(module_function(reinterpret_cast<void**>(function), module, name));
}
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned, CUstream stream, void** args, void** extra) {
  if (extra != nullptr || gy * gz * by * bz != 1) return error(kInvalidValue);
  return error(launch(f, gx, bx, stream, args));
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** args, void** extra) {
  if (extra != nullptr || config->numAttrs != 1) return error(kInvalidValue);
  if (config->attrs[0].id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) return error(kInvalidValue);
  if (config->attrs[0].value.programmaticStreamSerializationAllowed != 1) return error(kInvalidValue);
  ++standin_overlapped;
  return error(launch(f, config->gridDimX, config->blockDimX, config->hStream, args));
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction f, int threads, size_t lds) {
  return error(occupancy(blocks, f, threads, lds));
}
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute attribute, int value) {
  const bool known = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value > 0 && value <= 232448;
  return error(known && f != nullptr ? kOk : kInvalidValue);
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction f) {
  return error(function_fact(value, attribute, f));
}
CUresult cuGetErrorName(CUresult code, const char** text) {
  *text = code_name(code);
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult code, const char** text) {
  return cuGetErrorName(code, text);
}
}
