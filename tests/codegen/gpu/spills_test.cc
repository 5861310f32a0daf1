// Matmul kernels as lowering configures them: GEMV or matrix instructions are chosen correctly, and no kernel spills
// registers.

#include <array>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "codegen/compile.h"
#include "codegen/gpu/attention_config.h"
#include "codegen/gpu/gpu_target.h"
#include "codegen/gpu/matmul_config.h"
#include "codegen/gpu/matmul_draft.h"
#include "codegen/gpu/select_config.h"
#include "codegen/gpu/source/weight_text.h"
#include "support/error.h"
#include "tests/codegen/gpu/kernels.h"

namespace forge::codegen::tests {
namespace {

constexpr const char* kStore = R"(struct Epilogue {
  struct Args {
    float* out;
  };
  static constexpr int kIn = 16, kOperands = 0, kParts = 0;
  template <class In>
  FORGE_DEVICE static void run(const Args& a, int t, int n, int, bool real, float, const float (&)[1], In&& in) {
    store(a.out + t * 65536 + n, in(n), real);
  }
};
)";

/// The kernel of a quantised [n, k] weight times `tokens` tokens.
KernelText matmul_text(const GpuTarget& target, DType type, std::int64_t n, std::int64_t k, std::int64_t tokens,
                       MatmulUse use = MatmulUse::kPlain) {
  const auto config = choose_matmul(target, type, n, k, tokens, {}, {}, use);
  KernelText text{
      .header = "kernels/gpu/matmul_rows.h", .kernel = "MatmulRows", .defaults = "MatmulDefaults", .before = kStore};
  text.config.use("Weight", weight_text(type, n, k)).use("Epilogue", "gpu::Epilogue").number("kTokensTotal", tokens);
  config.write_to(text.config);
  const auto block_rows = config.block_rows(target.wave);
  text.blocks = (n + block_rows - 1) / block_rows * (tokens / config.tokens);
  text.threads = config.waves * target.wave;
  return text;
}

/// The matmul by matrix instructions with this configuration.
KernelText tiles_text(const GpuTarget& target, DType type, std::int64_t n, std::int64_t k, std::int64_t tokens,
                      const TilesConfig& config) {
  KernelText text;
  text.before = kStore;
  text.config.use("Weight", weight_text(type, n, k)).use("Epilogue", "gpu::Epilogue").number("kTokensTotal", tokens);
  config.write_to(text);
  text.config.use("Tile", tile_name(tile_rows_type(target, type, is_float(type) ? DType::kF32 : DType::kQ8A_16)));
  text.blocks = config.blocks;
  text.threads = config.waves() * target.wave;
  text.lds_bytes = config.lds_bytes;
  return text;
}

/// That for prompts of 512 tokens. unit_blocks: blocks of 128 x 128, as many on a unit as these ask for; else the
/// chosen ones, as many as registers allow.
KernelText prompt_text(const GpuTarget& target, DType type, std::int64_t n, std::int64_t k, bool unit_blocks = false) {
  constexpr std::int64_t kTokens = 512;
  Tuning tuning{{"matrix", 1}};
  if (unit_blocks) tuning.insert({{"block_rows", 128}, {"block_tokens", 128}});
  const auto config = *choose_tiles(target, type, n, k, kTokens, 1, 0, {}, tuning);
  auto text = tiles_text(target, type, n, k, kTokens, config);
  text.min_blocks = unit_blocks ? config.unit_blocks : 0;
  if (unit_blocks) CHECK(config.unit_blocks == 2);
  return text;
}

