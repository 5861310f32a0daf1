#pragma once
// The error type of all set-up code: reading files, plans, flags and prompts, and opening devices. Such code throws
// `Error`; a tool's main prints `Error::line()` on stderr and exits with `Error::exit_status()`. Hot paths never throw;
// they return values.

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace forge {

/// kUser: an input, flag or file is wrong. kInternal: a bug in forge. kDevice: a device or its driver failed.
enum class ErrorKind : std::uint8_t { kUser, kInternal, kDevice };

/// Stable codes: the name in brackets ("error[io]: ...") is part of the interface, so scripts may match it. Name, kind
/// and exit status are in one table in error.cc.
enum class ErrorCode : std::uint8_t {
  kUsage,             ///< a flag or argument is wrong
  kPrompt,            ///< the prompt cannot be run (too long for the context, invalid UTF-8)
  kIo,                ///< a file cannot be read or written
  kModelFormat,       ///< not a GGUF file, truncated, or contradicting itself
  kModelUnsupported,  ///< a valid file that needs a model family, tensor type or feature that forge lacks
  kTokenizer,         ///< vocabulary or pre-tokenizer is broken or unknown
  kTemplate,          ///< a chat template does not parse or run
  kPlan,              ///< a plan file is damaged, or was made by another version or for another model or device
  kCache,             ///< the plan cache cannot be used
  kMemory,            ///< the model or the request does not fit into memory
  kDevice,            ///< a device or driver failed
  kInternal,          ///< a broken invariant: a bug in forge
};

/// Says what failed, why, and how to fix it, together with a chain of contexts: what the program was doing at the time.
///
/// Example: throw Error(kIo, "cannot read model.gguf", "permission denied", "give yourself read permission").
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string what, std::string why = {}, std::string fix = {});

  /// A copy of this error with `doing` ("reading model.gguf") as its new outermost context.
  [[nodiscard]] Error within(std::string doing) const;

  [[nodiscard]] ErrorCode code() const { return code_; }
  [[nodiscard]] ErrorKind kind() const;
  /// The exit status for a tool: 1 the run failed, 2 wrong usage, 3 the model cannot be used, 4 device, 5 memory. Never
  /// 0.
  [[nodiscard]] int exit_status() const;
  /// The error as one line without a trailing newline: "error[model-format]: <context>: <what>: <why>; <fix>". Control
  /// characters and invalid UTF-8 are escaped, and the line is cut after about 600 characters.
  [[nodiscard]] const std::string& line() const { return line_; }
  [[nodiscard]] const char* what() const noexcept override { return line_.c_str(); }

 private:
  void compose();
  ErrorCode code_;
  std::string what_, why_, fix_;
  std::vector<std::string> context_;  // outermost first
  std::string line_;                  // what compose() made of the rest
};

/// Throws a kInternal error that cites a numbered invariant unless `holds`, e.g. invariant(ok, "IR-004", "operand of a
/// removed node"). The number makes the check easy to find in the source.
void invariant(bool holds, std::string_view number, std::string_view text);

/// `text` made safe to print: control characters and invalid UTF-8 become \xNN, and "..." follows about `chars_max`
/// bytes. For quoting untrusted input in messages.
[[nodiscard]] std::string printable(std::string_view text, std::size_t chars_max = 60);

}  // namespace forge
