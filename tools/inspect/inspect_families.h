#pragma once
// forge-inspect families: lists the supported model families and tensor types, from the loader's registry and the type
// table.

#include <cstdint>
#include <string>

namespace forge::tools {

enum class FamiliesForm : std::uint8_t { kText, kJson, kMarkdown };

/// The families, each with its published models and the features of its graph, and the supported tensor types.
/// docs/models.md is the output in Markdown.
[[nodiscard]] std::string inspect_families(FamiliesForm form);

}  // namespace forge::tools
