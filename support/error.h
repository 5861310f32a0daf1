#pragma once
// The one error type of set-up code. Set-up paths (files, plans, flags, prompts, devices) throw `Error`; a tool's
// main prints `Error::line()` on stderr and exits with `Error::exit_status()`. Hot paths never throw.

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace forge {

enum class ErrorKind : std::uint8_t { kUser, kInternal, kDevice };

/// Stable codes: scripts may match the name printed in brackets. One row each in error.cc.
enum class ErrorCode : std::uint8_t {
  kUsage,             ///< a flag or argument is wrong
  kPrompt,            ///< the prompt cannot be run (too long for the context, invalid UTF-8)
  kIo,                ///< a file cannot be read or written
  kModelFormat,       ///< not a GGUF file, truncated, or contradicting itself
  kModelUnsupported,  ///< a valid file with a family, tensor type or feature that forge does not have
  kTokenizer,         ///< vocabulary or pre-tokenizer is broken or unknown
  kTemplate,          ///< a chat template does not parse or run
  kPlan,              ///< a plan file is damaged, foreign or of another version
  kCache,             ///< the plan cache cannot be used
  kMemory,            ///< does not fit into memory
  kDevice,            ///< a device or driver failed
  kInternal,          ///< a broken invariant: a bug in forge
};

/// What went wrong, why, and how to fix it, with the chain of what was being done.
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string what, std::string why = {}, std::string fix = {});

  /// The same error with `doing` ("reading model.gguf") put in front of its context chain.
  [[nodiscard]] Error within(std::string doing) const;

  [[nodiscard]] ErrorCode code() const { return code_; }
  [[nodiscard]] ErrorKind kind() const;
  /// 0 is never returned; 1 run, 2 usage, 3 model, 4 device, 5 memory.
  [[nodiscard]] int exit_status() const;
  /// One line without a newline: "error[model-format]: <context>: <what>: <why>; <fix>". Control characters of
  /// hostile input are shown as escapes and the line is cut at a few hundred characters.
  [[nodiscard]] const std::string& line() const { return line_; }
  [[nodiscard]] const char* what() const noexcept override { return line_.c_str(); }

 private:
  void compose();
  ErrorCode code_;
  std::string what_, why_, fix_;
  std::vector<std::string> context_;
  std::string line_;
};

/// Throws an internal error naming a numbered invariant, e.g. invariant(ok, "IR-004", "operand of a removed node").
void invariant(bool holds, std::string_view number, std::string_view text);

/// `text` with control characters and invalid UTF-8 escaped and cut to `chars_max`: for quoting hostile input.
[[nodiscard]] std::string printable(std::string_view text, std::size_t chars_max = 60);

}  // namespace forge
