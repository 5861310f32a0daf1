#include "tools/inspect/inspect_tokenize.h"

#include <fmt/core.h>

#include <istream>
#include <iterator>
#include <ostream>

#include "loader/gguf/gguf.h"
#include "support/error.h"
#include "text/tokenizer/tokenizer.h"

namespace forge::tools {

void inspect_tokenize(const std::filesystem::path& model, bool parse_special, std::istream& in, std::ostream& out,
                      std::ostream& log) {
  const auto gguf = loader::Gguf::open(model);
  const auto tokenizer = text::Tokenizer::open(gguf);
  for (const auto& warning : tokenizer->warnings()) log << "warning: " << printable(warning, 300) << '\n';
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (in.bad()) throw Error(ErrorCode::kIo, "cannot read the text", "standard input failed", "give it through a pipe");
  std::string line = "[";
  for (const auto id : tokenizer->encode(text, {.add_special = false, .parse_special = parse_special}))
    line += fmt::format("{}{}", line.size() == 1 ? "" : ", ", id);
  out << line << "]\n";
}

}  // namespace forge::tools
