#pragma once
// forge-inspect check-constraints MODEL < LINES: is a text what a constraint allows, by the masks that sampling uses?

#include <filesystem>
#include <iosfwd>

namespace forge::tools {

/// Reads JSON lines from `in` and writes one for each, in order. {"regex" | "gbnf" | "schema" | "calls": ..., "text":
/// ...} is answered by {"accepted": bool} ("calls": pieces as call_language.h takes them); with "seed": N instead of
/// the text, by a text that a random walk over the allowed tokens makes ({"text": ...}, {"unfinished": true} if it has
/// not ended in time); a refused constraint by {"refused": "why"}. Prints the times of compilation, masks and accepted
/// tokens on standard error if `times`, with the line of the longest. Errors: those of Gguf::open and Tokenizer::open;
/// kUsage for a line that is no such object.
void inspect_constraints(const std::filesystem::path& model, std::istream& in, std::ostream& out, bool times);

}  // namespace forge::tools
