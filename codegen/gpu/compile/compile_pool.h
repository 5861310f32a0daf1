#pragma once
// Runs compilations in helper processes, several at once, each with a time limit.

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>

#include "codegen/gpu/compile/compile_wire.h"

namespace forge::codegen {

struct PoolOptions {
  std::filesystem::path helper;               ///< the program forge-kernel-compiler
  int jobs = 1;                               ///< helper processes at once
  std::chrono::milliseconds timeout{60'000};  ///< of one request: CPU time, and clock time without any
};

/// Answers true to go on. Replies come in any order.
using OnReply = std::function<bool(std::size_t request, CompileReply reply)>;

/// Compiles all requests, until `on_reply` says no. A helper takes one request after another; one that crashes or takes
/// too long is ended with all its children, its request's reply says so (and has its stderr as log), and another helper
/// takes over. No helper and none of their files outlive the call. Answers how many helpers were started.
/// Errors: Error(kDevice) when helpers cannot be started; what `on_reply` throws.
std::size_t run_requests(const PoolOptions& options, std::span<const CompileRequest> requests, const OnReply& on_reply);

/// forge-kernel-compiler as installed or built with the running program: beside it, in ../libexec, or in the build
/// tree's tools/. Empty when it is in none of these.
[[nodiscard]] std::filesystem::path find_helper();

}  // namespace forge::codegen
