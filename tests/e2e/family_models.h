#pragma once
// The small random models of make_families.py: their files, built by the same recipe, and their logits from NumPy.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/tiny_model.h"

namespace forge::tests {

using FamilyJson = nlohmann::ordered_json;

/// The fixture, families.json: {"tokens", "rows", "encoders": as "models", "models": [{"name", "family", "keys",
/// "tensors", "logits", "cached"}]}. "rows" are the positions whose logits are kept; "logits" are those of an exact KV
/// cache, "cached" those of an f16 cache.
const FamilyJson& family_fixture();
const FamilyJson& family_model(const std::string& name);

/// The model's GGUF file, without the key or tensor named `without`.
std::string family_gguf(const FamilyJson& model, const std::string& without = {});

/// The tokens that all models are run on.
std::vector<std::int32_t> family_tokens();
/// Logits [rows, vocab] of the rows that the fixture keeps: with an exact KV cache, with an f16 cache, and the same
/// rows selected from the logits [tokens, vocab] of a run.
std::vector<float> family_logits(const FamilyJson& model);
std::vector<float> family_logits_of_f16_cache(const FamilyJson& model);
std::vector<float> kept_rows(const std::vector<float>& logits);

}  // namespace forge::tests
