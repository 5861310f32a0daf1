#include "codegen/gpu/kv_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "codegen/gpu/tile_sizes.h"
#include "support/error.h"

namespace forge::codegen {
namespace {

constexpr std::array kFormats{
    KvFormat{.type = DType::kF16,
             .kernel_name = "KvF16",
             .columns = 1,
             .heads_only = false,
             .rotates_keys = false,
             .needs_fp8 = false},
    KvFormat{.type = DType::kQ8_0,
             .kernel_name = "KvQ8_0",
             .columns = 32,
             .heads_only = true,
             .rotates_keys = false,
             .needs_fp8 = false},
    KvFormat{.type = DType::kQ4_0,
             .kernel_name = "KvQ4_0",
             .columns = 32,
             .heads_only = true,
             .rotates_keys = true,
             .needs_fp8 = false},
    KvFormat{.type = DType::kFp8,
             .kernel_name = "KvFp8",
             .columns = 16,
             .heads_only = true,
             .rotates_keys = false,
             .needs_fp8 = true},
};

}  // namespace

std::string KvFormat::pool(std::int64_t kv_heads, std::int64_t head_dim) const {
  return fmt::format("KvPool<{}, {}, {}, {}>", kv_heads, head_dim, kGpuKvBlockTokens, kernel_name);
}

std::int64_t KvFormat::block_bytes(const ir::KvStateAttrs& kv) const {
  const auto columns = kv.head_dim + (kv.shared_row == 1 ? 0 : value_dim_of(kv));
  return kv.kv_heads * kGpuKvBlockTokens *
         static_cast<std::int64_t>(row_bytes(type, static_cast<std::size_t>(columns)));
}

std::optional<std::string> KvFormat::refusal(const ir::KvStateAttrs& kv) const {
  if (heads_only && kv.shared_row == 1)
    return fmt::format("there is no KV cache in {} for latent rows and keys of sparse attention", dtype_name(type));
  for (const auto width : {kv.head_dim, value_dim_of(kv)})
    if (width % columns != 0)
      return fmt::format("there is no KV cache in {} for heads of {} columns, which are not a multiple of {}",
                         dtype_name(type), width, columns);
  return std::nullopt;
}

std::vector<DType> gpu_kv_types(const GpuTarget& target) {
  std::vector<DType> types;
  for (const auto& format : kFormats)
    if (!format.needs_fp8 || target.fp8 != Fp8Kind::kNone) types.push_back(format.type);
  return types;
}

const KvFormat& kv_format(DType type) {
  const auto* found = std::ranges::find(kFormats, type, &KvFormat::type);
  if (found == kFormats.end())
    throw Error(ErrorCode::kInternal, fmt::format("GPUs have no KV cache in {}", dtype_name(type)));
  return *found;
}

}  // namespace forge::codegen