/// Attention for prompts of 512 tokens, or for one token.
KernelText attention_text(const GpuTarget& target, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                          bool decode = false, DType kv_type = DType::kF16, Tuning tuning = {},
                          bool before_choice = false) {
  ir::AttentionAttrs attention;
  attention.heads = heads;
  attention.kv_heads = kv_heads;
  attention.head_dim = head_dim;
  const ir::Bounds bounds = decode ? ir::Bounds{1, 1, 1, 128} : ir::Bounds{512, 64, 1, 128};
  tuning.emplace("matrix", 1);
  const auto config = choose_attention(target, attention, bounds, {kv_type, before_choice}, tuning);
  REQUIRE(config.tiles.has_value() != decode);
  auto text = config.kernel_text();
  text.config.use("Pool", kv_format(kv_type).pool(kv_heads, head_dim))
      .number("kHeads", heads)
      .number("kTableBlocks", bounds.table_blocks)
      .real("kScale", 0.125F)
      .number("kTokensTotal", bounds.tokens)
      .flag("kStored", false)
      .number("kFormat", 1);
  text.threads = config.waves * target.wave;
  return text;
}

/// Compiles the kernels, which must neither spill nor need more shared memory than every target has.
auto check_no_spills(const GpuTarget& target, const KernelSet& kernels) {
  auto made = compiled(target, kernels);
  for (std::size_t i = 0; i < made.size(); ++i) {
    const auto& facts = made[i].facts;
    INFO(target.name << ", " << kernels.sources()[i].entry << ": " << facts.registers << " registers, "
                     << facts.spill_bytes << " bytes spilled, " << facts.lds_bytes << " bytes of LDS");
    CHECK(facts.spill_bytes <= 0);
    CHECK(facts.lds_bytes <= 48 << 10);
  }
  return made;
}

/// Choices of keys in a context of 131072 positions: for each of 8 heads its own blocks of 128 positions, or positions
/// by the sum over 64 heads.
KernelSet select_kernels(const GpuTarget& target, std::int64_t tokens, bool matrix) {
  const ir::Bounds bounds{tokens, 1, 1, 4096};
  KernelSet out;
  for (const bool by_blocks : {false, true}) {
    ir::SelectKeysAttrs select;
    select.heads = by_blocks ? 8 : 64;
    select.head_dim = 128;
    select.top_k = by_blocks ? 16 : 2048;
    select.block = by_blocks ? 128 : 1;
    select.local = by_blocks ? 1 : 0;
    const auto config = choose_select_keys(target, select, !by_blocks, bounds, {{"matrix", matrix ? 1 : 0}});
    REQUIRE(config.tiles == matrix);
    REQUIRE(config.many == (tokens > 16));
    const auto shape = select_keys_shape(select, !by_blocks, bounds);
    const auto stem = fmt::format("{}_x{}", by_blocks ? "blocks" : "positions", config.rows_together);
    out.add(kernel_source(target, "score_" + stem, config.score_text(target, shape)));
    if (!matrix) out.add(kernel_source(target, "choose_" + stem, config.choose_text(target, shape)));
  }
  return out;
}

/// Attention of 128 heads to latent rows: of one token to 2048 selected rows, or of a prompt of 512 tokens by tiles.
KernelText latent_text(const GpuTarget& target, bool prompt) {
  ir::AttentionAttrs attention;
  attention.heads = 128;
  attention.kv_heads = 1;
  attention.head_dim = 576;
  attention.value_dim = 512;
  if (!prompt) attention.selected = 2048;
  attention.selected_block = 1;
  const ir::Bounds bounds = prompt ? ir::Bounds{512, 64, 1, 4096} : ir::Bounds{1, 1, 1, 4096};
  const auto config = choose_latent_attention(target, attention, bounds, {{"matrix", 1}});
  REQUIRE(config.tiles.has_value() == prompt);
  KernelText text = config.kernel_text();
  text.threads = config.waves * target.wave;
  text.config.use("Pool", fmt::format("KvPool<1, 576, {}>", kGpuKvBlockTokens))
      .number("kValueDim", 512)
      .number("kHeads", attention.heads)
      .number("kTokensTotal", bounds.tokens)
      .number("kTableBlocks", bounds.table_blocks)
      .real("kScale", 0.125F)
      .number("kSelected", attention.selected)
      .flag("kStored", false)
      .flag("kQuantised", true);
  return text;
}

