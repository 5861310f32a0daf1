#pragma once
// Chat templates: parses a Jinja template once and renders it for conversations. The result equals that of jinja2's
// ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks and loop controls, which is how Hugging Face renders
// chat templates (https://huggingface.co/docs/transformers/chat_templating). Semantics: the Jinja 3.1 documentation and
// Python's.
//
//    source --lexer--> tokens --parser--> Program (ast.h) --Interp, with the variables--> text
//
// Not supported, and refused when the template is parsed: block, extends, include, import, autoescape; the filters
// pprint, random, striptags, urlize, wordwrap and xmlattr. Integers have 64 bits, and overflow is an error.

#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace forge::text::jinja {

struct Program;

/// What one render may use. Templates come with models and are not trusted.
struct RenderLimits {
  std::uint64_t steps_max = 20'000'000;  ///< a step: a node evaluated, an element visited, or 64 bytes of text read
  std::uint32_t depth_max = 1000;        ///< nested evaluations, about 100 macros deep
  std::uint64_t output_bytes_max = 64ull << 20;
  std::uint64_t memory_bytes_max = 512ull << 20;  ///< total of all values ever made
};

/// A date and time without a time zone, for strftime_now.
struct Clock {
  std::tm fields{};  ///< all fields set, tm_wday and tm_yday included
  int microseconds = 0;
  /// The current local time.
  static Clock local_now();
  /// Reads "2026-01-15", "2026-01-15T12:30:00" or the same with a fraction of a second. Error: kUsage.
  static Clock parse(std::string_view iso);
};

/// A parsed chat template. Immutable: any number of threads may render it at the same time.
class ChatTemplate {
 public:
  static constexpr std::size_t kSourceBytesMax = 4u << 20;

  /// Error: kTemplate with line and column if `source` is too large, is not UTF-8 or is not a template that forge can
  /// run.
  static ChatTemplate parse(std::string_view source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// The text for the variables in `context`. Error: kTemplate with line and column if the template fails, rejects the
  /// conversation (raise_exception) or exceeds a limit.
  [[nodiscard]] std::string render(const Dict& context, const Clock& now, const RenderLimits& limits = {}) const;

 private:
  explicit ChatTemplate(std::unique_ptr<const Program> program);
  std::unique_ptr<const Program> program_;
};

}  // namespace forge::text::jinja
