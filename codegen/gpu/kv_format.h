#pragma once
// The types that keys and values can have in the cache of GPUs.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/gpu/targets.h"
#include "ir/attrs.h"
#include "kernels/quant/dtype.h"

namespace forge::codegen {

/// A type of the KV cache: a format in kernels/gpu/kv_pool.h.
struct KvFormat {
  DType type;
  std::string_view kernel_name;  ///< the format's name there
  std::int64_t columns;          ///< heads have a multiple of so many columns, and so has a block that stores them
  bool heads_only;               ///< there are no kernels for shared rows (latents, keys of sparse attention)
  bool rotates_keys;             ///< keys are stored transformed (passes/fuse/rotate_keys.cc)
  bool needs_fp8;                ///< only targets that convert 8-bit floats have it

  /// The kernels' name of a pool: KvPool<2, 64, 32, KvQ8_0>.
  [[nodiscard]] std::string pool(std::int64_t kv_heads, std::int64_t head_dim) const;
  /// Bytes of the keys and values of a block of one layer.
  [[nodiscard]] std::int64_t block_bytes(const ir::KvStateAttrs& kv) const;
  /// Why the type cannot have these keys and values; nothing if it can.
  [[nodiscard]] std::optional<std::string> refusal(const ir::KvStateAttrs& kv) const;
};

/// The types that a target supports.
[[nodiscard]] std::vector<DType> gpu_kv_types(const GpuTarget& target);
/// The format of one of them.
[[nodiscard]] const KvFormat& kv_format(DType type);

}  // namespace forge::codegen
