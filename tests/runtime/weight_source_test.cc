// SpanWeightSource: reads of byte ranges, and the error for ranges outside the file.
#include "runtime/weights/weight_source.h"

#include <catch2/catch.hpp>
#include <vector>

#include "support/error.h"

namespace forge {
namespace {

using runtime::SpanWeightSource;

TEST_CASE("ranges are read, and ranges outside the file are refused") {
  const std::vector<std::byte> bytes{std::byte{1}, std::byte{2}, std::byte{3}};
  const SpanWeightSource source("model.gguf", bytes);
  CHECK((source.files() == 1 && source.bytes(0) == 3 && source.data(0).data() == bytes.data()));
  std::vector<std::byte> out(2);
  source.read(0, 1, out);
  CHECK((out[0] == std::byte{2} && out[1] == std::byte{3}));
  source.read(0, 3, {});
  CHECK_THROWS_WITH(source.read(0, 2, out), Catch::Contains("model.gguf") && Catch::Contains("2 bytes at 2"));
  CHECK_THROWS_AS(source.read(0, ~std::uint64_t{0}, out), Error);
  source.prefetch(0, 100, ~std::uint64_t{0});
  CHECK(bytes[0] == std::byte{1});
}

}  // namespace
}  // namespace forge
