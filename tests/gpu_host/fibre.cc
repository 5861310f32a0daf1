// The pool of fibre stacks and the functions that start fibres (fibre.h).
#include "tests/gpu_host/fibre.h"

#include <new>

#include <sys/mman.h>

namespace forge::gpu_host {
namespace {

using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

// Frames of instrumented code are several times larger than ordinary ones. Only touched pages cost memory.
constexpr std::size_t kStackBytes = std::size_t{256} << 10, kGuardBytes = std::size_t{64} << 10;
constexpr std::size_t kMemoryBytes = FibrePool::kFibresMax * kStackBytes;
// Cache colouring. All lanes are at the same stack depth, so frames at the same offset in each stack would compete for
// the few cache lines that share an address modulo a page. Each stack therefore begins a little lower than the one
// before.
constexpr std::size_t kColours = 32, kColourBytes = 192;

void first_run(transfer_t transfer) {
  const detail::Ticket ticket = *static_cast<const detail::Ticket*>(transfer.data);
  detail::arrive(ticket, transfer, nullptr);
  ticket.to->body(*ticket.to);
  __builtin_trap();  // there is no caller to return to
}

}  // namespace

FibrePool::FibrePool(Fibre::Body body) : all_(kFibresMax) {
  void* memory =
      mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<char*>(memory);
  for (Fibre& fibre : all_) fibre = {.stacks = memory, .stacks_bytes = kMemoryBytes, .body = body};
}

FibrePool::~FibrePool() {
  munmap(memory_, kMemoryBytes);
}

Fibre& FibrePool::take() {
  if (idle_.empty()) {
    mprotect(memory_ + started_ * kStackBytes, kGuardBytes, PROT_NONE);
    start(started_);
    idle_.push_back(&all_.at(started_++));
  }
  Fibre& fibre = *idle_.back();
  idle_.pop_back();
  return fibre;
}

void FibrePool::start(std::size_t index) {
  const std::size_t bytes = kStackBytes - kGuardBytes, colour = index % kColours * kColourBytes;
  char* bottom = memory_ + index * kStackBytes + kGuardBytes;
#if FORGE_HOST_ASAN
  __asan_unpoison_memory_region(bottom, bytes);  // frames that were abandoned without returning
#endif
  all_[index].context = make_fcontext(bottom + bytes - colour, bytes - colour, first_run);
}

void FibrePool::reset() {
  idle_.clear();
  for (std::size_t i = 0; i < started_; ++i) {
    start(i);
    idle_.push_back(&all_[i]);
  }
}

}  // namespace forge::gpu_host
