#include "text/pretokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/core.h>
#include <pcre2.h>

#include <new>
#include <string>

#include "support/error.h"

namespace forge::text {
namespace {

// Unicode's White_Space property as the inside of a character class.
constexpr std::string_view kWhiteSpace =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

/// `expression` with \s and \S spelled out. \S inside a character class is not supported.
std::string spell_out_spaces(std::string_view expression) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c != '\\') {
      in_class = c == '[' || (in_class && c != ']');
      out += c;
      continue;
    }
    const char escaped = expression[++i];
    if (escaped != 's' && escaped != 'S')
      out.append(1, c).append(1, escaped);
    else if (in_class)
      out += kWhiteSpace;
    else
      out.append(escaped == 's' ? "[" : "[^").append(kWhiteSpace).append("]");
  }
  return out;
}

std::string message_of(int error) {
  PCRE2_UCHAR text[128];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

// Machine code gets a stack of its own, because the thread's may be small. The expressions need a few hundred bytes
// whatever the text; a match that wanted more than kJitStackBytesMax would be repeated by the interpreter, whose memory
// is on the heap.
constexpr std::size_t kJitStackBytes = std::size_t{32} << 10, kJitStackBytesMax = std::size_t{1} << 20;

/// What a thread needs for matching.
struct Workspace {
  Workspace() {
    if (context == nullptr || match == nullptr) throw std::bad_alloc();
    // PCRE2's limits count steps back, so a long run of white space would reach the default of ten million. Time is
    // bounded by the expressions instead.
    pcre2_set_match_limit(context.get(), UINT32_MAX);
    pcre2_set_depth_limit(context.get(), UINT32_MAX);
    pcre2_set_heap_limit(context.get(), UINT32_MAX);
    if (stack != nullptr) pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
  std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context{pcre2_match_context_create(nullptr),
                                                                                    pcre2_match_context_free};
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match{pcre2_match_data_create(1, nullptr),
                                                                            pcre2_match_data_free};
  std::unique_ptr<pcre2_jit_stack, decltype(&pcre2_jit_stack_free)> stack{
      pcre2_jit_stack_create(kJitStackBytes, kJitStackBytesMax, nullptr), pcre2_jit_stack_free};
};

}  // namespace

void Regex::Free::operator()(void* code) const {
  pcre2_code_free(static_cast<pcre2_code*>(code));
}

Regex::Regex(std::string_view expression, Engine engine) {
  const std::string pattern = spell_out_spaces(expression);
  int error = 0;
  PCRE2_SIZE error_at = 0;
  pcre2_code* const code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                         PCRE2_UTF | PCRE2_UCP, &error, &error_at, nullptr);
  if (code == nullptr)
    throw Error(ErrorCode::kInternal,
                fmt::format("a pre-tokenizer's expression: {} at byte {} of {}", message_of(error), error_at, pattern));
  code_.reset(code);
  // This fails where PCRE2 was built without JIT and where the system forbids memory that is both written and executed.
  jit_ = engine == Engine::kFastest && pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
}

Regex::Match Regex::find(std::string_view text, std::size_t at) const {
  thread_local const Workspace workspace;
  const auto* const code = static_cast<const pcre2_code*>(code_.get());
  const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int result = PCRE2_ERROR_JIT_STACKLIMIT;
  if (jit_)
    result =
        pcre2_jit_match(code, subject, text.size(), at, PCRE2_NOTEMPTY, workspace.match.get(), workspace.context.get());
  if (result == PCRE2_ERROR_JIT_STACKLIMIT)
    result = pcre2_match(code, subject, text.size(), at, PCRE2_NOTEMPTY | PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         workspace.match.get(), workspace.context.get());
  if (result == PCRE2_ERROR_NOMATCH) return {};
  if (result == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
  if (result < 0)
    throw Error(ErrorCode::kInternal, fmt::format("matching a pre-tokenizer's expression: {}", message_of(result)));
  const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(workspace.match.get());
  return {.begin = range[0], .end = range[1]};
}

}  // namespace forge::text
