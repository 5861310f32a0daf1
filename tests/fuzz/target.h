#pragma once
// Shared code of the fuzz targets. A target is one function that gives bytes to a reader; libFuzzer generates the bytes
// (source: LLVM, docs/LibFuzzer.rst). Memory errors, undefined behaviour, hangs and memory growth are found by ASan,
// UBSan and libFuzzer's limits.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>

#include "support/error.h"

namespace forge::fuzz {

/// Aborts the run with a finding, so that libFuzzer saves the input.
[[noreturn]] inline void finding(std::string_view what) {
  std::fprintf(stderr, "finding: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

inline void expect(bool holds, std::string_view what) {
  if (!holds) finding(what);
}

/// Runs `body` and checks its exceptions. A forge::Error with a one-line message is the correct reaction to damaged
/// input, except kInternal, which reports a bug in forge. Any other exception is a finding.
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

/// Separates the files of a split model in the seeds of gguf_fuzz.
inline constexpr std::string_view kNextPart = "<next part>";

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace forge::fuzz
