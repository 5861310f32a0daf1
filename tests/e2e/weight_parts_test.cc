// Weights made of a part of a tensor: some of its rows and columns, possibly in another file of the model. Shards of
// a model that is split over several devices are such parts.

#include <catch2/catch.hpp>
#include <limits>
#include <vector>

#include "runtime/cpu/load_weights.h"
#include "runtime/weights/weight_part.h"
#include "tests/e2e/embed_sources.h"
#include "tests/e2e/tiny_model.h"

namespace forge {
namespace {

using tests::TinyModel;

std::vector<std::byte> load(const plan::ProgramT& program, const runtime::WeightSource& source) {
  std::vector<std::byte> out(static_cast<std::size_t>(program.weights_bytes));
  runtime::ThreadPool pool(2);
  (void)runtime::load_weights(program, source, out.data(), out.size(), cpu::kernels(cpu::CpuClass::kGeneric), pool);
  return out;
}

}  // namespace

TEST_CASE("parts of larger tensors in a second file load like whole tensors") {
  using Shape = tests::TinyShape;
  const auto shape = GENERATE(Shape{.dtype = DType::kF32, .biases = true}, Shape{.dtype = DType::kQ8_0},
                              Shape{.dtype = DType::kF16, .experts = 4, .experts_used = 2},
                              Shape{.dtype = DType::kQ4_0, .experts = 4, .experts_used = 2, .scattered = true});
  const TinyModel model(shape);
  const auto compiled = codegen::compile_program(model.portable().graph, model.file(), "cpu-generic", {.context = 64});
  const runtime::SpanWeightSource whole("tiny", model.bytes());
  const auto expected = load(*compiled, whole);
  const auto file = tests::embed_sources(*compiled, model.bytes());
  const runtime::SpanWeightSource both("tiny", std::vector{model.bytes(), std::span<const std::byte>(file)});
  CHECK(load(*compiled, both) == expected);
}

TEST_CASE("a part's bytes are those of its rows and columns, for reads of any range") {
  plan::WeightT weight;
  weight.dtype = static_cast<std::uint8_t>(DType::kF32);
  weight.slices = 2;
  plan::WeightSourceT source;
  source.offset = 4;
  source.tensor_rows = 4;
  source.tensor_cols = 5;
  source.row_begin = 1;
  source.rows = 2;
  source.col_begin = 2;
  source.cols = 3;
  std::vector<std::uint32_t> numbers(1 + 2 * 4 * 5);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint32_t>(i);
  const runtime::SpanWeightSource file("f", std::as_bytes(std::span(numbers)));
  const auto part = runtime::WeightPart::of(weight, source, file);
  REQUIRE(part);
  CHECK((part->rows() == 4 && part->row_bytes() == 12 && part->bytes() == 48));
  const std::vector<std::uint32_t> expected{8, 9, 10, 13, 14, 15, 28, 29, 30, 33, 34, 35};
  for (std::size_t first = 0; first < expected.size(); ++first)
    for (std::size_t end = first; end <= expected.size(); ++end) {
      std::vector<std::uint32_t> got(end - first);
      part->read(file, 4 * first, std::as_writable_bytes(std::span(got)));
      CHECK(std::ranges::equal(got, std::span(expected).subspan(first, end - first)));
    }
}

TEST_CASE("a weight source that is not a part of a tensor of the model is refused") {
  struct Case {
    const char* says;
    void (*breaks)(plan::WeightT&, plan::WeightSourceT&);
  };
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const Case cases[] = {
      {"a file that the model does not have", [](auto&, auto& s) { s.file = 1; }},
      {"a file that the model does not have", [](auto&, auto& s) { s.file = ~0U; }},
      {"rows that its tensor does not have", [](auto&, auto& s) { s.row_begin = 1; }},
      {"rows that its tensor does not have", [](auto&, auto& s) { s.row_begin = -1; }},
      {"rows that its tensor does not have", [](auto&, auto& s) { s.row_begin = kMost; }},
      {"rows that its tensor does not have", [](auto&, auto& s) { s.rows = 0; }},
      {"rows that its tensor does not have", [](auto&, auto& s) { s.rows = s.tensor_rows = kMost; }},
      {"columns that its tensor does not have", [](auto&, auto& s) { s.col_begin = 32; }},
      {"columns that its tensor does not have", [](auto&, auto& s) { s.col_begin = -32; }},
      {"columns that its tensor does not have", [](auto&, auto& s) { s.cols = kMost; }},
      {"not whole", [](auto&, auto& s) { s.col_begin = 16, s.cols = 32; }},
      {"not whole", [](auto&, auto& s) { s.cols = 48; }},
      {"not whole", [](auto&, auto& s) { s.tensor_cols = 65; }},
      {"leaves the model file", [](auto&, auto& s) { s.offset = 1; }},
      {"leaves the model file", [](auto&, auto& s) { s.offset = ~std::uint64_t{0}; }},
      {"leaves the model file", [](auto&, auto& s) { s.tensor_rows = 1 << 28; }},
      {"leaves the model file", [](auto& w, auto&) { w.slices = 1 << 28; }},
      {"type or shape is invalid", [](auto& w, auto&) { w.slices = 0; }},
      {"type or shape is invalid", [](auto& w, auto&) { w.dtype = 99; }},
      {"type or shape is invalid", [](auto& w, auto&) { w.dtype = static_cast<std::uint8_t>(DType::kState); }},
  };
  const std::vector<std::byte> bytes(4 * 2 * 34);
  const runtime::SpanWeightSource file("f", bytes);
  for (const auto& [says, breaks] : cases) {
    plan::WeightT weight;
    weight.dtype = static_cast<std::uint8_t>(DType::kQ8_0);
    plan::WeightSourceT source;
    source.tensor_rows = source.rows = 4;
    source.tensor_cols = source.cols = 64;
    REQUIRE(runtime::WeightPart::of(weight, source, file));
    breaks(weight, source);
    const auto part = runtime::WeightPart::of(weight, source, file);
    REQUIRE_FALSE(part);
    CHECK_THAT(part.error(), Catch::Contains(says));
  }
}

}  // namespace forge
