#pragma once
// `forge-inspect render-chat --template FILE < JSON`: the prompt a chat template makes, on stdout.

#include <string>
#include <vector>

namespace forge::tools {

/// `arguments` are those after "render-chat". Returns the exit status; throws forge::Error for what went wrong.
int inspect_render_chat(const std::vector<std::string>& arguments);

}  // namespace forge::tools
