#pragma once
// Finds the helper programs that are installed together with the running one.

#include <filesystem>
#include <initializer_list>
#include <string_view>

namespace forge {

/// Searches `places`, directories relative to the directory of the running program, for an executable called `name`.
/// Returns the first path found, or an empty path. Source: proc(5), /proc/self/exe.
[[nodiscard]] std::filesystem::path find_beside_program(std::string_view name,
                                                        std::initializer_list<const char*> places);

}  // namespace forge
