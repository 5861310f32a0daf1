#include "tools/inspect/inspect_families.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kernels/quant/rows.h"
#include "loader/arch/family.h"
#include "support/json_text.h"

namespace forge::tools {
namespace {

constexpr std::string_view kNoFeatures = "none";

std::string_view features_of(const loader::Family& family) {
  return family.features.empty() ? kNoFeatures : family.features;
}

/// Names of the tensor types that forge has matmul kernels for.
std::vector<std::string_view> types_that_run() {
  std::vector<std::string_view> names;
  for (const auto& row : kDTypes)
    if (quant::has_kernels(row.type)) names.push_back(row.name);
  return names;
}

std::string listed(const std::vector<std::string_view>& names) {
  std::string text;
  for (const auto name : names) text += (text.empty() ? "" : " ") + std::string(name);
  return text;
}

std::string as_json() {
  JsonWriter json;
  json.open('{').open("families", '[');
  for (const auto& family : loader::families())
    json.open('{').field("name", family.name).field("models", family.models).field("features", family.features).close();
  json.close().open("types", '[');
  for (const auto name : types_that_run()) json.item(name);
  json.close().close();
  return json.take();
}

std::string as_text() {
  std::size_t width = 0;
  for (const auto& family : loader::families()) width = std::max(width, family.name.size() + 2);
  std::string text;
  for (const auto& family : loader::families())
    text += fmt::format("{:<{}}{}\n{:<{}}{}\n", family.name, width, family.models, "", width, features_of(family));
  return text + fmt::format("{:<{}}{}\n", "types", width, listed(types_that_run()));
}

std::string as_markdown() {
  std::string text =
      "# Models that run\n\n"
      "Written by `forge-inspect families --markdown` from the registry of model families; a test compares them.\n"
      "Other families, and files with tensors or features that are not supported in their family, are refused by\n"
      "name.\n\n"
      "| family | models | beyond a pre-norm decoder with RMSNorm, RoPE and SwiGLU |\n| --- | --- | --- |\n";
  for (const auto& family : loader::families())
    text += fmt::format("| `{}` | {} | {} |\n", family.name, family.models, features_of(family));
  return text;
}

}  // namespace

std::string inspect_families(FamiliesForm form) {
  switch (form) {
    case FamiliesForm::kText:
      return as_text();
    case FamiliesForm::kJson:
      return as_json();
    case FamiliesForm::kMarkdown:
      return as_markdown();
  }
  return {};
}

}  // namespace forge::tools
