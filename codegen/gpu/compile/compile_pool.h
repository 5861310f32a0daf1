#pragma once
// Runs compilations in helper processes, several at once, each with a time limit, so that a compiler that crashes or
// hangs does not take forge down. Used by compile_service.h.

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

/// Called for each reply; returns false to stop. Replies come in any order.
using OnReply = std::function<bool(std::size_t request, CompileReply reply)>;

/// Compiles all requests, or until `on_reply` returns false. A helper handles one request after another. If one crashes
/// or takes too long, it is killed with all its children, the reply to its request says so (with the helper's stderr as
/// log), and a new helper takes over. No helper, and none of their files, outlives the call. Returns the number of
/// helpers that were started. Errors: Error(kDevice) if no helper can be started; whatever `on_reply` throws.
std::size_t run_requests(const PoolOptions& options, std::span<const CompileRequest> requests, const OnReply& on_reply);

/// The path of forge-kernel-compiler: beside the running program, in ../libexec, or in the build tree's tools/. Empty
/// if it is in none of these.
[[nodiscard]] std::filesystem::path find_helper();

}  // namespace forge::codegen
