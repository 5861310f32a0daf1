// Dequantisation of every GGUF type agrees bit for bit with the PyPI package gguf.

#include "tests/kernels/golden.h"

#include "tests/kernels/support.h"

using namespace forge;

TEST_CASE("native blocks of every type dequantise to the gguf package's bits") {
  constexpr std::size_t kBlocks = 64;
  for (const auto& golden : test::goldens()) {
    CAPTURE(dtype_name(golden.type));
    const auto data = test::random_blocks(golden, static_cast<std::uint64_t>(golden.type), kBlocks);
    const std::size_t elems = kBlocks * dtype_info(golden.type).block_elems;
    std::vector<float> values(elems);
    REQUIRE(quant::dequantize_native(golden.type, data.data(), elems, values.data()));
    for (std::size_t i = 0; i < 4; ++i) CHECK(test::bits(values[i]) == golden.first[i]);
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const float value : values)
      for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ (test::bits(value) >> shift & 255u)) * 0x100000001b3u;
    CHECK(hash == golden.hash);
  }
}

TEST_CASE("every block type in the dtype table has golden vectors") {
  std::size_t types = 0;
  for (const auto& row : kDTypes)
    if (quant::with_block(row.type, [](auto) {})) {
      ++types;
      bool found = false;
      for (const auto& golden : test::goldens()) found = found || golden.type == row.type;
      CHECK(found);
    }
  CHECK(types == test::goldens().size());
}
