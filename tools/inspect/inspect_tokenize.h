#pragma once
// forge-inspect tokenize MODEL [--special] < TEXT: prints the token ids of a text.

#include <filesystem>
#include <iosfwd>

namespace forge::tools {

/// Writes the token ids of the text `in` as a JSON array and a newline, without BOS. `parse_special`: encode the text
/// of control tokens as these tokens. The tokenizer's warnings go to `log`. Errors: those of Gguf::open and
/// Tokenizer::open; kIo when `in` cannot be read.
void inspect_tokenize(const std::filesystem::path& model, bool parse_special, std::istream& in, std::ostream& out,
                      std::ostream& log);

}  // namespace forge::tools
