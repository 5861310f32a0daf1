#pragma once
// What every fuzz target shares. A target is one function of bytes that calls a reader; libFuzzer makes the bytes
// (source: LLVM, docs/LibFuzzer.rst). ASan, UBSan and libFuzzer's limits of time and memory find the rest.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>

#include "support/error.h"

namespace forge::fuzz {

/// Ends the run with a finding.
[[noreturn]] inline void finding(std::string_view what) {
  std::fprintf(stderr, "finding: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

inline void expect(bool holds, std::string_view what) {
  if (!holds) finding(what);
}

/// Runs `body`. A forge::Error is the answer that damaged input deserves, unless it is kInternal, which names a bug of
/// forge; any other exception is a finding, and so is an error without a line.
template <class Body>
int refuse_or_read(Body body) {
  try {
    body();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInternal) finding(error.line());
    expect(!error.line().empty() && error.line().find('\n') == std::string::npos, "an error is one line");
  } catch (const std::exception& error) {
    finding(error.what());
  }
  return 0;
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace forge::fuzz
