#pragma once
// Programs that belong to the one that runs.

#include <filesystem>
#include <initializer_list>
#include <string_view>

namespace forge {

/// The first of `places`, relative to the folder of the running program, that has an executable `name`; empty when none
/// has. Source: proc(5), /proc/self/exe.
[[nodiscard]] std::filesystem::path find_beside_program(std::string_view name,
                                                        std::initializer_list<const char*> places);

}  // namespace forge
