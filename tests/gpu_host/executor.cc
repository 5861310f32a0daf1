// The lane executor: schedules the lanes of a block as fibres, in the order that the launch asks for, and checks
// // barriers, shuffles and shared memory (executor.h).
#include "tests/gpu_host/executor.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>

#include "tests/gpu_host/fibre.h"
#include "tests/gpu_host/shadow.h"

namespace forge::gpu_host {
namespace {

using gpu::Site;

constexpr int kThreadsMax = Shadow::kLanesMax;
// Shared memory per block of the smallest target.
/// Of a block: what AMD's kernels declare, and what NVIDIA's launches may give (sm_90).
constexpr std::size_t kLdsMax = std::size_t{64} << 10, kLaunchedLdsMax = std::size_t{227} << 10, kLdsAlignment = 64;
constexpr std::size_t kBringMax = 256;

enum class Wait : std::uint8_t { kBarrier, kMeeting, kEnded };

struct Lane {
  Fibre* fibre = nullptr;  ///< null before the lane starts and after it has ended
  Wait wait = Wait::kEnded;
  unsigned meetings = 0;
  Site site{};
};

std::string text_of(Site site) {
  const char* slash = std::strrchr(site.file, '/');
  return fmt::format("{}:{}", slash != nullptr ? slash + 1 : site.file, site.line);
}

bool same(Site a, Site b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

/// Runs the lanes of one block after another. There is only one instance: fibres and shared memory are reused between
/// launches.
class Machine {
 public:
  Machine()
      : lane_(kThreadsMax),
        brought_(2 * kThreadsMax * kBringMax),
        lds_(kLaunchedLdsMax + kLdsAlignment),
        pool_(run_lanes) {}

  void start(const Kernel& kernel, const void* args, std::vector<int> wave_order, std::vector<int> lane_order);
  void block(int number);
  static void bind(gpu::HostLanes& lanes);

 private:
  static void run_lanes(Fibre& self);

  int advance();
  void go_to(int next, Fibre& self);
  void wait(Wait what, Site site);
  void note(Wait what, Site site);
  const void* meet(const void* bring, std::size_t bytes, Site site);
  void* take_lds(std::size_t bytes, std::size_t alignment, bool launched);
  std::size_t lds_offset(const void* at, std::size_t bytes, Site site);
  void fault(Site site, const char* what);
  void diverge(int first, int count);
  [[nodiscard]] std::string place(const Lane& lane) const;

  const Kernel* kernel_ = nullptr;
  gpu::HostLanes* lanes_ = nullptr;
  const void* args_ = nullptr;
  std::vector<int> wave_order_, lane_order_;  ///< order of the waves of a block, and of the lanes of a wave
  std::size_t wave_at_ = 0, lane_at_ = 0;     ///< position of the running lane in these
  bool agree_ = true;                         ///< all lanes of the wave that ran so far wait for the same thing
  std::vector<Lane> lane_;
  // Values that lanes pass to a shuffle or tile operation. Two operations' worth of space, because a lane may enter the
  // next operation before the others have read the values of this one.
  std::vector<std::byte> brought_;
  std::vector<std::byte> lds_;
  std::size_t lds_bytes_ = 0;  ///< 0 until a lane of the block requests memory
  Shadow shadow_;
  FibrePool pool_;
  Fibre caller_;
  std::string fault_;
};

Machine* machine = nullptr;

// Each callback is flattened into one function together with everything that it calls: after a switch of stacks the CPU
// mispredicts the returns, and each misprediction costs as much as the switch.
void Machine::bind(gpu::HostLanes& lanes) {
  lanes.barrier = [](Site site) __attribute__((flatten)) { machine->wait(Wait::kBarrier, site); };
  lanes.meet = [](const void* bring, std::size_t bytes, Site site)
                   __attribute__((flatten)) { return machine->meet(bring, bytes, site); };
  lanes.lds = [](std::size_t bytes, std::size_t alignment, bool launched) {
    return machine->take_lds(bytes, alignment, launched);
  };
  lanes.lds_read = [](const void* at, std::size_t bytes, Site site) {
    Machine& m = *machine;
    if (const char* what = m.shadow_.read(m.lds_offset(at, bytes, site), bytes, m.lanes_->thread)) m.fault(site, what);
  };
  lanes.lds_write = [](const void* at, std::size_t bytes, Site site) {
    Machine& m = *machine;
    if (const char* what = m.shadow_.write(m.lds_offset(at, bytes, site), bytes, m.lanes_->thread)) m.fault(site, what);
  };
  lanes.fail = [](const char* what, Site site) { machine->fault(site, what); };
}

void Machine::start(const Kernel& kernel, const void* args, std::vector<int> wave_order, std::vector<int> lane_order) {
  kernel_ = &kernel;
  lanes_ = kernel.lanes;
  args_ = args;
  wave_order_ = std::move(wave_order);
  lane_order_ = std::move(lane_order);
}

void Machine::block(int number) {
  lanes_->block = number;
  lds_bytes_ = 0;
  for (int i = 0; i < kernel_->code.threads; ++i) lane_[i] = {};
  wave_at_ = lane_at_ = 0;
  agree_ = true;
  go_to(wave_order_[0] * kernel_->code.wave + lane_order_[0], caller_);
  if (fault_.empty()) return;
  pool_.reset();
  throw LaneFault(std::exchange(fault_, {}));
}

/// Body of a fibre: runs lanes one after another as long as they wait for no other lane.
void Machine::run_lanes(Fibre& self) {
  for (;;) {
    Machine& m = *machine;
    m.lane_[m.lanes_->thread].fibre = &self;
    m.kernel_->code.run(m.args_);
    m.lane_[m.lanes_->thread].fibre = nullptr;
    m.note(Wait::kEnded, {});
    const int next = m.advance();
    if (next >= 0 && m.lane_[next].fibre == nullptr) {
      m.lanes_->thread = next;
      continue;
    }
    m.pool_.give(self);
    m.go_to(next, self);
  }
}

/// Switches to lane `next`, or to the caller if it is -1. Returns when `self` is scheduled again.
void Machine::go_to(int next, Fibre& self) {
  if (next < 0) return jump(self, caller_);
  lanes_->thread = next;
  Lane& lane = lane_[next];
  Fibre& to = lane.fibre != nullptr ? *lane.fibre : pool_.take();
  if (&to != &self) jump(self, to);
}

/// The lane to run when the current one cannot proceed; -1 when the block has finished or has a fault. Each lane of a
/// wave runs until it waits. While the lanes of the wave wait for each other, the wave starts over; then the next wave
/// runs. When all waves wait at one barrier, the first wave goes on.
int Machine::advance() {
  const int wave = kernel_->code.wave;
  const auto first_of_wave = [&] { return wave_order_[wave_at_] * wave; };
  if (++lane_at_ < lane_order_.size()) return first_of_wave() + lane_order_[lane_at_];
  if (!agree_) return diverge(first_of_wave(), wave), -1;
  const Wait what = lane_[first_of_wave()].wait;
  if (what != Wait::kMeeting && ++wave_at_ == wave_order_.size()) {
    wave_at_ = 0;
    const Lane& one = lane_[0];
    for (int i = wave; i < kernel_->code.threads; i += wave)
      if (lane_[i].wait != one.wait || !same(lane_[i].site, one.site)) return diverge(0, kernel_->code.threads), -1;
    if (what == Wait::kEnded) return -1;
    shadow_.barrier();
  }
  lane_at_ = 0;
  agree_ = true;
  return first_of_wave() + lane_order_[0];
}

/// Records what the running lane waits for.
void Machine::note(Wait what, Site site) {
  Lane& lane = lane_[lanes_->thread];
  lane.wait = what;
  lane.site = site;
  const Lane& first = lane_[wave_order_[wave_at_] * kernel_->code.wave + lane_order_[0]];
  agree_ = agree_ && first.wait == what && (what == Wait::kEnded || same(first.site, site));
}

void Machine::wait(Wait what, Site site) {
  const int me = lanes_->thread;
  note(what, site);
  go_to(advance(), *lane_[me].fibre);
}

const void* Machine::meet(const void* bring, std::size_t bytes, Site site) {
  const int me = lanes_->thread, wave = kernel_->code.wave;
  if (bytes > kBringMax) fault(site, "a lane brings too much to a meeting");
  std::byte* half = brought_.data() + ++lane_[me].meetings % 2 * kThreadsMax * kBringMax;
  std::memcpy(half + me * bytes, bring, bytes);
  wait(Wait::kMeeting, site);
  return half + me / wave * wave * bytes;
}

void* Machine::take_lds(std::size_t bytes, std::size_t alignment, bool launched) {
  const Site here = Site::here();
  const std::size_t most = launched ? kLaunchedLdsMax : kLdsMax;
  if (bytes > most || alignment > kLdsAlignment) fault(here, "more shared memory than a block may have");
  std::byte* start = lds_.data() + (-reinterpret_cast<std::uintptr_t>(lds_.data())) % kLdsAlignment;
  if (lds_bytes_ == 0) {
    lds_bytes_ = bytes;
    shadow_.start(bytes);
    std::memset(start, 0xff, bytes);
  }
  if (bytes != lds_bytes_) fault(here, "a kernel has one object in shared memory");
  return start;
}

std::size_t Machine::lds_offset(const void* at, std::size_t bytes, Site site) {
  const std::byte* start = lds_.data() + (-reinterpret_cast<std::uintptr_t>(lds_.data())) % kLdsAlignment;
  const auto offset = static_cast<const std::byte*>(at) - start;
  if (offset < 0 || static_cast<std::size_t>(offset) + bytes > lds_bytes_)
    fault(site, "an address outside the block's shared memory");
  return static_cast<std::size_t>(offset);
}

/// Ends the launch from inside a lane, which is never resumed. The function does not return but is not declared
/// noreturn: AddressSanitizer would then clear the shadow of "the stack", which here is the stacks of all lanes.
void Machine::fault(Site site, const char* what) {
  fault_ =
      fmt::format("{}: block {}, lane {}: {}: {}", kernel_->name, lanes_->block, lanes_->thread, text_of(site), what);
  jump(*lane_[lanes_->thread].fibre, caller_);
}

std::string Machine::place(const Lane& lane) const {
  if (lane.wait == Wait::kEnded) return "has ended";
  return fmt::format("waits at {} {}", lane.wait == Wait::kBarrier ? "the barrier" : "the wave's meeting",
                     text_of(lane.site));
}

/// Reports lanes that do not all wait for the same thing, with the positions of two of them.
void Machine::diverge(int first, int count) {
  int other = first + 1;
  while (other + 1 < first + count && lane_[other].wait == lane_[first].wait &&
         (lane_[other].wait == Wait::kEnded || same(lane_[other].site, lane_[first].site)))
    ++other;
  fault_ = fmt::format("{}: block {}: lanes diverge: lane {} {}, lane {} {}", kernel_->name, lanes_->block, first,
                       place(lane_[first]), other, place(lane_[other]));
}

}  // namespace

struct Module::Library {
  void* handle = nullptr;
  gpu::HostLanes lanes;
  explicit Library(const std::string& path) : handle(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle == nullptr) throw std::runtime_error(dlerror());
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() { dlclose(handle); }
};

Module::Module(const std::string& path) : library_(std::make_shared<Library>(path)) {
  const auto bind = reinterpret_cast<void (*)(gpu::HostLanes*)>(dlsym(library_->handle, "forge_bind_lanes"));
  if (bind == nullptr) throw std::runtime_error(path + " has no kernels in it");
  Machine::bind(library_->lanes);
  bind(&library_->lanes);
}

Kernel Module::kernel(const std::string& name) const {
  const void* symbol = dlsym(library_->handle, (name + "_kernel").c_str());
  if (symbol == nullptr) throw std::runtime_error("there is no kernel '" + name + "'");
  return {name, *static_cast<const gpu::HostKernel*>(symbol), &library_->lanes, library_};
}

void run_kernel(const Kernel& kernel, const Launch& launch, const void* args, std::size_t args_bytes) {
  const auto& [name, code, lanes, library] = kernel;
  const auto refuse = [&](const std::string& why) { throw std::runtime_error(fmt::format("{}: {}", name, why)); };
  if (args_bytes != code.args_bytes)
    refuse(fmt::format("it takes {} bytes of arguments, not {}", code.args_bytes, args_bytes));
  if (code.threads < 1 || code.threads > kThreadsMax || code.threads % code.wave != 0)
    refuse(fmt::format("{} threads are no block of whole waves", code.threads));
  if (code.blocks != 0 && launch.blocks != 0 && launch.blocks != code.blocks)
    refuse(fmt::format("it has {} blocks, not {}", code.blocks, launch.blocks));
  const int count = launch.blocks != 0 ? launch.blocks : code.blocks;
  if (count < 1) refuse(fmt::format("{} blocks", count));

  const auto in_order = [&](int size) {
    std::vector<int> numbers(size);
    std::iota(numbers.begin(), numbers.end(), 0);
    if (launch.order == Order::kReverse) std::reverse(numbers.begin(), numbers.end());
    if (launch.order == Order::kShuffled) std::shuffle(numbers.begin(), numbers.end(), std::mt19937(launch.seed));
    return numbers;
  };
  static Machine one;
  machine = &one;
  one.start(kernel, args, in_order(code.threads / code.wave), in_order(code.wave));
  for (const int number : in_order(count)) one.block(number);
}

}  // namespace forge::gpu_host
