#include "codegen/attention_choice.h"

#include "support/error.h"

namespace forge::codegen {

AttentionChoice parse_attention(std::string_view text) {
  AttentionChoice out;
  if (text.empty() || text == "auto") return out;
  for (auto rest = text;;) {
    const auto comma = rest.find(',');
    const auto word = rest.substr(0, comma);
    const bool prompts = word == "tiles" || word == "rows", decoding = word == "split" || word == "whole";
    auto& one = prompts ? out.tiles : out.split;
    if ((!prompts && !decoding) || one)
      throw Error(ErrorCode::kUsage, "attention '" + printable(text) + "' is unknown", {},
                  "give auto, or tiles or rows for prefill, and split or whole for decode: rows,split");
    one = word == "tiles" || word == "split";
    if (comma == std::string_view::npos) return out;
    rest.remove_prefix(comma + 1);
  }
}

std::string attention_text(const AttentionChoice& choice) {
  std::string text;
  if (choice.tiles) text = *choice.tiles ? "tiles" : "rows";
  if (choice.split) text += std::string(text.empty() ? "" : ",") + (*choice.split ? "split" : "whole");
  return text;
}

}  // namespace forge::codegen
