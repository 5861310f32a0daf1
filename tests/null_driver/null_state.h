#pragma once
// The state of the null driver: memory, streams with pending work, events, captures. Private to tests/null_driver. All
// member functions must be called with `mutex` held.

#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/driver/api.h"
#include "tests/null_driver/null_driver.h"

namespace forge::driver {

/// Name and text of an error code.
struct NullCodeText {
  int code;
  const char* name;
  const char* text;
};
[[nodiscard]] const NullCodeText& null_code(int code);

/// One piece of work on a stream; returns a NullCode.
using NullOp = std::function<int()>;

struct NullStream;

/// A vector clock: for each stream of a capture, the number of its operations that are known to come before. At the end
/// of a capture it shows whether all member streams were joined to the origin. Example: the origin s0 adds 2
/// operations, then s1 waits for an event of s0 and adds 3, so s1's clock is {s0: 2, s1: 3}. s0's clock is {s0: 2}
/// until s0 waits for an event of s1, i.e. s1 is not joined; afterwards it is {s0: 2, s1: 3}.
using NullClock = std::map<const NullStream*, std::uint64_t>;

/// A recording in progress.
struct NullCapture {
  const NullStream* origin = nullptr;
  std::thread::id thread;
  std::vector<NullOp> ops;                      ///< in call order, which respects all dependencies
  std::map<const NullStream*, NullClock> seen;  ///< member streams, each with what its next operation depends on
  bool failed = false;
};

/// A stream with its pending work.
struct NullStream {
  int device = 0;
  std::deque<NullOp> pending;
  std::shared_ptr<NullCapture> capture;  ///< the recording it takes part in, if any
};

/// An event. `recorded` counts its records; `done` is the number of the latest record that the stream has reached. The
/// event is complete if they are equal.
struct NullEvent {
  int device = 0;
  bool timing = false;
  std::uint64_t recorded = 0, done = 0;
  std::uint64_t done_at_us = 0;
  std::shared_ptr<NullStream> stream;    ///< stream of the last record
  std::shared_ptr<NullCapture> capture;  ///< set if it was recorded during a capture, then with `seen`
  NullClock seen;
};

/// A loaded module. The functions' addresses are their handles, so they must not move.
struct NullModule {
  int device = 0;
  std::vector<std::unique_ptr<struct NullFunction>> functions;
};

/// A kernel of a module: its description, and the host function that does its work.
struct NullFunction {
  int device = 0;
  NullKernelImage image;
  NullKernel loaded;  ///< from NullState::loader, if set
};

/// A recorded graph: its operations in call order. An executable graph is a copy.
struct NullGraph {
  std::vector<NullOp> ops;
};

/// Live allocations of one kind, by address.
struct NullMemory {
  struct Block {
    std::size_t bytes;
    int device;
  };
  std::map<std::uintptr_t, Block> blocks;
  std::uint64_t bytes = 0;

  /// True if [memory, memory + size) lies in one live block.
  [[nodiscard]] bool holds(const void* memory, std::size_t size) const;
  /// Allocates 256-byte aligned memory filled with 0xff bytes (NaN in every float type), so that reads of unwritten
  /// memory show. Null if the host has no memory.
  void* allocate(std::size_t size, int device);
  bool free(void* memory);
  ~NullMemory();
};

/// All state of one null driver, shared by its calls (NullApi) and the test's control (NullControl).
struct NullState {
  explicit NullState(NullOptions given) : options(std::move(given)) {}

  /// Counts a call and returns the code with which it must fail; kNullSuccess if it must not.
  int enter(const std::string& function);

  /// Adds work to a stream: it is recorded, kept back (deferred) or run at once.
  int enqueue(const std::shared_ptr<NullStream>& stream, NullOp op);
  /// Runs the oldest pending operation of a stream.
  void step(NullStream& stream);
  void drain(NullStream& stream);
  /// Runs all pending work. Drivers do that before they free memory that the work may use.
  void drain_all();
  int record(NullEvent& event, const std::shared_ptr<NullEvent>& self, const std::shared_ptr<NullStream>& stream);
  int wait(const std::shared_ptr<NullStream>& stream, const std::shared_ptr<NullEvent>& event);
  int begin_capture(const std::shared_ptr<NullStream>& stream);
  int end_capture(const std::shared_ptr<NullStream>& stream, std::shared_ptr<NullGraph>* graph);
  /// For calls that are forbidden during a capture: if this thread is capturing, invalidates the capture and returns an
  /// error, otherwise kNullSuccess.
  int forbidden_in_capture();
  /// Runs one operation. A fault makes the device lost: every later call fails.
  int run(const NullOp& op);
  [[nodiscard]] int current_device() const;

  mutable std::mutex mutex;
  NullOptions options;
  NullCounts counts;
  std::map<std::string, std::uint64_t> calls;
  struct Failure {
    std::string function;  ///< empty: any function
    std::uint64_t remaining;
    int code;
  };
  std::vector<Failure> failures;
  int lost = kNullSuccess;     ///< if set, the code that every call returns
  std::uint64_t clock_us = 0;  ///< simulated time: each operation takes 1 us

  std::map<std::thread::id, int> current;  ///< current device of each thread
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

/// Parses a null_image; returns false if it is not one.
[[nodiscard]] bool parse_null_image(std::span<const std::byte> image, std::vector<NullKernelImage>* kernels);

}  // namespace forge::driver
