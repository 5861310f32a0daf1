// The planes layout: packing loses nothing, and the parts are at the offsets that the kernels read.

#include "kernels/quant/planes.h"
#include "tests/gpu_host/support.h"

using namespace forge;
using namespace forge::gpu_host;

TEST_CASE("planes unpack to the native bytes they were packed from") {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1})
    for (const std::size_t rows : {1, 3, 17}) {
      constexpr std::size_t kK = 96;
      const std::size_t bytes = row_bytes(type, kK);
      Buffer<std::byte> native(rows * bytes), planes(rows * bytes), back(rows * bytes);
      for (std::size_t i = 0; i < native.size(); ++i) native[i] = static_cast<std::byte>(random_engine()());
      const std::size_t half = rows / 2;  // packed in two halves, as two threads would
      for (const auto& [first, count] : {std::pair{std::size_t{0}, half}, std::pair{half, rows - half}})
        REQUIRE(quant::pack_planes(
            type, rows, kK, first, count, [&](std::size_t row) { return native.data() + row * bytes; }, planes.data()));
      REQUIRE(quant::unpack_planes(type, rows, kK, 0, rows, planes.data(),
                                   [&](std::size_t row) { return back.data() + row * bytes; }));
      CHECK(native.values() == back.values());
      planes.check();
      back.check();
    }
}

TEST_CASE("quants come first, then scales; types that no weight has are refused") {
  std::byte native[2 * 34], planes[2 * 34];
  for (int i = 0; i < 68; ++i) native[i] = static_cast<std::byte>(i);
  REQUIRE(quant::pack_planes(DType::kQ8_0, 2, 32, 0, 2, [&](std::size_t row) { return native + 34 * row; }, planes));
  CHECK(planes[0] == native[2]);
  CHECK(planes[32] == native[36]);
  CHECK(planes[64] == native[0]);
  CHECK(planes[67] == native[35]);
  CHECK_FALSE(quant::pack_planes(DType::kI32, 1, 256, 0, 1, [&](std::size_t) { return native; }, planes));
}
