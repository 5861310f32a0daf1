#include "codegen/gpu/source/kernel_text.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

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

std::string_view macro_of(Fp8Kind fp8) {
  return fp8 == Fp8Kind::kOcp ? "FORGE_FP8_OCP" : fp8 == Fp8Kind::kFnuz ? "FORGE_FP8_FNUZ" : "FORGE_FP8_NONE";
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
      "#define FORGE_WAVE {}\n#define FORGE_DOT {}\n#define FORGE_MATRIX {}\n#define FORGE_FP8 {}\n#define "
      "FORGE_COPIES {:d}\n#define FORGE_OVERLAPS {:d}\n",
      target.wave, macro_of(target.dot), macro_of(target.matrix), macro_of(target.fp8), target.copies, target.overlaps);
}

namespace {

/// The line that includes a header; nothing for none.
std::string include(std::string_view header) {
  return header.empty() ? std::string() : fmt::format("#include \"{}\"\n", header);
}

/// A kernel's configuration, the kernel as `Kernel`, and checks of what its launch assumes. min_blocks is written as a
/// comment, so that it is part of the hash in the kernel's name.
std::string body_of(const KernelText& kernel) {
  std::string body = kernel.before;
  auto config = kernel.config;
  if (kernel.any_threads) config.number("kThreads", kernel.threads);
  body += fmt::format("struct Config{} {{\n{}}};\nusing Kernel = {}<Config>;\n",
                      kernel.defaults.empty() ? "" : " : " + kernel.defaults, config.text(), kernel.kernel);
  if (kernel.has_blocks) body += fmt::format("static_assert(Kernel::kBlocks == {});\n", kernel.blocks);
  body += fmt::format("static_assert(Kernel::kThreads == {});\n", kernel.threads);
  if (kernel.lds_bytes > 0) body += fmt::format("static_assert(sizeof(Kernel::Lds) <= {});\n", kernel.lds_bytes);
  if (kernel.min_blocks > 0) body += fmt::format("// {} blocks a unit at once\n", kernel.min_blocks);
  return body;
}

/// The whole source. launch: what the kernel's function needs of a KernelText; args, lds: types of its parameter and
/// shared memory; run: its statements behind the declaration of `lds`. The hash in the kernel's name covers the body,
/// but not the target's macros and the includes.
KernelSource source_of(const GpuTarget& target, std::string_view includes, std::string_view stem,
                       const KernelText& launch, const std::string& body, std::string_view args, std::string_view lds,
                       std::string_view run) {
  auto entry = fmt::format("{}_{:08x}", stem, static_cast<std::uint32_t>(XXH3_64bits(body.data(), body.size())));
  const auto bounds = launch.min_blocks > 0 ? fmt::format(", {}", launch.min_blocks) : std::string();
  const auto declared =
      launch.has_lds ? fmt::format("  FORGE_LDS{}({}, lds);\n", launch.lds_bytes > 0 ? "_LAUNCHED" : "", lds) : "";
  auto text = fmt::format(
      "{}{}\nnamespace forge::gpu {{\n\n{}\nFORGE_KERNEL{}({}, {}, {}{}, {}) {{\n{}{}}}\n\n}}  // namespace "
      "forge::gpu\n",
      target_macros(target), includes, body, bounds.empty() ? "" : "_BOUNDS", entry,
      launch.has_blocks ? launch.blocks : 0, launch.threads, bounds, args, declared, run);
  return {std::move(entry), std::move(text)};
}

}  // namespace

KernelSource kernel_source(const GpuTarget& target, std::string_view stem, const KernelText& kernel) {
  return source_of(target, include(kernel.header) + include(kernel.more_header), stem, kernel, body_of(kernel),
                   "Kernel::Args", "Kernel::Lds",
                   fmt::format("  Kernel::run(args{});\n", kernel.has_lds ? ", lds" : ""));
}

// Each kernel's text is in a namespace of its own, in which `gpu` names that namespace and, behind it, forge::gpu.
KernelSource kernel_source(const GpuTarget& target, std::string_view stem, const KernelText& first, KernelText second) {
  second.config.number("kFirstBlock", first.blocks);
  auto launch = first;
  launch.blocks += second.blocks;
  launch.has_lds = first.has_lds || second.has_lds;
  launch.lds_bytes = std::max(first.lds_bytes, second.lds_bytes);
  launch.min_blocks = std::min(first.min_blocks, second.min_blocks);
  std::string includes, bodies, args, lds, run;
  const auto add = [&](std::string_view name, const KernelText& kernel) {
    for (const auto& header : {kernel.header, kernel.more_header})
      if (!includes.contains(include(header))) includes += include(header);
    bodies += fmt::format("namespace {0} {{\nusing namespace forge::gpu;\nnamespace gpu = forge::gpu::{0};\n{1}}}\n\n",
                          name, body_of(kernel));
    args += fmt::format("  {0}::Kernel::Args {0};\n", name);
    if (kernel.has_lds) lds += fmt::format("  {0}::Kernel::Lds {0};\n", name);
    run += fmt::format("    {0}::Kernel::run(args.{0}{1});\n", name,
                       kernel.has_lds ? fmt::format(", lds.{}", name) : std::string());
    if (&kernel != &second) run += "  else\n";
  };
  add("first", first);
  add("second", second);
  auto body = bodies + fmt::format("struct BothArgs {{\n{}}};\n", args);
  if (launch.has_lds) body += fmt::format("union BothLds {{\n{}}};\n", lds);
  return source_of(target, includes, stem, launch, body, "BothArgs", "BothLds",
                   fmt::format("  if (block_id() < {})\n{}", first.blocks, run));
}

std::uint32_t KernelSet::add(KernelSource source) {
  const auto [found, fresh] = by_text_.try_emplace(source.text, static_cast<std::uint32_t>(sources_.size()));
  if (fresh) sources_.push_back(std::move(source));
  return found->second;
}

}  // namespace forge::codegen
