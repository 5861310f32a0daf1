#pragma once
// `forge-inspect render-chat --template FILE < JSON`: the prompt a chat template makes, on stdout.

#include <string>

namespace forge::tools {

/// Errors: kIo, and those of the template and the request.
void inspect_render_chat(const std::string& template_file);

}  // namespace forge::tools
