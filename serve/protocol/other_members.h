#pragma once
// Members of a request body that other servers know (vLLM's and llama.cpp's parameters of sampling), and that clients
// send with their defaults.

namespace forge::serve {

class Fields;

/// Takes them. Those that change nothing here are accepted with any value; others only with the value that means
/// nothing is wanted: else they are refused by name (not_supported).
void read_other_members(Fields& fields);

}  // namespace forge::serve
