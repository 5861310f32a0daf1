#pragma once
// The interface between the host's version of the prelude and the executor that runs the lanes
// (tests/gpu_host/executor.h). Each specialised source is compiled into a shared object, which reaches the executor
// only through the table HostLanes. So several such objects, built for different wave sizes, can be loaded into one
// process without sharing a symbol.

#include <cstddef>
#include <cstdint>

namespace forge::gpu {

/// A source location. Collectives compare it: lanes that meet must be at the same one.
struct Site {
  const char* file;
  int line;
  /// Used as a default argument, this gives the location of the call. g++ 12 evaluates a braced
  /// Site{__builtin_FILE(), ...} at the declaration instead.
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

/// Functions of the executor. A function that finds a fault does not return: it unwinds the lane's stack.
struct HostLanes {
  int thread = 0, block = 0;  ///< thread and block number of the lane that is running
  void (*barrier)(Site) = nullptr;
  /// The collective under all shuffles: waits until all lanes of the wave have called it and returns what they passed,
  /// `bytes` per lane, in lane order. The result is valid until this lane's next call.
  const void* (*meet)(const void* bring, std::size_t bytes, Site) = nullptr;
  /// The block's shared memory. It counts as uninitialised when the block starts.
  void* (*lds)(std::size_t bytes, std::size_t alignment, bool launched) = nullptr;
  /// Must be called before each access to shared memory: checks for races and uninitialised reads.
  void (*lds_read)(const void* at, std::size_t bytes, Site) = nullptr;
  void (*lds_write)(const void* at, std::size_t bytes, Site) = nullptr;
  void (*fail)(const char* what, Site) = nullptr;
};

/// A kernel that a shared object exports under the name `<name>_kernel`. `blocks` is 0 if the launch gives the number.
struct HostKernel {
  void (*run)(const void* args);
  std::size_t args_bytes;
  int blocks, threads, wave;
};

}  // namespace forge::gpu
