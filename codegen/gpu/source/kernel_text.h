#pragma once
// Specialised sources: one translation unit a kernel, its configuration as constants.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "codegen/gpu/targets.h"
#include "codegen/kernel_compiler.h"

namespace forge::codegen {

/// Constants of a configuration struct, in order.
class ConfigText {
 public:
  ConfigText& use(std::string_view name, std::string_view type);
  ConfigText& number(std::string_view name, std::int64_t value);
  ConfigText& real(std::string_view name, float value);
  ConfigText& flag(std::string_view name, bool value);
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// A float as device source, exact.
std::string float_literal(float value);

/// What a kernel is made from.
struct KernelText {
  std::string header;    ///< "kernels/gpu/matmul_rows.h"
  std::string kernel;    ///< "MatmulRows": a template over the configuration, with Args and run
  std::string defaults;  ///< what the configuration derives from; empty: nothing
  std::string before;    ///< text in front of the configuration (an epilogue)
  ConfigText config;
  bool has_lds = true;
  std::int64_t blocks = 0;  ///< of the grid; checked against the kernel's own number unless has_blocks is false
  std::int64_t threads = 0;
  bool has_blocks = true;
  std::int64_t min_blocks = 0;  ///< that a unit should hold at once; 0: as the compiler sees fit
};

/// What a source says of its target before it includes anything, one definition a line: FORGE_WAVE, FORGE_DOT,
/// FORGE_MATRIX, FORGE_COPIES, FORGE_OVERLAPS (kernels/gpu/prelude/prelude.h). Of the target's row, and of nothing
/// else.
std::string target_macros(const GpuTarget& target);

/// The whole source. The entry's name is `stem` (letters, digits, '_') and a hash of the text.
KernelSource kernel_source(const GpuTarget& target, std::string_view stem, const KernelText& kernel);

/// The kernels of one program: equal texts are one kernel.
class KernelSet {
 public:
  /// Answers its index in sources().
  std::uint32_t add(KernelSource source);
  [[nodiscard]] const std::vector<KernelSource>& sources() const { return sources_; }

 private:
  std::map<std::string, std::uint32_t> by_text_;
  std::vector<KernelSource> sources_;
};

}  // namespace forge::codegen
