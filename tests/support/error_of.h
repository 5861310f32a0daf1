#pragma once
// Returns what a callable throws: the line of its forge::Error, or its code. The test fails if it throws nothing or the
// message has several lines.

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <utility>

#include "support/error.h"

namespace forge::tests {

template <class Body>
std::optional<Error> thrown_by(Body&& body) {
  try {
    std::forward<Body>(body)();
  } catch (const Error& error) {
    CHECK(error.line().find('\n') == std::string::npos);
    return error;
  }
  FAIL("no error");
  return std::nullopt;
}

template <class Body>
ErrorCode code_of(Body&& body) {
  return thrown_by(std::forward<Body>(body))->code();
}

/// The error's line, e.g. "error[usage]: ...".
template <class Body>
std::string error_of(Body&& body) {
  return thrown_by(std::forward<Body>(body))->line();
}

/// The same; the error must also have this code.
template <class Body>
std::string error_of(Body&& body, ErrorCode code) {
  const auto error = thrown_by(std::forward<Body>(body));
  CHECK(error->code() == code);
  return error->line();
}

}  // namespace forge::tests
