#include "codegen/gpu/source/kernel_text.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace forge::codegen {
namespace {

std::string_view macro_of(DotKind dot) {
  switch (dot) {
    case DotKind::kNone:
      break;
    case DotKind::kSdot4:
      return "FORGE_DOT_SDOT4";
    case DotKind::kSudot4:
      return "FORGE_DOT_SUDOT4";
    case DotKind::kDp4a:
      return "FORGE_DOT_DP4A";
  }
  return "FORGE_DOT_NONE";
}

std::string_view macro_of(MatrixKind matrix) {
  switch (matrix) {
    case MatrixKind::kNone:
      break;
    case MatrixKind::kMfmaGfx90a:
      return "FORGE_MATRIX_MFMA_GFX90A";
    case MatrixKind::kMfmaGfx942:
      return "FORGE_MATRIX_MFMA_GFX942";
    case MatrixKind::kWmmaGfx11:
      return "FORGE_MATRIX_WMMA_GFX11";
    case MatrixKind::kWmmaGfx12:
      return "FORGE_MATRIX_WMMA_GFX12";
    case MatrixKind::kMma:
      return "FORGE_MATRIX_MMA";
  }
  return "FORGE_MATRIX_NONE";
}

}  // namespace

std::string float_literal(float value) {
  return fmt::format("{:a}f", value);
}

ConfigText& ConfigText::use(std::string_view name, std::string_view type) {
  text_ += fmt::format("  using {} = {};\n", name, type);
  return *this;
}
ConfigText& ConfigText::number(std::string_view name, std::int64_t value) {
  text_ += fmt::format("  static constexpr int {} = {};\n", name, value);
  return *this;
}
ConfigText& ConfigText::real(std::string_view name, float value) {
  text_ += fmt::format("  static constexpr float {} = {};\n", name, float_literal(value));
  return *this;
}
ConfigText& ConfigText::flag(std::string_view name, bool value) {
  text_ += fmt::format("  static constexpr bool {} = {};\n", name, value);
  return *this;
}
ConfigText& ConfigText::append(const ConfigText& other) {
  text_ += other.text_;
  return *this;
}

std::string target_macros(const GpuTarget& target) {
  return fmt::format(
      "#define FORGE_WAVE {}\n#define FORGE_DOT {}\n#define FORGE_MATRIX {}\n#define FORGE_COPIES {:d}\n#define "
      "FORGE_OVERLAPS {:d}\n",
      target.wave, macro_of(target.dot), macro_of(target.matrix), target.copies, target.overlaps);
}

// The hash in the kernel's name covers the body, but not the target's macros and the include. min_blocks is
// written into the body as a comment, so that it is part of the hash.
KernelSource kernel_source(const GpuTarget& target, std::string_view stem, const KernelText& kernel) {
  std::string body = kernel.before;
  body += fmt::format("struct Config{} {{\n{}}};\nusing Kernel = {}<Config>;\n",
                      kernel.defaults.empty() ? "" : " : " + kernel.defaults, kernel.config.text(), kernel.kernel);
  if (kernel.has_blocks) body += fmt::format("static_assert(Kernel::kBlocks == {});\n", kernel.blocks);
  body += fmt::format("static_assert(Kernel::kThreads == {});\n", kernel.threads);
  if (kernel.lds_bytes > 0) body += fmt::format("static_assert(sizeof(Kernel::Lds) <= {});\n", kernel.lds_bytes);
  if (kernel.min_blocks > 0) body += fmt::format("// {} blocks a unit at once\n", kernel.min_blocks);
  const auto head =
      fmt::format("{}#include \"{}\"\n\nnamespace forge::gpu {{\n\n", target_macros(target), kernel.header);
  auto entry = fmt::format("{}_{:08x}", stem, static_cast<std::uint32_t>(XXH3_64bits(body.data(), body.size())));
  const auto bounds = kernel.min_blocks > 0 ? fmt::format(", {}", kernel.min_blocks) : std::string();
  const auto main = fmt::format(
      "\nFORGE_KERNEL{}({}, {}, {}{}, Kernel::Args) {{\n{}  Kernel::run(args{});\n}}\n\n}}  // "
      "namespace forge::gpu\n",
      bounds.empty() ? "" : "_BOUNDS", entry, kernel.has_blocks ? kernel.blocks : 0, kernel.threads, bounds,
      !kernel.has_lds        ? ""
      : kernel.lds_bytes > 0 ? "  FORGE_LDS_LAUNCHED(Kernel::Lds, lds);\n"
                             : "  FORGE_LDS(Kernel::Lds, lds);\n",
      kernel.has_lds ? ", lds" : "");
  return {std::move(entry), head + body + main};
}

std::uint32_t KernelSet::add(KernelSource source) {
  const auto [found, fresh] = by_text_.try_emplace(source.text, static_cast<std::uint32_t>(sources_.size()));
  if (fresh) sources_.push_back(std::move(source));
  return found->second;
}

}  // namespace forge::codegen
