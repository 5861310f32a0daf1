#pragma once
// A chat template: a Jinja template rendered as jinja2's ImmutableSandboxedEnvironment does with trim_blocks,
// lstrip_blocks and loop controls, the environment Hugging Face renders chat templates in
// (https://huggingface.co/docs/transformers/chat_templating). Semantics: the Jinja 3.1 documentation and Python's.
// What is not here is refused when the template is read: block, extends, include, import, autoescape; the filters
// pprint, random, striptags, urlize, wordwrap and xmlattr. Integers are 64 bits and overflow is an error.

#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace forge::text::jinja {

struct Program;

/// What one render may use at most; templates come with models and are not trusted.
struct RenderLimits {
  std::uint64_t steps_max = 20'000'000;  ///< evaluated nodes, elements and 64-byte pieces of text
  std::uint32_t depth_max = 1000;        ///< nested nodes across macro calls: about 100 macros deep
  std::uint64_t output_bytes_max = 64ull << 20;
  std::uint64_t memory_bytes_max = 512ull << 20;  ///< of all values ever made
};

/// A wall-clock moment without a time zone, for strftime_now.
struct Clock {
  std::tm fields{};  ///< all fields set, tm_wday and tm_yday included
  int microseconds = 0;
  static Clock local_now();
  /// Reads "2026-01-15", "2026-01-15T12:30:00" or with a fraction. Throws forge::Error(kUsage).
  static Clock parse(std::string_view iso);
};

class ChatTemplate {
 public:
  static constexpr std::size_t kSourceBytesMax = 4u << 20;

  /// Throws forge::Error(kTemplate) with line and column when `source` is not a template forge can run.
  static ChatTemplate parse(std::string_view source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// The text for the variables in `context`. May run in several threads at once. Throws forge::Error(kTemplate) with
  /// line and column when the template fails, refuses the conversation (raise_exception) or breaks a limit.
  [[nodiscard]] std::string render(const Dict& context, const Clock& now, const RenderLimits& limits = {}) const;

 private:
  explicit ChatTemplate(std::unique_ptr<const Program> program);
  std::unique_ptr<const Program> program_;
};

}  // namespace forge::text::jinja
