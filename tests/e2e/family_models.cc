// Builds the GGUF files of the fixture's models. The weights come from the same hash as in numpy_model.py, so no
// weights are stored.
#include "tests/e2e/family_models.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

namespace forge::tests {
namespace {

/// Element `index` of a tensor, in [-1, 1). Must equal `uniform` in numpy_model.py.
float uniform(std::uint32_t seed, std::uint32_t index) {
  std::uint32_t x = index * 0x9E3779B9U + seed;
  x = (x ^ (x >> 16)) * 0x85EBCA6BU;
  x = (x ^ (x >> 13)) * 0xC2B2AE35U;
  x ^= x >> 16;
  return static_cast<float>(x >> 8) / static_cast<float>(1 << 23) - 1.0F;
}

void add_tensor(GgufWriter& file, const std::string& name, const FamilyJson& recipe) {
  std::uint32_t seed = 2166136261U;
  for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 16777619U;
  auto dims = recipe[0].get<std::vector<std::int64_t>>();
  std::ranges::reverse(dims);
  std::uint32_t count = 1;
  for (const auto dim : dims) count *= static_cast<std::uint32_t>(dim);
  std::vector<float> values(count);
  for (std::uint32_t i = 0; i < count; ++i)
    values[i] = recipe[1].get<float>() + recipe[2].get<float>() * uniform(seed, i);
  file.add_f32(name, dims, values);
}

}  // namespace

const FamilyJson& family_fixture() {
  static const FamilyJson kFixture = [] {
    const char* path = std::getenv("FORGE_FAMILIES");
    std::ifstream in(path == nullptr ? "tests/e2e/families.json"
                                     : path);  // the default path is relative to the project's root
    if (!in) throw std::runtime_error("families.json is not there");
    return FamilyJson::parse(in);
  }();
  return kFixture;
}

std::string family_gguf(const FamilyJson& model, const std::string& without) {
  const auto family = model["family"].get<std::string>();
  GgufWriter file(family);
  for (const auto& [key, value] : model["keys"].items()) {
    const auto name = key.starts_with('/') ? key.substr(1) : family + "." + key;  // a / marks keys without the family
    if (key == without) continue;
    if (value.is_string())
      file.add(name, value.get<std::string>());
    else if (value.is_boolean())
      file.add(name, value.get<bool>());
    else if (value.is_array() && value[0].is_boolean())
      file.add(name, value.get<std::vector<bool>>());
    else if (value.is_array() && value[0].is_number_float())
      file.add(name, value.get<std::vector<float>>());
    else if (value.is_array())
      file.add(name, value.get<std::vector<std::int32_t>>());
    else if (value.is_number_float())
      file.add(name, value.get<float>());
    else
      file.add(name, value.get<std::uint32_t>());
  }
  constexpr std::string_view kEach = "blk.*";
  for (const auto& [name, recipe] : model["tensors"].items()) {
    if (name == without) continue;
    if (!name.starts_with(kEach))
      add_tensor(file, name, recipe);
    else
      for (int layer = 0; layer < model["keys"]["block_count"].get<int>(); ++layer)
        add_tensor(file, "blk." + std::to_string(layer) + name.substr(kEach.size()), recipe);
  }
  return file.bytes();
}

const FamilyJson& family_model(const std::string& name) {
  for (const char* list : {"models", "encoders"})
    for (const auto& model : family_fixture()[list])
      if (model["name"] == name) return model;
  throw std::runtime_error("no model " + name);
}

namespace {

std::vector<float> flat(const FamilyJson& rows) {
  std::vector<float> all;
  for (const auto& row : rows)
    for (const auto& value : row) all.push_back(value.get<float>());
  return all;
}

}  // namespace

std::vector<float> family_logits(const FamilyJson& model) {
  return flat(model["logits"]);
}
std::vector<float> family_logits_of_f16_cache(const FamilyJson& model) {
  return flat(model["cached"]);
}

std::vector<float> kept_rows(const std::vector<float>& logits) {
  const auto tokens = family_fixture()["tokens"].size(), vocab = logits.size() / tokens;
  std::vector<float> out;
  for (const auto& row : family_fixture()["rows"]) {
    const auto at = logits.begin() + static_cast<std::ptrdiff_t>(row.get<std::size_t>() * vocab);
    out.insert(out.end(), at, at + static_cast<std::ptrdiff_t>(vocab));
  }
  return out;
}

std::vector<std::int32_t> family_tokens() {
  return family_fixture()["tokens"].get<std::vector<std::int32_t>>();
}

}  // namespace forge::tests
