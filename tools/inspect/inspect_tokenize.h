#pragma once
// forge-inspect tokenize MODEL [--special] < TEXT

#include <filesystem>
#include <iosfwd>

namespace forge::tools {

/// Writes the ids of all of `in` as a JSON array and a newline; no BOS is added. The tokenizer's warnings go to `log`.
/// Errors: those of Gguf::open and Tokenizer::open; kIo when `in` cannot be read.
void inspect_tokenize(const std::filesystem::path& model, bool parse_special, std::istream& in, std::ostream& out,
                      std::ostream& log);

}  // namespace forge::tools
