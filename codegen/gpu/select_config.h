#pragma once
// How the kernels that choose the keys of sparse attention share their work: the constants of their configurations.

#include <cstdint>
#include <optional>
#include <string>

#include "codegen/gpu/source/kernel_text.h"
#include "codegen/gpu/targets.h"
#include "codegen/gpu/tuning.h"
#include "ir/attrs.h"
#include "ir/type.h"

namespace forge::codegen {

/// The configuration of a choice of keys (kernels/gpu/select_keys.h).
struct SelectConfig {
  bool tiles = false;               ///< scores by matrix instructions (kernels/gpu/key_score_tiles.h)
  bool many = false;                ///< one launch, SelectKeys, for many rows; else ScoreKeys and ChooseKeys
  std::int64_t rows_together = 1;   ///< rows that are scored together, with tiles and `many`
  std::int64_t stages = 1;          ///< chunks of keys in shared memory, with tiles
  std::int64_t waves = 8;           ///< of a block that scores
  std::int64_t choosing_waves = 8;  ///< of a block of ChooseKeys
  std::int64_t workers = 1;         ///< blocks that share the positions of a row, unless `many`
  std::int64_t blocks = 0;          ///< blocks of the grid that scores
  std::int64_t choosing_blocks = 0;
  std::int64_t scratch_bytes = 0;  ///< scores of the rows in work
  /// The kernel that scores (and chooses, if `many`), and the one that chooses. `config` has the constants of the
  /// shape.
  [[nodiscard]] KernelText score_text(const GpuTarget& target, const ConfigText& config) const;
  [[nodiscard]] KernelText choose_text(const GpuTarget& target, const ConfigText& config) const;
};
SelectConfig choose_select_keys(const GpuTarget& target, const ir::SelectKeysAttrs& select, bool weighted,
                                const ir::Bounds& bounds, const Tuning& tuning);
/// The constants of the shape: all but kQueryFloats and kWeightFloats.
ConfigText select_keys_shape(const ir::SelectKeysAttrs& select, bool weighted, const ir::Bounds& bounds);

/// Why no kernel serves these attributes, if so.
std::optional<std::string> refuses_select_keys(const ir::SelectKeysAttrs& select);

}  // namespace forge::codegen
