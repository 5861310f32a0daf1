#pragma once
// The small random models of make_families.py: files made by the same recipe, and the logits that NumPy gave.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/tiny_model.h"

namespace forge::tests {

using FamilyJson = nlohmann::ordered_json;

/// families.json: {"tokens", "rows", "models": [{"name", "family", "keys", "tensors", "logits", "cached"}]}.
const FamilyJson& family_fixture();
const FamilyJson& family_model(const std::string& name);

/// The model's file; the key or tensor named `without` is left out.
std::string family_gguf(const FamilyJson& model, const std::string& without = {});

std::vector<std::int32_t> family_tokens();
/// Logits of the rows that the fixture keeps, exact ones or those of a cache of f16; the same rows out of all of a run.
std::vector<float> family_logits(const FamilyJson& model);
std::vector<float> family_logits_of_f16_cache(const FamilyJson& model);
std::vector<float> kept_rows(const std::vector<float>& logits);

}  // namespace forge::tests