/// A recurrence of a prompt of 512 tokens: 32 heads of a delta rule, or of a scan, with states of 128 rows, or of
/// RWKV-7, with states of 64 rows.
KernelText state_text(const GpuTarget& target, std::string_view rule, std::int64_t columns, bool each_row = false) {
  constexpr std::int64_t kHeads = 32, kWaves = 4, kSequences = 8;
  const bool delta = rule == "DeltaTiles", rwkv = rule == "Rwkv7Tiles";
  const std::int64_t rows = rwkv ? 64 : 128;
  KernelText text{.header = "kernels/gpu/recurrent_tiles.h",
                  .kernel = "StateTiles",
                  .defaults = "StateTilesDefaults",
                  .before = {},
                  .blocks = kSequences * kHeads * (columns / (16 * kWaves)),
                  .threads = kWaves * target.wave};
  ConfigText params;
  params.number("kHeads", kHeads);
  if (delta)
    params.number("kKeyHeads", kHeads / 2)
        .number("kKeyDim", rows)
        .number("kValueDim", columns)
        .flag("kInterleaved", false)
        .flag("kDecayEachRow", each_row)
        .real("kScale", 0.125F)
        .real("kEpsilon", 1e-6F)
        .number("kQFloats", 8192)
        .number("kKFloats", 8192)
        .number("kVFloats", 8192)
        .number("kDecayFloats", each_row ? kHeads * rows : kHeads)
        .number("kBetaFloats", kHeads);
  else if (rwkv)
    params.number("kHeadDim", rows)
        .number("kRFloats", 2048)
        .number("kWFloats", 2048)
        .number("kKFloats", 2048)
        .number("kVFloats", 2048)
        .number("kAFloats", 2048)
        .number("kBFloats", 2048);
  else
    params.number("kGroups", kHeads / 4)
        .number("kHeadDim", columns)
        .number("kStateDim", rows)
        .flag("kEachState", false)
        .number("kXFloats", 8192)
        .number("kDtFloats", kHeads)
        .number("kBFloats", 8192)
        .number("kCFloats", 8192);
  text.before = fmt::format("struct Params {{\n{}}};\n", params.text());
  text.config.use("Rule", fmt::format("{}<Params>", rule))
      .number("kHeads", kHeads)
      .number("kColumns", columns)
      .number("kRows", rows)
      .number("kWaves", kWaves)
      .number("kSequences", kSequences)
      .number("kTokensTotal", 512)
      .number("kSlotFloats", kHeads * rows * columns)
      .number("kOutFloats", kHeads * columns);
  return text;
}

}  // namespace

TEST_CASE("GEMV kernels of the K types do not spill their units") {
  for (const GpuTarget* known : compilable({"gfx1100", "sm_90"})) {
    const GpuTarget& target = *known;
    const int tokens = target.vendor == driver::Vendor::kAmd ? 1 : 8;
    KernelSet kernels;
    for (const auto type : {DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_XS})
      kernels.add(kernel_source(target, "matmul", matmul_text(target, type, 2560, 9728, tokens)));
    if (target.overlaps)
      for (const auto type : {DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_XS})
        for (const auto use : {MatmulUse::kPlain, MatmulUse::kWholeRows})
          kernels.add(kernel_source(target, "one", matmul_text(target, type, 2560, 10240, 1, use)));
    for (const auto& kernel : compiled(target, kernels)) {
      INFO(target.name << ": " << kernel.facts.registers << " registers");
      CHECK(kernel.facts.spill_bytes <= 0);
    }
  }
}

