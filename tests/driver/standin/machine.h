#pragma once
// The behaviour of the stand-in vendor libraries: host memory, work that runs immediately, captures as lists. Just
// enough for the conformance suite to see whether each column passes the right arguments to the right functions.
// The error codes are the values that HIP and CUDA share.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <vector>

namespace standin {

enum Code : int {
  kOk = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
};

inline const char* code_name(int code) {
  switch (code) {
    case kOk:
      return "STANDIN_SUCCESS";
    case kOutOfMemory:
      return "STANDIN_OUT_OF_MEMORY";
    case kInvalidImage:
      return "STANDIN_INVALID_IMAGE";
    default:
      return "STANDIN_ERROR";
  }
}

using Op = std::function<void()>;

struct Graph {
  std::vector<Op> ops;
  bool failed = false;
};
struct Stream {
  Graph* capture = nullptr;
};
struct Event {
  bool timing = false;
  Graph* capture = nullptr;
};

inline constexpr std::size_t kMemoryBytes = std::size_t{8} << 30;
inline bool current_is_set = false;
inline std::set<Stream*> streams;
/// Live blocks: address -> bytes.
using Blocks = std::map<const std::byte*, std::size_t>;
inline Blocks device_blocks, host_blocks;
inline int module_object, add_value_object, add_block_object;

inline bool live(Stream* stream) {
  return streams.contains(stream);
}  // false for null, the default stream

inline int put(void* handle, Op op) {
  auto* stream = static_cast<Stream*>(handle);
  if (!live(stream)) return kInvalidHandle;
  if (stream->capture != nullptr) {
    stream->capture->ops.push_back(std::move(op));
  } else {
    op();
  }
  return kOk;
}

inline int allocate(Blocks& blocks, void** memory, std::size_t bytes) {
  if (!current_is_set) return kInvalidContext;
  if (bytes == 0) return kInvalidValue;
  if (bytes > kMemoryBytes) return kOutOfMemory;
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  blocks[static_cast<std::byte*>(*memory)] = bytes;
  return kOk;
}
inline int release(Blocks& blocks, void* memory) {
  if (blocks.erase(static_cast<std::byte*>(memory)) == 0) return kInvalidValue;
  std::free(memory);
  return kOk;
}

inline bool holds(const Blocks& blocks, const void* memory, std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(memory);
  auto block = blocks.upper_bound(at);
  if (block == blocks.begin()) return false;
  --block;
  return at + bytes <= block->first + block->second;
}

/// `to_blocks` and `from_blocks`: the kinds of memory between which the call claims to copy.
inline int copy(const Blocks& to_blocks, void* to, const Blocks& from_blocks, const void* from, std::size_t bytes,
                void* stream) {
  if (!holds(to_blocks, to, bytes) || !holds(from_blocks, from, bytes)) return kInvalidValue;
  return put(stream, [=] { std::memcpy(to, from, bytes); });
}
inline int fill(void* to, std::uint8_t value, std::size_t bytes, void* stream) {
  return put(stream, [=] { std::memset(to, value, bytes); });
}
inline int fill_words(void* to, std::uint32_t value, std::size_t words, void* stream) {
  return put(stream, [=] {
    for (std::size_t i = 0; i < words; ++i) static_cast<std::uint32_t*>(to)[i] = value;
  });
}

inline int stream_create(void** handle, unsigned flags) {
  if (flags != 1) return kInvalidValue;  // 1: does not synchronise with the default stream
  auto* stream = new Stream;
  streams.insert(stream);
  *handle = stream;
  return kOk;
}
inline int stream_destroy(void* handle) {
  auto* stream = static_cast<Stream*>(handle);
  if (streams.erase(stream) == 0) return kInvalidHandle;
  delete stream;
  return kOk;
}
inline int stream_wait_host(void* handle) {
  auto* stream = static_cast<Stream*>(handle);
  if (!live(stream)) return kInvalidHandle;
  if (stream->capture == nullptr) return kOk;
  stream->capture->failed = true;
  return kCaptureUnsupported;
}
inline int stream_wait_event(void* handle, void* event, unsigned flags) {
  auto* stream = static_cast<Stream*>(handle);
  if (!live(stream) || event == nullptr || flags != 0) return kInvalidHandle;
  if (Graph* capture = static_cast<Event*>(event)->capture; capture != nullptr) stream->capture = capture;
  return kOk;
}

inline int event_create(void** handle, unsigned flags) {
  if (flags > 3) return kInvalidValue;  // 1: blocking, 2: no timing
  *handle = new Event{.timing = (flags & 2) == 0};
  return kOk;
}
inline int event_destroy(void* handle) {
  delete static_cast<Event*>(handle);
  return kOk;
}
inline int event_record(void* handle, void* stream) {
  if (!live(static_cast<Stream*>(stream))) return kInvalidHandle;
  static_cast<Event*>(handle)->capture = static_cast<Stream*>(stream)->capture;
  return kOk;
}
inline int event_elapsed(float* milliseconds, void* from, void* to) {
  if (!static_cast<Event*>(from)->timing || !static_cast<Event*>(to)->timing) return kInvalidHandle;
  *milliseconds = 0.5F;
  return kOk;
}

inline int module_load(void** module, const void* image) {
  if (std::memcmp(image, "standin-module", 14) != 0) return kInvalidImage;
  *module = &module_object;
  return kOk;
}
inline int module_unload(void* module) {
  return module == &module_object ? kOk : kInvalidHandle;
}
inline int module_function(void** function, void* module, const char* name) {
  if (module != &module_object) return kInvalidHandle;
  *function = nullptr;
  if (std::strcmp(name, "add_value") == 0) *function = &add_value_object;
  if (std::strcmp(name, "add_block") == 0) *function = &add_block_object;
  return *function != nullptr ? kOk : kNotFound;
}
inline bool is_function(const void* function) {
  return function == &add_value_object || function == &add_block_object;
}
/// Attributes have the same numbers in HIP and CUDA: 0 threads, 1 LDS, 3 scratch, 4 registers.
inline int function_fact(int* value, int attribute, void* function) {
  if (!is_function(function)) return kInvalidHandle;
  constexpr int kValues[] = {1024, 0, 0, 0, 24};
  if (attribute < 0 || attribute > 4) return kInvalidValue;
  *value = kValues[attribute];
  return kOk;
}
inline int occupancy(int* blocks, void* function, int threads, std::size_t) {
  if (!is_function(function)) return kInvalidHandle;
  *blocks = 2048 / threads;
  return kOk;
}
inline int launch(void* function, unsigned blocks, unsigned threads, void* stream, void** args) {
  if (!is_function(function)) return kInvalidHandle;
  auto* data = *static_cast<std::int32_t**>(args[0]);
  std::int64_t n = 0;
  int value = 0;
  if (function == &add_value_object) {
    n = *static_cast<int*>(args[1]), value = *static_cast<int*>(args[2]);
  } else {  // one struct: the address, then two i64
    n = static_cast<std::int64_t*>(args[0])[1], value = static_cast<int>(static_cast<std::int64_t*>(args[0])[2]);
  }
  return put(stream, [=] {
    for (int i = 0; i < n && static_cast<unsigned>(i) < blocks * threads; ++i) data[i] += value;
  });
}

inline int capture_begin(void* handle, int mode) {
  auto* stream = static_cast<Stream*>(handle);
  if (!live(stream) || mode != 1) return kInvalidValue;  // 1: thread-local
  stream->capture = new Graph;
  return kOk;
}
inline int capture_end(void* handle, void** graph) {
  auto* stream = static_cast<Stream*>(handle);
  if (!live(stream) || stream->capture == nullptr) return kInvalidHandle;
  Graph* made = stream->capture;
  for (Stream* other : streams) {
    if (other->capture == made) other->capture = nullptr;
  }
  if (made->failed) {
    delete made;
    return kCaptureInvalidated;
  }
  *graph = made;
  return kOk;
}
inline int graph_instantiate(void** exec, void* graph) {
  if (graph == nullptr) return kInvalidHandle;
  *exec = new Graph(*static_cast<Graph*>(graph));
  return kOk;
}
inline int graph_destroy(void* graph) {
  delete static_cast<Graph*>(graph);
  return kOk;
}
inline int graph_launch(void* exec, void* stream) {
  return put(stream, [exec] {
    for (const Op& op : static_cast<Graph*>(exec)->ops) op();
  });
}

}  // namespace standin
