#pragma once
// References of a JSON schema within its own document.

#include <nlohmann/json.hpp>
#include <string>

namespace forge::text {

/// The part of `root` that `reference`, a "$ref" of the form "#/...", points to. Null if it is something else or points
/// nowhere.
template <class Json>
[[nodiscard]] const Json* local_reference(const Json& root, const Json& reference) {
  if (!reference.is_string()) return nullptr;
  const auto& path = reference.template get_ref<const std::string&>();
  if (!path.starts_with("#/")) return nullptr;
  try {
    return &root.at(typename Json::json_pointer(path.substr(1)));
  } catch (const typename Json::exception&) {
    return nullptr;
  }
}

}  // namespace forge::text
