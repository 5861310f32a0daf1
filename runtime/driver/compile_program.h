#pragma once
// The sequence of calls that compiles a source with hipRTC or NVRTC, whose APIs differ in names only. Private to
// runtime/driver.

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/driver/driver.h"

namespace forge::driver {

/// The functions of one compiler. Both vendors use the same names after `prefix`.
template <typename Program, typename Result>
struct CompilerCalls {
  /// One kind of output (e.g. cubin, PTX). The first with a size above 0 is used.
  struct Code {
    const char* name;
    std::function<Result(Program, std::size_t*)> size;
    std::function<Result(Program, char*)> get;
  };
  std::function<Result(Program*, const char* source, const char* name, int, const char**, const char**)> create;
  std::function<Result(Program*)> destroy;
  std::function<Result(Program, int, const char**)> compile;
  std::function<Result(Program, std::size_t*)> log_size;
  std::function<Result(Program, char*)> log;
  std::function<const char*(Result)> text;
  std::vector<Code> code;
  const char* prefix;
};

/// Compiles `source`. Failures are returned in CompileResult::failure, with the compiler's log.
template <typename Program, typename Result>
CompileResult compile_program(const CompilerCalls<Program, Result>& calls, const std::string& source,
                              const std::string& name, std::span<const std::string> options) {
  CompileResult out;
  const auto failed = [&](Result result, std::string function) {
    if (static_cast<int>(result) == 0) return false;
    out.failure = fmt::format("{}: {} ({})", function, calls.text(result), static_cast<int>(result));
    return true;
  };
  Program program{};
  if (failed(calls.create(&program, source.c_str(), name.c_str(), 0, nullptr, nullptr),
             fmt::format("{}CreateProgram", calls.prefix))) {
    return out;
  }
  // The program is destroyed on every path.
  const auto destroy = [&](Program* owned) { static_cast<void>(calls.destroy(owned)); };
  const std::unique_ptr<Program, decltype(destroy)> owner(&program, destroy);

  std::vector<const char*> texts;
  for (const std::string& option : options) texts.push_back(option.c_str());
  const Result compiled = calls.compile(program, static_cast<int>(texts.size()), texts.data());

  // The log is read after success, too: it has the warnings. Its size includes the terminating zero.
  std::size_t log_bytes = 0;
  if (static_cast<int>(calls.log_size(program, &log_bytes)) == 0 && log_bytes > 1) {
    out.log.resize(log_bytes);
    if (static_cast<int>(calls.log(program, out.log.data())) != 0) out.log.clear();
    while (!out.log.empty() && out.log.back() == '\0') out.log.pop_back();
  }
  if (failed(compiled, fmt::format("{}CompileProgram", calls.prefix))) return out;

  for (const auto& code : calls.code) {
    std::size_t bytes = 0;
    if (failed(code.size(program, &bytes), fmt::format("{}Size", code.name))) return out;
    if (bytes == 0) continue;
    out.code.resize(bytes);
    if (failed(code.get(program, reinterpret_cast<char*>(out.code.data())), code.name)) out.code.clear();
    return out;
  }
  out.failure = fmt::format("{}CompileProgram produced no code", calls.prefix);
  return out;
}

}  // namespace forge::driver
