#pragma once
// Specialised kernel sources: one translation unit per kernel, with the target and the configuration as constants. For
// example:
//
//   #define FORGE_WAVE 32
//   ...
//   #include "kernels/gpu/matmul_rows.h"
//   namespace forge::gpu {
//   struct Epilogue { ... };                                           // KernelText::before
//   struct Config : MatmulDefaults { using Weight = WeightQ8_0<2048, 2048>; ... };
//   using Kernel = MatmulRows<Config>;
//   FORGE_KERNEL(matmul_q8_0_2048x2048_t1_1a2b3c4d, 256, 256, Kernel::Args) { FORGE_LDS(Kernel::Lds, lds); ... }

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "codegen/gpu/targets.h"
#include "codegen/kernel_compiler.h"

namespace forge::codegen {

/// The members of a configuration struct, in order: type aliases and constants.
class ConfigText {
 public:
  ConfigText& use(std::string_view name, std::string_view type);
  ConfigText& number(std::string_view name, std::int64_t value);
  ConfigText& real(std::string_view name, float value);
  ConfigText& flag(std::string_view name, bool value);
  ConfigText& append(const ConfigText& other);
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// A float as a hexadecimal literal, which is exact.
std::string float_literal(float value);

/// The parts of a kernel's source.
struct KernelText {
  std::string header;    ///< "kernels/gpu/matmul_rows.h"
  std::string kernel;    ///< "MatmulRows": a template over the configuration, with Args and run()
  std::string defaults;  ///< base class of the configuration; may be empty
  std::string before;    ///< text in front of the configuration (an epilogue)
  ConfigText config;
  std::string more_header;      ///< included too; may be empty
  bool has_lds = true;          ///< the kernel has a struct Lds, its shared memory
  std::int64_t lds_bytes = 0;   ///< the launch gives so much shared memory, enough for Lds; 0: the kernel declares it
  std::int64_t blocks = 0;      ///< blocks of the grid; a static_assert compares it with the kernel's own number
  std::int64_t threads = 0;     ///< threads of a block; compared likewise
  bool any_threads = false;     ///< the kernel takes any number of them, as kThreads
  bool has_blocks = true;       ///< false: the launch gives the number of blocks
  std::int64_t min_blocks = 0;  ///< blocks that a unit should hold at once; 0: the compiler decides
};

/// The macros that describe the target, one definition per line: FORGE_WAVE, FORGE_DOT, FORGE_MATRIX, FORGE_FP8,
/// FORGE_COPIES and FORGE_OVERLAPS (kernels/gpu/prelude/prelude.h). Kernels depend on nothing else of the target's row.
std::string target_macros(const GpuTarget& target);

/// The whole source. The kernel's name is `stem` (letters, digits, '_') and a hash of the text after the includes.
KernelSource kernel_source(const GpuTarget& target, std::string_view stem, const KernelText& kernel);
/// The source of a kernel whose blocks run `first`, and those behind them `second`. Its parameter has the members of
/// both kernels' Args. Both have blocks of as many threads, and shared memory that both declare or that the launch
/// gives to both; the second finds its blocks behind kFirstBlock (block_of in kernels/gpu/prelude/prelude.h).
KernelSource kernel_source(const GpuTarget& target, std::string_view stem, const KernelText& first, KernelText second);

/// The kernels of one program. Equal sources (layers with equal shapes) become one kernel.
class KernelSet {
 public:
  /// Adds a source, if it is new, and returns its index in sources().
  std::uint32_t add(KernelSource source);
  [[nodiscard]] const std::vector<KernelSource>& sources() const { return sources_; }

 private:
  std::map<std::string, std::uint32_t> by_text_;
  std::vector<KernelSource> sources_;
};

}  // namespace forge::codegen
