#pragma once
// The version and the build id. The build system makes version.cc, so that a new id costs one compilation.

namespace forge {

/// The version of the project, from meson.build.
extern const char* const kVersion;
/// Changes with every commit, and with every change of tracked files that is not committed. It is part of the cache
/// keys, so plans, packed weights and self-test results of another build are made again instead of trusted.
extern const char* const kBuildId;

}  // namespace forge
