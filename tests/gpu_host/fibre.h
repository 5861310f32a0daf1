#pragma once
// Fibres: user-level threads with their own stacks. A jump from one to another takes a few nanoseconds and allocates
// nothing. Boost.Context's fcontext switches the stacks; its fiber class allocates and unwinds, which lanes do not
// need. AddressSanitizer sees all stacks of a pool as one stack: it is told when execution moves from the caller's
// stack to the pool or back, but not of jumps between fibres. FORGE_HOST_ASAN (0 or 1) says whether the program uses
// it; these sources themselves are not instrumented, for speed.

#include <cstddef>
#include <vector>

#include <boost/context/detail/fcontext.hpp>

#if FORGE_HOST_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace forge::gpu_host {

/// A fibre of a pool or, default-constructed, the caller's own thread, to which fibres jump back.
struct Fibre {
  using Body = void (*)(Fibre& self);
  boost::context::detail::fcontext_t context = nullptr;  ///< the saved state while another fibre runs
  const void* stacks = nullptr;  ///< for AddressSanitizer: lowest address of the pool's stacks, or of the caller's own
  std::size_t stacks_bytes = 0;
  void* frames = nullptr;  ///< AddressSanitizer's fake frames of this stack
  Body body = nullptr;     ///< the function that the fibre runs
};

namespace detail {

/// The data passed along with a jump.
struct Ticket {
  Fibre* from;
  Fibre* to;
};
/// Runs first on the new stack. `frames`: AddressSanitizer's fake frames of that stack.
inline void arrive(const Ticket& ticket, boost::context::detail::transfer_t transfer, [[maybe_unused]] void* frames) {
  Fibre& left = *ticket.from;
  left.context = transfer.fctx;
#if FORGE_HOST_ASAN
  // AddressSanitizer reports the bounds of the stack that was left; for the caller's own stack there is no other
  // source.
  if (left.stacks != ticket.to->stacks) __sanitizer_finish_switch_fiber(frames, &left.stacks, &left.stacks_bytes);
#endif
}

}  // namespace detail

/// Suspends `from`, the running fibre, and resumes `to`. Returns when a fibre jumps back to `from`.
inline void jump(Fibre& from, Fibre& to) {
  detail::Ticket ticket{&from, &to};
#if FORGE_HOST_ASAN
  if (from.stacks != to.stacks) __sanitizer_start_switch_fiber(&from.frames, to.stacks, to.stacks_bytes);
#endif
  const auto transfer = boost::context::detail::jump_fcontext(to.context, &ticket);
  detail::arrive(*static_cast<const detail::Ticket*>(transfer.data), transfer, from.frames);
}

/// At most kFibresMax fibres that run `body` when first jumped to. Stacks are kept for reuse.
class FibrePool {
 public:
  static constexpr std::size_t kFibresMax = 1024;

  /// `body` must not return: at its end it gives its fibre back and jumps away. Errors: std::bad_alloc.
  explicit FibrePool(Fibre::Body body);
  FibrePool(const FibrePool&) = delete;
  FibrePool& operator=(const FibrePool&) = delete;
  ~FibrePool();

  /// Takes a free fibre; there must be one.
  Fibre& take();
  void give(Fibre& fibre) { idle_.push_back(&fibre); }
  /// Resets all fibres to their start, wherever they are. Nothing is unwound, so objects on the stacks are not
  /// destroyed.
  void reset();

 private:
  void start(std::size_t index);

  char* memory_;  ///< all stacks, each with a guard page below it
  std::vector<Fibre> all_;
  std::vector<Fibre*> idle_;
  std::size_t started_ = 0;  ///< how many of all_ have been started
};

}  // namespace forge::gpu_host
