// Matmul by matrix instructions multiplies correctly: every weight type, shapes at the edges of rows, columns and
// tokens, the tile layouts of every vendor, rings of buffers with and without asynchronous copies, simple and fused
// epilogues. The reference is in f64, on values rounded to BF16 or F16.

#include "tests/gpu_host/matmul_case.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {

// The tile layout (% stands for the type), its columns and tokens, and the wave sizes that use it.
struct Instruction {
  const char* name;
  int wave, columns, tokens;
  int groups;  ///< lanes that share a row of the first factor
};
constexpr Instruction kInstructions[] = {{"Mfma%Tile", 64, 16, 16, 4},
                                         {"Wmma%Gfx11Tile", 32, 16, 16, 1},
                                         {"Wmma%Gfx12Tile", 32, 16, 16, 2},
                                         {"Mma%Tile", 32, 16, 8, 4}};
// Waves per block and tiles per wave. The columns of a block are a multiple of 32, the tokens of a wave a multiple of
// 16, or 8 where a block is as wide as an instruction.
struct Cut {
  int waves_down, waves_across, tiles_down, tokens;  ///< tokens per wave
  int together;                                      ///< tokens of an output tile
  int slabs, stages;                                 ///< the ring; with Mma tiles its copies are asynchronous
  int splits;                                        ///< blocks that share k
  int ahead = 0;  ///< MatmulStrips: steps of weights that are under way; 0: MatmulTiles
};
constexpr Cut kCuts[] = {{2, 2, 1, 16, 16, 1, 2, 1}, {1, 1, 2, 32, 16, 2, 2, 1}, {1, 2, 4, 16, 32, 1, 4, 1},
                         {4, 1, 1, 48, 48, 2, 3, 1}, {2, 2, 1, 32, 32, 1, 3, 2}, {1, 2, 2, 16, 16, 2, 2, 4}};
constexpr Cut kStripCuts[] = {{4, 1, 1, 16, 16, 4, 2, 1, 1}, {2, 1, 2, 32, 32, 4, 2, 1, 2},
                              {2, 1, 1, 64, 32, 2, 3, 1, 2}, {4, 1, 2, 48, 16, 4, 3, 2, 3},
                              {1, 1, 2, 32, 16, 2, 2, 4, 1}, {2, 1, 1, 16, 16, 8, 2, 1, 1},
                              {4, 1, 1, 8, 8, 4, 2, 1, 2},   {2, 1, 2, 8, 8, 4, 3, 2, 1}};
struct Tokens {
  int total, real;
};
constexpr Tokens kTokens[] = {{32, 32}, {48, 33}, {16, 1}, {128, 65}, {112, 112}, {8, 8}, {8, 3}, {4, 4}};
constexpr int kColumns[] = {1, 17, 96, 160}, kDepths[] = {32, 96, 256, 768}, kF16[] = {0, 1};
constexpr DType kTypes[] = {
    DType::kQ8_0,    DType::kQ4_0,  DType::kQ4_1,  DType::kQ4_K,  DType::kQ5_K,    DType::kQ6_K,   DType::kQ2_K,
    DType::kQ3_K,    DType::kQ5_0,  DType::kQ5_1,  DType::kTQ2_0, DType::kIQ4_NL,  DType::kIQ4_XS, DType::kMXFP4,
    DType::kNVFP4,   DType::kQ2_0,  DType::kIQ1_S, DType::kIQ1_M, DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S,
    DType::kIQ3_XXS, DType::kIQ3_S, DType::kTQ1_0, DType::kQ1_0,  DType::kF16,     DType::kBF16};

/// Types whose units have 8, 16 and 32 columns: what a cut depends on. Each type's own is how a unit is loaded and
/// becomes numbers, for which one cut is enough.
constexpr DType kUnitTypes[] = {DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kF16, DType::kBF16};

struct TilesCase {
  DType type;
  int n, k;
  Tokens tokens;
  Cut cut;
  MatmulKind kind;
  Instruction instruction;
  bool f16;  ///< the tile's numbers
  [[nodiscard]] DType numbers() const { return !f16 ? DType::kBF16 : is_float(type) ? DType::kF16 : DType::kF16A; }
  [[nodiscard]] int rows() const { return cut.waves_down * cut.tiles_down * instruction.columns; }
  [[nodiscard]] int block_tokens() const { return cut.waves_across * cut.tokens; }
  [[nodiscard]] int tiles() const {
    return (n + rows() - 1) / rows() * ((tokens.total + block_tokens() - 1) / block_tokens());
  }
  [[nodiscard]] MatmulProblem problem() const {
    const int sums = cut.splits > 1 ? tiles() * cut.splits * rows() * block_tokens() : 0;
    const bool totals = kind == MatmulKind::kResidual && k != 256;
    const int token_tiles = (tokens.total + block_tokens() - 1) / block_tokens();
    return {type, n, k, tokens.total, tokens.real, kind, numbers(), 1, tiles() + token_tiles, sums, totals};
  }
  [[nodiscard]] std::string tile() const {
    std::string name(instruction.name);
    return name.replace(name.find('%'), 1, f16 ? "F16" : "Bf16");
  }
};

