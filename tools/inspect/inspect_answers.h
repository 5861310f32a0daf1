#pragma once
// forge-inspect parse-answers < JSON lines: parses answers of models, whole or in pieces.

namespace forge::tools {

/// Reads JSON lines {"template_source", "prompt", "completion" or "chunks", ...} from stdin and writes a line for each:
/// {"content", "reasoning_content", "tool_calls", "finish_reason"}, or {"deltas": a list of deltas for each chunk and
/// one for the end}. Error: kUsage with the line's number for a line that is no such object.
void inspect_parse_answers();

}  // namespace forge::tools
