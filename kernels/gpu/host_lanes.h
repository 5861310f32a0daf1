#pragma once
// What the host's flavour of the prelude asks of whoever runs the lanes (tests/gpu_host/executor.h). A specialised
// source becomes a shared object that knows its runner only through this table, so several of them, built for
// different waves, live in one process without sharing a symbol.

#include <cstddef>
#include <cstdint>

namespace forge::gpu {

/// Where in the sources a lane is: collectives compare it.
struct Site {
  const char* file;
  int line;
  /// As a default argument: where the call is. g++ 12 takes a braced Site{__builtin_FILE(), ...} for the declaration's.
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

/// The runner's side. Functions that fail do not return: they unwind the lane.
struct HostLanes {
  int thread = 0, block = 0;  ///< of the lane that is running
  void (*barrier)(Site) = nullptr;
  /// Meets all lanes of the wave; what they brought then lies in the order of lanes, `bytes` each, until this lane's
  /// next meeting.
  const void* (*meet)(const void* bring, std::size_t bytes, Site) = nullptr;
  /// The block's shared memory, not yet written when the block starts.
  void* (*lds)(std::size_t bytes, std::size_t alignment) = nullptr;
  void (*lds_read)(const void* at, std::size_t bytes, Site) = nullptr;
  void (*lds_write)(const void* at, std::size_t bytes, Site) = nullptr;
  void (*fail)(const char* what, Site) = nullptr;
};

/// A kernel as its shared object exports it, under the name `<name>_kernel`.
struct HostKernel {
  void (*run)(const void* args);
  std::size_t args_bytes;
  int blocks, threads, wave;
};

}  // namespace forge::gpu
