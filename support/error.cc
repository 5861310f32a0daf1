// The table of error codes (name, kind, exit status), the composition of an error's one-line text, and the escaping of
// untrusted text.
#include "support/error.h"

#include <array>

#include "support/utf8.h"

namespace forge {
namespace {

/// The properties of one ErrorCode. kCodes is indexed by the enumerator, which the static_assert below checks.
struct CodeRow {
  ErrorCode code;
  const char* name;
  ErrorKind kind;
  int exit_status;
};

constexpr std::array kCodes{
    CodeRow{ErrorCode::kUsage, "usage", ErrorKind::kUser, 2},
    CodeRow{ErrorCode::kPrompt, "prompt", ErrorKind::kUser, 1},
    CodeRow{ErrorCode::kIo, "io", ErrorKind::kUser, 1},
    CodeRow{ErrorCode::kModelFormat, "model-format", ErrorKind::kUser, 3},
    CodeRow{ErrorCode::kModelUnsupported, "model-unsupported", ErrorKind::kUser, 3},
    CodeRow{ErrorCode::kTokenizer, "tokenizer", ErrorKind::kUser, 3},
    CodeRow{ErrorCode::kTemplate, "template", ErrorKind::kUser, 3},
    CodeRow{ErrorCode::kPlan, "plan", ErrorKind::kUser, 3},
    CodeRow{ErrorCode::kCache, "cache", ErrorKind::kUser, 1},
    CodeRow{ErrorCode::kMemory, "memory", ErrorKind::kUser, 5},
    CodeRow{ErrorCode::kDevice, "device", ErrorKind::kDevice, 4},
    CodeRow{ErrorCode::kInternal, "internal", ErrorKind::kInternal, 1},
};

const CodeRow& row_of(ErrorCode code) {
  return kCodes[static_cast<std::size_t>(code)];
}

static_assert([] {
  for (std::size_t i = 0; i < kCodes.size(); ++i)
    if (static_cast<std::size_t>(kCodes[i].code) != i) return false;
  return true;
}());

// Keeps a hostile file name or metadata string from flooding the terminal.
constexpr std::size_t kLineCharsMax = 600;

}  // namespace

std::string printable(std::string_view text, std::size_t chars_max) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  while (!text.empty()) {
    if (out.size() >= chars_max) return out + "...";
    const std::size_t n = utf8_length(text);
    const auto c = static_cast<unsigned char>(text[0]);
    // Invalid UTF-8 and control characters, which could otherwise move the cursor or recolour the terminal, become
    // \xNN.
    if (n == 0 || c < 0x20 || c == 0x7F) {
      out += "\\x";
      out += kHex[c >> 4];
      out += kHex[c & 15];
      text.remove_prefix(1);
    } else {
      out += text.substr(0, n);
      text.remove_prefix(n);
    }
  }
  return out;
}

Error::Error(ErrorCode code, std::string what, std::string why, std::string fix)
    : code_(code), what_(std::move(what)), why_(std::move(why)), fix_(std::move(fix)) {
  compose();
}

Error Error::within(std::string doing) const {
  Error copy = *this;
  copy.context_.insert(copy.context_.begin(), std::move(doing));
  copy.compose();
  return copy;
}

ErrorKind Error::kind() const {
  return row_of(code_).kind;
}
int Error::exit_status() const {
  return row_of(code_).exit_status;
}

void Error::compose() {
  std::string text;
  for (const auto& doing : context_) text += doing + ": ";
  text += what_;
  if (!why_.empty()) text += ": " + why_;
  if (!fix_.empty()) text += "; " + fix_;
  line_ = std::string("error[") + row_of(code_).name + "]: " + printable(text, kLineCharsMax);
}

void invariant(bool holds, std::string_view number, std::string_view text) {
  if (!holds) [[unlikely]]
    throw Error(ErrorCode::kInternal, "invariant " + std::string(number) + " broken", std::string(text),
                "please report this with the command and the model's name");
}

}  // namespace forge
