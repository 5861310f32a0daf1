#pragma once
// forge-inspect families: which models run, from the registry of families and the table of element types.

#include <cstdint>
#include <string>

namespace forge::tools {

enum class FamiliesForm : std::uint8_t { kText, kJson, kMarkdown };

/// Families with what is published under their names and what their graphs have, and the element types of tensors.
/// docs/models.md is the Markdown form.
[[nodiscard]] std::string inspect_families(FamiliesForm form);

}  // namespace forge::tools