TEST_CASE("matrix-instruction kernels keep their accumulators in registers, and AMD's multiply most of the time") {
  constexpr std::ptrdiff_t kPrompts = 8;
  for (const GpuTarget* known : compilable({"gfx1100", "gfx1201", "gfx90a", "gfx942", "sm_80", "sm_90"})) {
    const GpuTarget& target = *known;
    KernelSet kernels;
    for (const auto type : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ4_K, DType::kQ6_K, DType::kBF16}) {
      kernels.add(kernel_source(target, "wide", prompt_text(target, type, 16384, 2048)));
      if (type == DType::kQ8_0 || type == DType::kBF16)
        kernels.add(kernel_source(target, "narrow", prompt_text(target, type, 2048, 8192)));
    }
    for (const auto& [heads, kv_heads, head_dim] : {std::array{32, 8, 64}, {9, 3, 64}, {32, 8, 128}, {32, 4, 128}})
      kernels.add(kernel_source(target, "attention", attention_text(target, heads, kv_heads, head_dim)));
    const auto made = check_no_spills(target, kernels);
    REQUIRE(std::ssize(made) > kPrompts);
    // gfx90a makes BF16, without packed instructions.
    for (std::ptrdiff_t i = 0; i < kPrompts && target.vendor == driver::Vendor::kAmd; ++i) {
      INFO(target.name << ", " << kernels.sources()[i].entry);
      CHECK(others_in_loop(made[i], target) <= (target.name == "gfx90a" ? 11 : 6));
    }
  }
}

TEST_CASE("attention reads a quantised cache without spilling") {
  for (const GpuTarget* known : compilable({"gfx1100", "gfx1201", "gfx90a", "gfx942", "sm_80", "sm_90"})) {
    const GpuTarget& target = *known;
    KernelSet kernels;
    for (const auto& [heads, kv_heads, head_dim] : {std::array{32, 8, 64}, {9, 3, 64}, {32, 8, 128}, {8, 4, 256}})
      for (const auto type : {DType::kQ8_0, DType::kQ4_0, DType::kFp8})
        for (const bool decode : {false, true})
          if ((decode || head_dim <= 128) && supports_kv_type(target.name, type))
            kernels.add(kernel_source(target, decode ? "decode" : "prefill",
                                      attention_text(target, heads, kv_heads, head_dim, decode, type)));
    check_no_spills(target, kernels);
  }
}

TEST_CASE("decode attention by matrix instructions keeps queries, sums and chunks in registers") {
  for (const GpuTarget* known : compilable({"gfx1100", "gfx1201", "gfx90a", "gfx942", "sm_80", "sm_90"})) {
    const GpuTarget& target = *known;
    KernelSet kernels;
    for (const auto& [heads, kv_heads, head_dim] :
         {std::array{32, 8, 64}, {32, 8, 128}, {14, 2, 64}, {64, 8, 128}, {32, 2, 128}, {8, 4, 256}, {8, 1, 256}})
      for (const auto type : {DType::kF16, DType::kQ8_0, DType::kQ4_0, DType::kFp8}) {
        if (!supports_kv_type(target.name, type)) continue;
        auto text = attention_text(target, heads, kv_heads, head_dim, true, type, {{"head_tiles", 1}});
        // WMMA has twice the sums in a lane, too many for wide heads.
        const bool wmma = target.matrix == MatrixKind::kWmmaGfx11 || target.matrix == MatrixKind::kWmmaGfx12;
        CHECK(text.kernel == (wmma && head_dim > 128 ? "Attention" : "AttentionHeadTiles"));
        kernels.add(kernel_source(target, fmt::format("x{}_{}x{}_{}", heads, kv_heads, head_dim, dtype_name(type)),
                                  std::move(text)));
      }
    check_no_spills(target, kernels);
  }
}

