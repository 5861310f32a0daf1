#pragma once
// forge-inspect check-constraints MODEL < LINES: is a text what a constraint allows, by the masks that sampling uses?

#include <filesystem>
#include <iosfwd>

namespace forge::tools {

/// Reads JSON lines {"regex": ..., "text": ...} from `in` and writes {"accepted": bool} or {"refused": "why"} for each,
/// in order. {"gbnf": ...} and {"schema": ...} are refused so far. Errors: those of Gguf::open and Tokenizer::open;
/// kUsage for a line that is no such object.
void inspect_constraints(const std::filesystem::path& model, std::istream& in, std::ostream& out);

}  // namespace forge::tools
