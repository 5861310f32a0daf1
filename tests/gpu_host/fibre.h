#pragma once
// Threads of control with stacks of their own, which jump to each other; a jump costs a few nanoseconds and allocates
// nothing. Boost.Context's fcontext switches the stacks (its fiber class allocates and unwinds, which lanes do not
// need). AddressSanitizer takes all stacks of a pool for one: it is told when the caller's stack is left for them and
// returned to, not of jumps from fibre to fibre. FORGE_HOST_ASAN (0 or 1) says whether the program has it: these
// sources themselves are built without, for speed.

#include <cstddef>
#include <vector>

#include <boost/context/detail/fcontext.hpp>

#if FORGE_HOST_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace forge::gpu_host {

/// A thread of control: one of a pool, or (default constructed) the caller's own, which others jump back to.
struct Fibre {
  using Body = void (*)(Fibre& self);
  boost::context::detail::fcontext_t context = nullptr;  ///< where it stands while another one runs
  const void* stacks = nullptr;  ///< for AddressSanitizer: the lowest address of its pool's stacks, or of its own
  std::size_t stacks_bytes = 0;
  void* frames = nullptr;  ///< AddressSanitizer's fake frames of this stack
  Body body = nullptr;     ///< what it runs from its start
};

namespace detail {

/// What goes along with a jump.
struct Ticket {
  Fibre* from;
  Fibre* to;
};
/// On the new stack. `frames` is AddressSanitizer's of it.
inline void arrive(const Ticket& ticket, boost::context::detail::transfer_t transfer, [[maybe_unused]] void* frames) {
  Fibre& left = *ticket.from;
  left.context = transfer.fctx;
#if FORGE_HOST_ASAN
  // Learns the bounds of the stack that was left, which for the caller's own nobody has told.
  if (left.stacks != ticket.to->stacks) __sanitizer_finish_switch_fiber(frames, &left.stacks, &left.stacks_bytes);
#endif
}

}  // namespace detail

/// From `from`, which runs now: goes on with `to`. Returns when somebody jumps to `from`.
inline void jump(Fibre& from, Fibre& to) {
  detail::Ticket ticket{&from, &to};
#if FORGE_HOST_ASAN
  if (from.stacks != to.stacks) __sanitizer_start_switch_fiber(&from.frames, to.stacks, to.stacks_bytes);
#endif
  const auto transfer = boost::context::detail::jump_fcontext(to.context, &ticket);
  detail::arrive(*static_cast<const detail::Ticket*>(transfer.data), transfer, from.frames);
}

/// At most kFibresMax fibres, which run `body` when they are first jumped to. Stacks are kept.
class FibrePool {
 public:
  static constexpr std::size_t kFibresMax = 1024;

  /// `body` never returns; it gives its fibre back and jumps away. Errors: std::bad_alloc.
  explicit FibrePool(Fibre::Body body);
  FibrePool(const FibrePool&) = delete;
  FibrePool& operator=(const FibrePool&) = delete;
  ~FibrePool();

  /// One that nobody uses. There must be one.
  Fibre& take();
  void give(Fibre& fibre) { idle_.push_back(&fibre); }
  /// Puts all fibres back to their start, wherever they are. Nothing is unwound: not for stacks that own something.
  void reset();

 private:
  void start(std::size_t index);

  char* memory_;  ///< of all stacks, each with a page below it that faults
  std::vector<Fibre> all_;
  std::vector<Fibre*> idle_;
  std::size_t started_ = 0;  ///< of all_
};

}  // namespace forge::gpu_host
