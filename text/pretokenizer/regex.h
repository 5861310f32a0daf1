#pragma once
// Regular expressions over UTF-8, matched by PCRE2: as machine code where PCRE2's JIT compiler works, by its
// interpreter elsewhere. Both give the same matches; the interpreter is several times slower.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace forge::text {

/// A compiled expression. Immutable, so threads may share it; each thread has its own working memory.
///
/// Syntax: PCRE2's, with Unicode categories. \s is Unicode's White_Space property, which PCRE2's own \s is not: that
/// takes U+180E too, which Unicode removed in version 6.3.
///
/// Time: PCRE2 backtracks, so an expression must not scan far ahead of what it then consumes (expressions.h). Memory
/// does not grow with the text as long as only single characters and possessive groups repeat.
class Regex {
 public:
  enum class Engine : std::uint8_t { kFastest, kInterpreter };

  /// Error: kInternal if `expression` is malformed; expressions are forge's own.
  explicit Regex(std::string_view expression, Engine engine = Engine::kFastest);

  struct Match {
    std::size_t begin = std::string_view::npos;  ///< npos: no match
    std::size_t end = std::string_view::npos;
  };
  /// The first match that is not empty and begins at or after byte `at`. The expression sees all of `text`, also what
  /// lies before `at`. `text` must be valid UTF-8 (RFC 3629: without surrogates) and is not checked. Errors: kInternal
  /// if PCRE2 fails, std::bad_alloc.
  [[nodiscard]] Match find(std::string_view text, std::size_t at) const;

  [[nodiscard]] bool is_machine_code() const { return jit_; }

 private:
  struct Free {
    void operator()(void* code) const;
  };
  std::unique_ptr<void, Free> code_;  // a pcre2_code; its header stays in regex.cc
  bool jit_ = false;
};

}  // namespace forge::text