TEST_CASE("decode attention by length does not spill, and leaves a unit room for another block") {
  for (const GpuTarget* known : compilable({"sm_90"})) {
    const GpuTarget& target = *known;
    KernelSet kernels;
    for (const bool before_choice : {false, true})
      for (const auto& [heads, kv_heads, head_dim] :
           {std::array{9, 3, 64}, {32, 8, 64}, {32, 4, 128}, {32, 2, 128}, {8, 4, 256}, {5, 1, 256}, {10, 1, 128}})
        for (const auto type : {DType::kF16, DType::kQ8_0, DType::kQ4_0}) {
          auto text = attention_text(target, heads, kv_heads, head_dim, true, type, {}, before_choice);
          CHECK(text.kernel == (type == DType::kF16 ? "AttentionByLength" : "AttentionHeadTiles"));
          const auto name = fmt::format("x{}_{}x{}_{}_{}", heads, kv_heads, head_dim, dtype_name(type), before_choice);
          kernels.add(kernel_source(target, name, std::move(text)));
        }
    const auto made = check_no_spills(target, kernels);
    // Two blocks of 256 threads have 128 of a unit's registers for each thread.
    for (std::size_t i = 0; i < made.size(); ++i)
      if (kernels.sources()[i].entry.starts_with("x32_8x64_f16_false")) CHECK(made[i].facts.registers <= 128);
  }
}

TEST_CASE("attention of wide heads keeps queries and sums in registers") {
  // Bytes of addresses that prefill computes before its loop; gfx11's fragments take twice the registers.
  constexpr std::int64_t kAddresses = 128, kAddressesGfx11 = 400;
  for (const GpuTarget* known : compilable({"gfx1100", "gfx942", "sm_90"})) {
    const GpuTarget& target = *known;
    KernelSet decode, prefill;
    for (const auto& [heads, kv_heads, head_dim] : {std::array{8, 4, 256}, {16, 2, 512}, {4, 4, 512}}) {
      decode.add(kernel_source(target, "decode", attention_text(target, heads, kv_heads, head_dim, true)));
      prefill.add(kernel_source(target, "prefill", attention_text(target, heads, kv_heads, head_dim)));
    }
    for (const auto& kernel : compiled(target, decode)) {
      INFO(target.name << ", decode: " << kernel.facts.registers << " registers");
      CHECK(kernel.facts.spill_bytes <= 0);
    }
    for (const auto& kernel : compiled(target, prefill)) {
      INFO(target.name << ", prefill: " << kernel.facts.registers << " registers, " << kernel.facts.lds_bytes
                       << " bytes of LDS");
      CHECK(kernel.facts.spill_bytes <= (target.matrix == MatrixKind::kWmmaGfx11 ? kAddressesGfx11 : kAddresses));
      CHECK(kernel.facts.lds_bytes <= 48 << 10);
    }
  }
}

TEST_CASE("attention of a prompt on latents spills a few addresses at most") {
  constexpr std::int64_t kAddresses = 32, kAddressesGfx11 = 448;  // as for wide heads
  for (const GpuTarget* known : compilable({"gfx1100", "gfx942", "sm_90"})) {
    const GpuTarget& target = *known;
    KernelSet kernels;
    kernels.add(kernel_source(target, "latent_tiles", latent_text(target, true)));
    for (const auto& kernel : compiled(target, kernels)) {
      INFO(target.name << ": " << kernel.facts.registers << " registers, " << kernel.facts.spill_bytes
                       << " bytes spilled");
      CHECK(kernel.facts.spill_bytes <= (target.matrix == MatrixKind::kWmmaGfx11 ? kAddressesGfx11 : kAddresses));
      CHECK(kernel.facts.lds_bytes <= target.lds_bytes_per_block);
    }
  }
}

TEST_CASE("attention on latents of two tiles of heads fits into the shared memory of NVIDIA's cards") {
  ir::AttentionAttrs attention;
  attention.heads = 128;
  attention.kv_heads = 1;
  attention.head_dim = 576;
  attention.value_dim = 512;
  for (const char* name : {"sm_80", "sm_86", "sm_90", "sm_120"}) {
    const GpuTarget& target = *find_target(name);
    const auto config = choose_latent_attention(target, attention, {1, 1, 1, 4096}, {{"heads", 32}});
    INFO(name << ", " << config.stages << " stages");
    CHECK(config.heads_per_block == 32);
    CHECK(config.lds_bytes > 0);
    CHECK(config.lds_bytes <= target.lds_bytes_per_block);
  }
}

