// Matmul by matrix instructions multiplies correctly: every weight type, shapes at the edges of rows, columns and
// tokens, the tile layouts of every vendor, simple and fused epilogues. The reference is in f64, on values rounded to
// BF16 or F16.

#include "tests/gpu_host/matmul_case.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {

// The tile layout (% stands for the type), its columns and tokens, and the wave sizes that use it.
struct Instruction {
  const char* name;
  int wave, columns, tokens;
};
constexpr Instruction kInstructions[] = {
    {"Mfma%Tile", 64, 16, 16}, {"Wmma%Gfx11Tile", 32, 16, 16}, {"Wmma%Gfx12Tile", 32, 16, 16}, {"Mma%Tile", 32, 16, 8}};
// Waves per block and tiles per wave. The columns of a block are a multiple of 32, the tokens of a wave a multiple of
// 16.
struct Cut {
  int waves_down, waves_across, tiles_down, tokens;  ///< tokens per wave
};
constexpr Cut kCuts[] = {{2, 2, 1, 16}, {1, 1, 2, 32}, {1, 2, 4, 16}, {4, 1, 1, 48}};
struct Tokens {
  int total, real;
};
constexpr Tokens kTokens[] = {{32, 32}, {48, 33}, {16, 1}, {128, 65}, {112, 112}};
constexpr int kColumns[] = {1, 17, 96, 160}, kDepths[] = {32, 96, 256, 768}, kTerms[] = {1, 2};
constexpr DType kTypes[] = {
    DType::kQ8_0,    DType::kQ4_0,  DType::kQ4_1,  DType::kQ4_K,  DType::kQ5_K,    DType::kQ6_K,   DType::kQ2_K,
    DType::kQ3_K,    DType::kQ5_0,  DType::kQ5_1,  DType::kTQ2_0, DType::kIQ4_NL,  DType::kIQ4_XS, DType::kMXFP4,
    DType::kNVFP4,   DType::kQ2_0,  DType::kIQ1_S, DType::kIQ1_M, DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S,
    DType::kIQ3_XXS, DType::kIQ3_S, DType::kTQ1_0, DType::kQ1_0,  DType::kF16,     DType::kBF16};

struct TilesCase {
  DType type;
  int n, k;
  Tokens tokens;
  Cut cut;
  MatmulKind kind;
  Instruction instruction;
  int terms;
  [[nodiscard]] DType rounded() const { return type == DType::kF16 || terms == 2 ? DType::kF16 : DType::kBF16; }
  [[nodiscard]] MatmulProblem problem() const {
    return {type, n, k, tokens.total, tokens.real, kind, rounded(), terms};
  }
  [[nodiscard]] std::string tile() const {
    std::string name(instruction.name);
    return name.replace(name.find('%'), 1, rounded() == DType::kF16 ? "F16" : "Bf16");
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
      .number("kXTerms", c.terms)
      .number("kWavesDown", c.cut.waves_down)
      .number("kWavesAcross", c.cut.waves_across)
      .number("kTilesDown", c.cut.tiles_down)
      .number("kTilesAcross", c.cut.tokens / c.instruction.tokens);
  const int rows = c.cut.waves_down * c.cut.tiles_down * c.instruction.columns,
            tokens = c.cut.waves_across * c.cut.tokens;
  text.blocks = (c.n + rows - 1) / rows * ((c.tokens.total + tokens - 1) / tokens);
  text.threads = c.cut.waves_down * c.cut.waves_across * c.instruction.wave;
  return {c.instruction.wave, std::move(text)};
}

}  // namespace

TEST_CASE("matmul by matrix instructions gives the products for all types, shapes and tiles") {
  const Choice<8> sizes{std::size(kTypes), std::size(kColumns),     std::size(kDepths),       std::size(kTokens),
                        std::size(kCuts),  std::size(kMatmulKinds), std::size(kInstructions), std::size(kTerms)};
  const auto case_of = [](const Choice<8>& at) {
    return TilesCase{kTypes[at[0]], kColumns[at[1]],     kDepths[at[2]],       kTokens[at[3]],
                     kCuts[at[4]],  kMatmulKinds[at[5]], kInstructions[at[6]], kTerms[at[7]]};
  };
  std::vector<TilesCase> cases;
  for (const auto& choice : cases_of(sizes, [&](const Choice<8>& at) {
         const auto c = case_of(at);
         return has_rows_of(c.type, c.k) && (c.terms == 1 || !is_float(c.type)) &&
                (c.kind != MatmulKind::kGlu || c.n % 32 == 0);
       }))
    cases.push_back(case_of(choice));
  check_cases(cases, text_of, [](const TilesCase& c, const Kernel& kernel) {
    INFO(c.tile() << ", waves " << c.cut.waves_down << 'x' << c.cut.waves_across);
    check_matmul(c.problem(), kernel);
  });
}
