// Expected results of the kernels in kernels/gpu/self_test/self_test_tiles.h (products of matrix tiles) and
// self_test_repack.h (weights in the layout `planes`).
#include <fmt/format.h>

#include <cstring>

#include "codegen/gpu/self_test/self_test_kernels.h"
#include "codegen/gpu/source/weight_text.h"
#include "kernels/gpu/self_test/self_test_io.h"
#include "kernels/quant/planes.h"

namespace forge::codegen {
namespace {

using namespace gpu::self_test;

constexpr std::size_t kRepackRows = 8, kRepackUnit = 2, kRepackColumns = 512, kRepackThreads = 64, kBlocksPerRow = 2;
constexpr std::size_t kTypesPerKernel = 6;  // several small kernels compile in parallel
constexpr std::size_t kLineWords = 64;      // alignment of each array, enough for the widest loads

std::size_t padded(std::size_t words) {
  return (words + kLineWords - 1) / kLineWords * kLineWords;
}

/// The part of a kernel that repacks one weight type: native rows of random bytes, and the planes that the host's code
/// makes of them.
class RepackPart {
 public:
  RepackPart(DType type, std::size_t number, const SelfTestKernel& kernel)
      : type_(type), number_(number), staged_(kernel.input.size()), planes_(kernel.out_words) {}

  [[nodiscard]] std::string text() const {
    const bool codes = quant::is_plane_codes(type_);
    ConfigText config;
    write_repack(config, {.type = type_,
                          .codes = codes,
                          .rows = kRepackRows,
                          .k = kRepackColumns,
                          .threads = kRepackThreads,
                          .blocks_per_row = kBlocksPerRow});
    return fmt::format(
        "struct Repack{0} {{\n{1}}};\nstruct Part{0} : Repack{0} {{\n  using Kernel = {2}<Repack{0}>;\n"
        "  static constexpr int kUnit = {3}, kStaged = {4}, kSourceWords = {5}, kPlanes = {6};\n}};\n",
        number_, config.text(), codes ? "RepackCodes" : "RepackPlanes", kRepackUnit, staged_, source_words(), planes_);
  }

  void add_to(SelfTestKernel& kernel) const {
    const std::size_t row = row_bytes(type_, kRepackColumns);
    const std::size_t bytes = kRepackRows * quant::planes_row_bytes(type_, kRepackColumns);
    std::vector<std::byte> native(kRepackRows * row), planes(bytes);
    TestWords random(100 + static_cast<std::uint64_t>(type_));
    for (auto& byte : native) byte = static_cast<std::byte>(random.next());
    quant::pack_planes(
        type_, kRepackRows, kRepackColumns, 0, kRepackRows, [&](std::size_t r) { return &native[r * row]; },
        planes.data());
    // The weight's rows alternate between two sources; the rows of a source are contiguous.
    kernel.input.resize(staged_ + 2 * source_words());
    for (std::size_t r = 0; r < kRepackRows; ++r) {
      const std::size_t source = r / kRepackUnit % 2, index = r / (2 * kRepackUnit) * kRepackUnit + r % kRepackUnit;
      auto* to = reinterpret_cast<std::byte*>(&kernel.input[staged_ + source * source_words()]) + index * row;
      std::memcpy(to, &native[r * row], row);
    }
    SelfTestSection section{.name = fmt::format("repacking {}", dtype_name(type_)), .first = planes_};
    section.expected.resize(bytes / 4);
    std::memcpy(section.expected.data(), planes.data(), bytes);
    kernel.sections.push_back(std::move(section));
    kernel.out_words = padded(planes_ + bytes / 4);
  }

 private:
  [[nodiscard]] std::size_t source_words() const {
    return padded(kRepackRows / 2 * row_bytes(type_, kRepackColumns) / 4);
  }

  DType type_;
  std::size_t number_, staged_, planes_;  ///< staged_, planes_: word offsets in the kernel's `in` and `out`
};

SelfTestKernel repack_kernel(const GpuTarget& target, std::size_t number, std::span<const DType> types) {
  SelfTestKernel kernel;
  KernelText text{
      .header = "kernels/gpu/self_test/self_test_repack.h", .kernel = "SelfTestRepack", .defaults = {}, .before = {}};
  std::string parts;
  for (std::size_t i = 0; i < types.size(); ++i) {
    const RepackPart part(types[i], i, kernel);
    text.before += part.text();
    parts += fmt::format("{}Part{}", i > 0 ? ", " : "", i);
    part.add_to(kernel);
  }
  text.before += fmt::format("using AllParts = RepackParts<{}>;\n", parts);
  text.config.use("Parts", "AllParts").number("kThreads", kRepackThreads);
  text.has_lds = false;
  text.threads = kRepackThreads;
  text.blocks = static_cast<std::int64_t>(types.size() * kRepackRows * kBlocksPerRow);
  auto made = self_test_kernel(target, fmt::format("repack{}", number), std::move(text));
  made.input = std::move(kernel.input);
  made.out_words = kernel.out_words;
  made.sections = std::move(kernel.sections);
  return made;
}

}  // namespace

SelfTestKernel self_test_tiles(const GpuTarget& target) {
  KernelText text{
      .header = "kernels/gpu/self_test/self_test_tiles.h", .kernel = "SelfTestTiles", .defaults = {}, .before = {}};
  text.blocks = 1;
  text.threads = target.wave;
  auto kernel = self_test_kernel(target, "tiles", std::move(text));
  TestWords random(6);
  std::vector<std::int32_t> factors;
  for (int i = 0; i < 2 * kTileSide * kTileDepth; ++i)
    factors.push_back(static_cast<std::int32_t>(random.next() % 255) - 127);
  for (const auto factor : factors) kernel.input.push_back(static_cast<std::uint32_t>(factor));
  std::vector<std::uint32_t> product;
  constexpr std::size_t kSide = kTileSide, kDepth = kTileDepth;
  for (std::size_t row = 0; row < kSide; ++row)
    for (std::size_t column = 0; column < kSide; ++column) {
      std::int32_t sum = 0;
      for (std::size_t k = 0; k < kDepth; ++k)
        sum += factors[row * kDepth + k] * factors[(kSide + column) * kDepth + k];
      product.push_back(static_cast<std::uint32_t>(sum));
    }
  constexpr const char* kNames[kTileResults] = {"matrix tile of F16", "matrix tile of BF16", "matrix tile of int8",
                                                "matrix tile of F16 from shared memory",
                                                "matrix tile of BF16 from shared memory"};
  for (std::size_t r = 0; r < kTileResults; ++r)
    kernel.sections.push_back({.name = kNames[r], .first = r * product.size(), .expected = product});
  kernel.out_words = kTileResults * product.size();
  return kernel;
}

std::vector<SelfTestKernel> self_test_repack(const GpuTarget& target) {
  std::vector<DType> types;
  for (const auto& row : kDTypes)
    if (quant::has_planes(row.type)) types.push_back(row.type);
  std::vector<SelfTestKernel> kernels;
  for (std::size_t first = 0; first < types.size(); first += kTypesPerKernel)
    kernels.push_back(repack_kernel(target, kernels.size(),
                                    std::span(types).subspan(first, std::min(kTypesPerKernel, types.size() - first))));
  return kernels;
}

}  // namespace forge::codegen
