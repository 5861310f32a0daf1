#pragma once
// How attention kernels of a target share their work: the constants of their configurations.

#include <cstdint>
#include <optional>
#include <string>

#include "codegen/attention_choice.h"
#include "codegen/gpu/source/kernel_text.h"
#include "codegen/gpu/targets.h"
#include "codegen/gpu/tuning.h"
#include "ir/attrs.h"
#include "ir/type.h"

namespace forge::codegen {

/// The configuration of an attention kernel (kernels/gpu/attention.h has the meaning of the fields).
struct AttentionConfig {
  /// Prefill by matrix instructions (kernels/gpu/attention_tiles.h).
  struct Tiles {
    std::int64_t heads = 1, tokens = 16;       ///< of a block
    std::int64_t chunk = 32;                   ///< tokens of the context per iteration
    std::int64_t parts = 1;                    ///< waves that share a head's columns
    std::int64_t row_turns = 1;                ///< rows beside tiles that a block looks at
    std::int64_t min_blocks = 0;               ///< KernelText::min_blocks
    [[nodiscard]] std::int64_t waves() const;  ///< of a block
  };
  /// Decode by matrix instructions (kernels/gpu/attention_head_tiles.h).
  struct HeadTiles {
    std::int64_t chunk_tiles = 1;  ///< tiles of 16 tokens in a chunk
    std::int64_t min_blocks = 0;   ///< KernelText::min_blocks
    std::int64_t terms = 1;        ///< F16 numbers of an element of a query or a weight
  };
  /// With HeadTiles: rows with short contexts do without (kernels/gpu/attention_by_length.h).
  struct ShortRows {
    std::int64_t tokens = 0;  ///< a row that sees at most so many is short
    std::int64_t heads_per_block = 1, workers = 1;
  };
  std::int64_t heads_per_block = 0, workers = 1, waves = 8, tokens_per_worker = 256, team_tokens = 8;
  std::optional<Tiles> tiles;  ///< none for few rows, unsuitable head_dim, or targets without matrix instructions
  std::optional<HeadTiles> head_tiles;  ///< without `tiles`; none where heads do not share keys, and as above
  std::optional<ShortRows> short_rows;
  std::int64_t counters = 0;       ///< of a row
  std::int64_t blocks = 0;         ///< blocks of the grid
  std::int64_t scratch_bytes = 0;  ///< partial results of all rows
  /// Names the kernel and its defaults, and writes the fields as constants of its configuration.
  [[nodiscard]] KernelText kernel_text() const;
};
void write_tiles(const AttentionConfig::Tiles& tiles, KernelText& out);
/// What attention reads, and what its result decides.
struct AttentionData {
  DType kv_type = DType::kF16;  ///< of the cache
  bool before_choice = false;   ///< experts or keys are chosen by what follows (Binding::before_choice)
  bool makes_heads = false;     ///< the kernel makes its own heads (kernels/gpu/attention_heads.h)
};
/// asked: the user's choice, which is followed where possible; attention_problem() tells if it was not.
AttentionConfig choose_attention(const GpuTarget& target, const ir::AttentionAttrs& attention, const ir::Bounds& bounds,
                                 const AttentionData& data, const Tuning& tuning, const AttentionChoice& asked = {});
/// The same for steps of any number of tokens, with the split of a step of one token, so that a row's result does not
/// depend on its step. Contexts are split less where partial results of many rows would take too much scratch.
AttentionConfig choose_attention_of_tokens(const GpuTarget& target, const ir::AttentionAttrs& attention,
                                           const ir::Bounds& bounds, const AttentionData& data, const Tuning& tuning,
                                           const AttentionChoice& asked = {});
/// The configuration of attention on latents (kernels/gpu/latent_row.h), whose rows all heads share.
struct LatentConfig {
  /// kernels/gpu/latent_attention.h, latent_head_tiles.h, and for prefill latent_tiles.h.
  enum class Kernel : std::uint8_t { kRows, kHeadTiles, kTiles };
  Kernel kernel = Kernel::kRows;
  std::int64_t heads_per_block = 1, waves = 1, workers = 1, tokens_per_worker = 64;
  std::int64_t merged = 1;                      ///< workers whose shares are merged first
  std::int64_t stages = 1;                      ///< chunks in shared memory, of kHeadTiles
  std::optional<AttentionConfig::Tiles> tiles;  ///< of kTiles
  std::int64_t jobs = 1;                        ///< blocks of a row and a worker
  std::int64_t counters = 1;                    ///< of a job
  std::int64_t blocks = 0;                      ///< blocks of the grid
  std::int64_t scratch_bytes = 0;               ///< partial results of all rows
  std::int64_t lds_bytes = 0;                   ///< KernelText::lds_bytes
  /// Names the kernel and its defaults, and writes the fields as constants of its configuration.
  [[nodiscard]] KernelText kernel_text() const;
};
LatentConfig choose_latent_attention(const GpuTarget& target, const ir::AttentionAttrs& attention,
                                     const ir::Bounds& bounds, const Tuning& tuning, const AttentionChoice& asked = {});
/// As choose_attention_of_tokens.
LatentConfig choose_latent_attention_of_tokens(const GpuTarget& target, const ir::AttentionAttrs& attention,
                                               const ir::Bounds& bounds, const Tuning& tuning,
                                               const AttentionChoice& asked = {});
/// The reason why the configuration is not what the user asked for; empty if it is.
std::string attention_problem(const AttentionConfig& config, const ir::AttentionAttrs& attention,
                              const ir::Bounds& bounds, const AttentionChoice& asked);

}  // namespace forge::codegen