WaveText text_of(const TilesCase& c) {
  codegen::KernelText text{.header = "kernels/gpu/matmul_tiles.h",
                           .kernel = "MatmulTiles",
                           .defaults = "TilesDefaults",
                           .before = epilogue_of(c.problem())};
  text.config.use("Weight", weight_text(c.type, c.n, c.k))
      .use("Epilogue", "gpu::Epilogue")
      .use("Tile", c.tile())
      .number("kTokensTotal", c.tokens.total)
      .number("kWavesDown", c.cut.waves_down)
      .number("kWavesAcross", c.cut.waves_across)
      .number("kTilesDown", c.cut.tiles_down)
      .number("kTilesAcross", c.cut.tokens / c.instruction.tokens)
      .number("kSlabs", c.cut.slabs)
      .number("kStages", c.cut.stages)
      .number("kTokensTogether", c.cut.together)
      .number("kSplits", c.cut.splits);
  if (c.cut.ahead > 0) {
    text.header = "kernels/gpu/matmul_strips.h";
    text.kernel = "MatmulStrips";
    text.defaults = "StripsDefaults";
    text.config.number("kAhead", c.cut.ahead);
  }
  text.blocks = c.tiles() * c.cut.splits;
  text.threads = c.cut.waves_down * c.cut.waves_across * c.instruction.wave;
  return {c.instruction.wave, std::move(text), c.instruction.tokens == 8 ? "sm_90" : nullptr};
}

/// Checks the cases that pairwise selection takes of those that `fits` allows.
template <class Fits>
void check_cuts(std::span<const DType> types, std::span<const Cut> cuts, Fits&& fits) {
  const Choice<8> sizes{
      static_cast<int>(types.size()), std::size(kColumns),     std::size(kDepths),       std::size(kTokens),
      static_cast<int>(cuts.size()),  std::size(kMatmulKinds), std::size(kInstructions), std::size(kF16)};
  const auto case_of = [&](const Choice<8>& at) {
    return TilesCase{types[at[0]], kColumns[at[1]],     kDepths[at[2]],       kTokens[at[3]],
                     cuts[at[4]],  kMatmulKinds[at[5]], kInstructions[at[6]], kF16[at[7]] == 1};
  };
  std::vector<TilesCase> cases;
  for (const auto& choice : cases_of(sizes, [&](const Choice<8>& at) {
         const auto c = case_of(at);
         return has_rows_of(c.type, c.k) && c.k % (c.cut.slabs * c.cut.splits * 32) == 0 &&
                (!is_float(c.type) || c.f16 == (c.type == DType::kF16)) &&
                (c.kind != MatmulKind::kGlu || c.n % 32 == 0) && fits(c);
       }))
    cases.push_back(case_of(choice));
  check_cases(cases, text_of, [](const TilesCase& c, const Kernel& kernel) {
    INFO(c.tile() << ", waves " << c.cut.waves_down << 'x' << c.cut.waves_across << ", slabs " << c.cut.slabs
                  << ", stages " << c.cut.stages << ", splits " << c.cut.splits << ", ahead " << c.cut.ahead);
    check_matmul(c.problem(), kernel);
  });
}

/// One shape by the instructions of two vendors, which have different waves.
bool is_of_all_types(const TilesCase& c) {
  return c.n == 96 && c.k == 256 && c.tokens.total == 32 && c.kind == MatmulKind::kStore && c.instruction.groups == 4;
}
bool fits_strips(const TilesCase& c) {
  const auto unit = c.k / static_cast<int>(quant::planes_units(c.type, static_cast<std::size_t>(c.k)));
  const int step = c.cut.slabs * 32;
  return step % (c.instruction.groups * unit) == 0 && c.cut.waves_down * c.instruction.wave % (step / 8) == 0 &&
         c.cut.tokens % c.instruction.tokens == 0;
}

}  // namespace

TEST_CASE("matmul by matrix instructions gives the products for all shapes and tiles") {
  check_cuts(kUnitTypes, kCuts, [](const TilesCase& c) { return c.tokens.total >= 16; });
}

TEST_CASE("matmul by matrix instructions gives the products for all types") {
  check_cuts(kTypes, std::span(kCuts).first(1), is_of_all_types);
}

TEST_CASE("matmul with weights straight to registers gives the products for all shapes and strips") {
  check_cuts(kUnitTypes, kStripCuts, fits_strips);
}

TEST_CASE("matmul with weights straight to registers gives the products for all types") {
  check_cuts(kTypes, std::span(kStripCuts).first(1),
             [](const TilesCase& c) { return fits_strips(c) && is_of_all_types(c); });
}
