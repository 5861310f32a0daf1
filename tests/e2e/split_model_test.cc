// A model split into several files gives the whole one's results bit for bit: each weight is read from its own file,
// also where an embedding table is read in place, where experts have a tensor each, and where fused weights are made of
// tensors of several files.

#include <catch2/catch.hpp>
#include <cstring>
#include <set>

#include "tests/e2e/tiny_model.h"
#include "tests/support/split_gguf.h"

namespace forge {
namespace {

using tests::TinyModel;
using tests::TinyShape;

std::size_t tensors_of(const std::string& file) {
  return loader::Gguf::from(std::as_bytes(std::span(file))).tensors().size();
}

/// Files of the sources of a weight, or of all weights.
void add_files(const plan::WeightT& weight, std::set<std::uint32_t>& files) {
  for (const auto& source : weight.sources) files.insert(source->file);
}

}  // namespace

TEST_CASE("a split model has the logits of the whole model, bit for bit") {
  const auto shape = GENERATE(TinyShape{.dtype = DType::kQ4_0}, TinyShape{.dtype = DType::kQ8_0, .tied = false},
                              TinyShape{.dtype = DType::kF16, .biases = true, .rope_freqs = true},
                              TinyShape{.dtype = DType::kQ4_0, .experts = 4, .experts_used = 2},
                              TinyShape{.dtype = DType::kQ8_0, .experts = 4, .experts_used = 2, .scattered = true});
  const auto file = tests::tiny_gguf(shape);
  const TinyModel whole(tests::FileImage{file});
  const auto ids = tests::random_ids(40, 90, 5);
  const auto expected = tests::run_alone(*whole.open(2), ids, 16, {0, 1});
  // The smallest parts put every tensor, also those that are fused into one weight, into a file of its own.
  const auto tensors = tensors_of(file);
  for (const auto& counts :
       {std::vector<std::size_t>{0, tensors}, {3, 4, tensors - 7}, std::vector<std::size_t>(tensors, 1)}) {
    const TinyModel split(tests::SplitImage{tests::split_gguf(file, counts)});
    CHECK(split.file().files.size() == counts.size());
    const auto executor = split.open(2);
    const auto logits = tests::run_alone(*executor, ids, 16, {0, 1});
    REQUIRE(logits.size() == expected.size());
    CHECK(std::memcmp(logits.data(), expected.data(), logits.size() * sizeof logits[0]) == 0);
  }
}

TEST_CASE("the plan of a split model says in which file each weight is") {
  const auto file = tests::tiny_gguf({.dtype = DType::kQ8_0});
  const auto parts = tensors_of(file);
  const TinyModel split(tests::SplitImage{tests::split_gguf(file, std::vector<std::size_t>(parts, 1))});
  const std::vector<std::string> targets{"cpu-generic"};
  const auto plan = codegen::compile_plan(split.portable().graph, split.file(), targets, {.context = 64});
  REQUIRE(plan.model->files.size() == parts);
  for (std::size_t i = 0; i < parts; ++i) {
    CHECK(plan.model->files[i]->name == split.file().files[i].name);
    CHECK(plan.model->files[i]->bytes == split.file().files[i].bytes);
    CHECK(plan.model->files[i]->identity == split.file().files[i].identity);
  }
  std::set<std::uint32_t> files;
  bool fused = false;
  for (const auto& weight : plan.programs.at(0)->weights) {
    std::set<std::uint32_t> own;
    add_files(*weight, own);
    fused = fused || own.size() > 1;
    files.merge(own);
    for (const auto& source : weight->sources) CHECK(split.file().tensors.at(source->tensor).file == source->file);
  }
  CHECK(fused);
  // The embedding table, read in place, is an operand in its file.
  for (const auto& step : plan.programs[0]->variants.at(0)->steps)
    for (const auto& operand : step->operands)
      if (operand.space() == plan::Space::File) files.insert(operand.index());
  CHECK(files.size() == parts);
}

}  // namespace forge
