#pragma once
// The null driver's machine: memory, streams of work, events and captures. Private to tests/null_driver.
// Every function here is called with `mutex` held.

#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/driver/api.h"
#include "tests/null_driver/null_driver.h"

namespace forge::driver {

struct NullCodeText {
  int code;
  const char* name;
  const char* text;
};
[[nodiscard]] const NullCodeText& null_code(int code);

/// Work; returns a NullCode.
using NullOp = std::function<int()>;

struct NullStream;

/// How far into each stream of a capture somebody has seen: operations in order.
using NullClock = std::map<const NullStream*, std::uint64_t>;

struct NullCapture {
  const NullStream* origin = nullptr;
  std::thread::id thread;
  std::vector<NullOp> ops;                      ///< in the order of the calls, which respects every dependency
  std::map<const NullStream*, NullClock> seen;  ///< its streams, each with what its next operation depends on
  bool failed = false;
};

struct NullStream {
  int device = 0;
  std::deque<NullOp> pending;
  std::shared_ptr<NullCapture> capture;  ///< while it is being recorded
};

struct NullEvent {
  int device = 0;
  bool timing = false;
  std::uint64_t recorded = 0, done = 0;  ///< generations
  std::uint64_t done_at_us = 0;
  std::shared_ptr<NullStream> stream;    ///< of the last record
  std::shared_ptr<NullCapture> capture;  ///< recorded inside it, with `seen`
  NullClock seen;
};

struct NullModule {
  int device = 0;
  std::vector<std::unique_ptr<struct NullFunction>> functions;
};

struct NullFunction {
  int device = 0;
  NullKernelImage image;
  NullKernel loaded;  ///< by NullState::loader
};

struct NullGraph {
  std::vector<NullOp> ops;
};

struct NullMemory {
  struct Block {
    std::size_t bytes;
    int device;
  };
  std::map<std::uintptr_t, Block> blocks;
  std::uint64_t bytes = 0;

  /// Whether [memory, memory + bytes) lies in one live block.
  [[nodiscard]] bool holds(const void* memory, std::size_t size) const;
  /// 256-byte aligned and filled with 0xff, a NaN to every float type; null when the host has no memory.
  void* allocate(std::size_t size, int device);
  bool free(void* memory);
  ~NullMemory();
};

struct NullState {
  explicit NullState(NullOptions given) : options(std::move(given)) {}

  /// Counts a call and tells how it is to fail: kNullSuccess when it is not.
  int enter(const std::string& function);

  /// Puts work on a stream: recorded, kept back or run.
  int enqueue(const std::shared_ptr<NullStream>& stream, NullOp op);
  /// Runs the oldest pending operation of a stream.
  void step(NullStream& stream);
  void drain(NullStream& stream);
  /// What a driver does before it frees memory that pending work may use.
  void drain_all();
  int record(NullEvent& event, const std::shared_ptr<NullEvent>& self, const std::shared_ptr<NullStream>& stream);
  int wait(const std::shared_ptr<NullStream>& stream, const std::shared_ptr<NullEvent>& event);
  int begin_capture(const std::shared_ptr<NullStream>& stream);
  int end_capture(const std::shared_ptr<NullStream>& stream, std::shared_ptr<NullGraph>* graph);
  /// A call that a capture on this thread forbids: spoils the capture. kNullSuccess where there is none.
  int forbidden_in_capture();
  /// Runs one operation and keeps its fault, which the device does not survive.
  int run(const NullOp& op);
  [[nodiscard]] int current_device() const;

  mutable std::mutex mutex;
  NullOptions options;
  NullCounts counts;
  std::map<std::string, std::uint64_t> calls;
  struct Failure {
    std::string function;  ///< empty: any
    std::uint64_t remaining;
    int code;
  };
  std::vector<Failure> failures;
  int lost = kNullSuccess;     ///< once set, what every call returns
  std::uint64_t clock_us = 0;  ///< an operation takes a microsecond

  std::map<std::thread::id, int> current;  ///< device by thread
  std::map<std::thread::id, std::shared_ptr<NullCapture>> captures;
  std::map<int, std::uint64_t> contexts;
  NullMemory device_memory, pinned_memory;
  std::map<void*, std::shared_ptr<NullStream>> streams;
  std::map<void*, std::shared_ptr<NullEvent>> events;
  std::map<void*, std::shared_ptr<NullModule>> modules;
  std::map<void*, NullFunction*> functions;
  std::map<void*, std::shared_ptr<NullGraph>> graphs, graph_execs;
  std::map<std::string, NullKernel> kernels;
  NullLoader loader;
};

/// The kernels of a null_image; false when it is not one.
[[nodiscard]] bool parse_null_image(std::span<const std::byte> image, std::vector<NullKernelImage>* kernels);

}  // namespace forge::driver