TEST_CASE("recurrences by matrix instructions keep a state of 128 rows in registers") {
  for (const GpuTarget* known : compilable({"gfx1100", "gfx1201", "gfx90a", "gfx942", "sm_80", "sm_90"})) {
    const GpuTarget& target = *known;
    KernelSet kernels;
    kernels.add(kernel_source(target, "delta", state_text(target, "DeltaTiles", 128)));
    kernels.add(kernel_source(target, "scan", state_text(target, "ScanTiles", 64)));
    kernels.add(kernel_source(target, "delta_rows", state_text(target, "DeltaTiles", 128, true)));
    kernels.add(kernel_source(target, "rwkv7", state_text(target, "Rwkv7Tiles", 64)));
    for (const auto& kernel : compiled(target, kernels)) {
      INFO(target.name << ": " << kernel.facts.registers << " registers, " << kernel.facts.spill_bytes
                       << " bytes spilled, " << kernel.facts.lds_bytes << " bytes of LDS");
      CHECK(kernel.facts.spill_bytes <= 0);
      CHECK(kernel.facts.lds_bytes <= 48 << 10);
    }
  }
}

TEST_CASE("sparse attention of one token does not spill") {
  for (const GpuTarget* known : compilable({"gfx1100", "gfx942", "sm_90"})) {
    const GpuTarget& target = *known;
    KernelSet kernels = select_kernels(target, 1, false);
    kernels.add(kernel_source(target, "latent_attention", latent_text(target, false)));
    for (const auto& kernel : compiled(target, kernels)) {
      INFO(target.name << ": " << kernel.facts.registers << " registers, " << kernel.facts.spill_bytes
                       << " bytes spilled, " << kernel.facts.lds_bytes << " bytes of LDS");
      CHECK(kernel.facts.spill_bytes <= 0);
      CHECK(kernel.facts.lds_bytes <= target.lds_bytes_per_block);
    }
  }
}

TEST_CASE("matrix instructions that score index keys hold the queries in registers") {
  // Bytes of addresses that two blocks a unit cost on NVIDIA's cards: of the loop over rows, where there is one.
  constexpr std::int64_t kAddresses = 32, kRowAddresses = 256, kRegisters = 128;
  for (const GpuTarget* known :
       compilable({"gfx1100", "gfx1201", "gfx90a", "gfx942", "sm_80", "sm_86", "sm_90", "sm_120"})) {
    const GpuTarget& target = *known;
    const bool amd = target.vendor == driver::Vendor::kAmd;
    for (const std::int64_t tokens : {1, 512, 2048}) {
      const auto kernels = select_kernels(target, tokens, true);
      const auto made = compiled(target, kernels);
      for (std::size_t i = 0; i < made.size(); ++i) {
        const auto& facts = made[i].facts;
        INFO(target.name << ", " << kernels.sources()[i].entry << ": " << facts.registers << " registers, "
                         << facts.spill_bytes << " bytes spilled, " << facts.lds_bytes << " bytes of LDS");
        CHECK(facts.spill_bytes <= (amd ? 0 : tokens == 1 ? kAddresses : kRowAddresses));
        CHECK((amd || tokens == 1 || facts.registers <= kRegisters));
        CHECK(facts.lds_bytes <= 48 << 10);
      }
    }
  }
}

