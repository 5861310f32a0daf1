#pragma once
// forge-inspect render-chat --template FILE < JSON: prints the prompt that a chat template makes of a conversation.

#include <string>

namespace forge::tools {

/// Renders the JSON request on stdin with the template in the file, and prints the result to stdout. Errors: kIo; those
/// of the template and the request.
void inspect_render_chat(const std::string& template_file);

}  // namespace forge::tools
