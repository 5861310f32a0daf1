#pragma once
// Plans for the tests of the plan file and the plan cache: small ones and ones of a given size, and a temporary
// directory.

#include <stdlib.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/quant/dtype.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/step.h"
#include "tests/runtime/facts.h"

namespace forge::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "forge-test-XXXXXX").native();
    path = ::mkdtemp(name.data());
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }

  std::filesystem::path path;
};

inline std::vector<char> read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_bytes(const std::filesystem::path& path, const std::vector<char>& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// A plan of one program with `steps` steps of six instructions and `constant_bytes` bytes of constants. It uses every
/// table of the format.
inline plan::PlanT sample_plan(int steps = 3, std::size_t constant_bytes = 100) {
  plan::PlanT out;
  out.version = plan::kPlanVersion;
  out.forge_version = "0.1.0";
  out.graph = "graph \"sample\" {}\n";
  out.model = std::make_unique<plan::ModelT>();
  out.model->path = "/models/sample.gguf";
  out.model->identity = "0123456789abcdef";
  out.model->files.push_back(std::make_unique<plan::ModelFileT>());
  out.model->files[0]->name = "sample.gguf";
  auto program = std::make_unique<plan::ProgramT>();
  program->target = "cpu-x86-64-v3";
  program->facts = some_facts(false);  // on_host = false, because it has sample steps
  auto variant = std::make_unique<plan::VariantT>();
  variant->name = "decode";
  variant->bounds = plan::Bounds(1, 1, 1, 16);
  for (int i = 0; i < steps; ++i) {
    auto step = std::make_unique<plan::StepT>();
    step->label = "layer " + std::to_string(i / 5) + " matmul, gate, up and the norm before them";
    step->layer = i / 5;
    step->operands = {plan::operand_at(plan::Space::Arena, 0, 4096, 612),
                      plan::operand_at(plan::Space::Weights, 0, 1 << 20),
                      plan::operand_at(plan::Space::Input, 1, 0, 4)};
    plan::MatmulRowsT matmul;
    matmul.x = 0;
    matmul.k = 576;
    plan::TileT tile;
    tile.cols = 1536;
    tile.source.Set(std::move(matmul));
    auto section = std::make_unique<plan::SectionT>();
    section->end = 1536;
    section->from = 1;
    for (int k = 0; k < 6; ++k) {
      auto op = std::make_unique<plan::TileOpT>();
      plan::StoreKvT store;
      store.state = 2;
      store.first_column = k;
      op->body.Set(std::move(store));
      section->ops.push_back(std::move(op));
    }
    tile.sections.push_back(std::move(section));
    step->body.Set(std::move(tile));
    variant->steps.push_back(std::move(step));
  }
  auto sample = std::make_unique<plan::StepT>();
  plan::LaunchT greedy;
  greedy.constants = {7};
  sample->body.Set(std::move(greedy));
  sample->operands = {plan::operand_at(plan::Space::Counters, 0, 0), plan::operand_at(plan::Space::Kv, 0, 3)};
  variant->sample_steps.push_back(std::move(sample));
  program->variants.push_back(std::move(variant));
  program->kv_groups.emplace_back(30, 3, 64, 64, 32, 0, 12288, static_cast<std::uint8_t>(DType::kF16), false);
  auto weight = std::make_unique<plan::WeightT>();
  weight->name = "blk.0.attn_qkv";
  weight->sources.push_back(std::make_unique<plan::WeightSourceT>());
  auto& source = *weight->sources[0];
  source.tensor = "blk.0.attn_q.weight";
  source.file = 1;
  source.tensor_rows = source.tensor_cols = 576;
  source.row_begin = source.col_begin = 64;
  source.rows = source.cols = 256;
  program->weights.push_back(std::move(weight));
  program->constants.resize(constant_bytes);
  for (std::size_t i = 0; i < constant_bytes; ++i) program->constants[i] = static_cast<std::uint8_t>(i * 37);
  auto object = std::make_unique<plan::CodeObjectT>();
  object->name = "kernels";
  object->bytes = {1, 2, 3};
  object->registers = 40;
  object->spill_bytes = 0;
  object->compiler = "clang 19.1.7";
  program->counter_bytes = 256;
  program->rank = 1;
  program->world = 2;
  program->input_width = 576;
  program->code_objects.push_back(std::move(object));
  out.programs.push_back(std::move(program));
  return out;
}

/// A plan file image around any payload, with a valid header and checksum. Tests use it to get damaged payloads past
/// the checksum.
inline std::vector<std::byte> forged(std::span<const std::byte> payload) {
  static const auto header = [] {
    auto image = plan::serialize_plan(sample_plan(1));
    image.resize(plan::kHeaderBytes);
    return image;
  }();
  std::vector<std::byte> image(plan::kHeaderBytes + payload.size());
  std::ranges::copy(header, image.begin());
  std::ranges::copy(payload, image.begin() + plan::kHeaderBytes);
  const std::uint64_t bytes = payload.size();
  std::memcpy(image.data() + 16, &bytes, sizeof bytes);
  const auto hash = XXH3_128bits_withSeed(payload.data(), payload.size(), XXH3_64bits(image.data(), 48));
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  std::memcpy(image.data() + 48, canonical.digest, sizeof canonical.digest);
  return image;
}

}  // namespace forge::test