TEST_CASE("matrix instructions score index keys where the target has them and the shape allows") {
  const Tuning on{{"matrix", 1}}, off{{"matrix", 0}};
  const GpuTarget &card = *find_target("sm_90"), &older = *find_target("sm_75"), &wide = *find_target("gfx942");
  const auto choose = [](const GpuTarget& target, std::int64_t heads, std::int64_t dim, std::int64_t tokens,
                         const Tuning& tuning, std::int64_t block = 1) {
    ir::SelectKeysAttrs select;
    select.heads = heads;
    select.head_dim = dim;
    select.top_k = 16;
    select.block = block;
    return choose_select_keys(target, select, block == 1, {tokens, 1, 1, 4096}, tuning);
  };
  CHECK(choose(card, 64, 128, 1, on).tiles);
  CHECK(choose(card, 64, 128, 512, on).tiles);
  CHECK(!choose(card, 64, 128, 512, off).tiles);
  CHECK(!choose(older, 64, 128, 512, on).tiles);
  CHECK(!choose(card, 64, 72, 512, on).tiles);
  CHECK(!choose(card, 64, 256, 512, on).tiles);
  CHECK(!choose(card, 160, 32, 512, on).tiles);
  // Rows share keys if enough blocks remain, the waves have room for their queries and scratch for their scores.
  const auto rows = [&](const GpuTarget& target, std::int64_t heads, std::int64_t tokens, std::int64_t block = 1) {
    return choose(target, heads, 128, tokens, on, block).rows_together;
  };
  CHECK(rows(card, 64, 128) == 1);
  CHECK(rows(card, 64, 512) == 2);
  CHECK(rows(wide, 64, 512) == 2);
  CHECK(rows(card, 32, 2048) == 2);
  CHECK(rows(card, 8, 2048, 128) == 4);
  CHECK(rows(card, 128, 2048) == 1);
  CHECK(choose(card, 64, 128, 512, {{"matrix", 1}, {"select_rows", 1}}).rows_together == 1);
  // Each wave has positions: one tile of heads needs four waves, not eight.
  CHECK(choose(card, 8, 128, 1, on).waves == 4);
  CHECK(choose(card, 64, 128, 1, on).waves == 8);
  CHECK(choose(wide, 64, 128, 1, on).waves == 4);
}

TEST_CASE("two blocks per unit spill a few addresses but no accumulators") {
  constexpr std::int64_t kAddresses = 48, kRegisters = 128;
  for (const GpuTarget* known : compilable({"sm_80", "sm_90"})) {
    const GpuTarget& target = *known;
    KernelSet kernels;
    for (const auto type : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kBF16})
      kernels.add(kernel_source(target, "wide", prompt_text(target, type, 4096, 4096, true)));
    for (const auto& kernel : compiled(target, kernels)) {
      INFO(target.name << ": " << kernel.facts.registers << " registers, " << kernel.facts.spill_bytes
                       << " bytes spilled");
      CHECK(kernel.facts.registers <= kRegisters);
      CHECK(kernel.facts.spill_bytes <= kAddresses);
    }
  }
}

TEST_CASE("matmuls of few tokens by matrix instructions do not spill") {
  for (const GpuTarget* known : compilable({"gfx1100", "gfx1201", "gfx942", "sm_80", "sm_90"})) {
    const GpuTarget& target = *known;
    KernelSet kernels;
    for (const std::int64_t tokens : {8, 16, 32, 64})
      for (const auto type : {DType::kQ4_K, DType::kQ6_K, DType::kQ8_0, DType::kBF16}) {
        const auto add = [&](const std::optional<TilesConfig>& config) {
          REQUIRE((config.has_value() && config->strips));
          auto text = tiles_text(target, type, 4096, 14336, tokens, *config);
          text.min_blocks = config->unit_blocks;
          kernels.add(
              kernel_source(target, fmt::format("{}_{}_of_{}", dtype_name(type), config->tokens, tokens), text));
        };
        add(choose_tiles(target, type, 4096, 14336, tokens, 1, 0, {}, {{"matrix_tokens", 8}}));
        if (tokens == 64) add(choose_few_rows(target, type, 4096, 14336, tokens, {}, {}));
      }
    const auto made = compiled(target, kernels);
    for (std::size_t i = 0; i < made.size(); ++i) {
      const auto& facts = made[i].facts;
      INFO(target.name << ", " << kernels.sources()[i].entry << ": " << facts.registers << " registers, "
                       << facts.spill_bytes << " bytes spilled, " << facts.lds_bytes << " bytes of LDS");
      CHECK(facts.spill_bytes <= 0);
      CHECK(facts.lds_bytes <= 48 << 10);
    }
  }
}

}  // namespace forge::codegen::tests
