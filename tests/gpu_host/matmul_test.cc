// The GEMV kernel multiplies correctly, compared with f64: every weight type, shapes at the edges of rows, columns and
// tokens, different work splits, simple and fused epilogues.

#include "tests/gpu_host/matmul_case.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {

// How a block splits its work. The columns of a block are a multiple of 16 for both wave sizes.
struct Cut {
  int waves, lanes, waves_per_row, rows_per_team, ahead;  ///< lanes 0: the wave size
  bool prefetch = false;
};
constexpr Cut kCuts[] = {{8, 32, 1, 2, 2}, {16, 0, 1, 1, 2, true}, {2, 4, 1, 1, 1},
                         {8, 0, 4, 8, 2},  {4, 8, 1, 1, 3},        {1, 2, 1, 1, 1, true}};
// Tokens per tile, rows in memory, and real tokens.
struct Rows {
  int tile, total, real;
};
constexpr Rows kRows[] = {{1, 1, 1}, {2, 2, 2}, {7, 7, 5}, {16, 16, 16}, {16, 32, 17}, {16, 32, 16}};
constexpr int kColumns[] = {1, 17, 96}, kDepths[] = {32, 96, 256, 2080, 2304}, kTerms[] = {1, 2};

struct MatmulCase {
  DType type;
  int n, k;
  Rows rows;
  Cut cut;
  MatmulKind kind;
  int wave, terms;
  [[nodiscard]] MatmulProblem problem() const { return {type, n, k, rows.total, rows.real, kind, DType::kF32, terms}; }
  [[nodiscard]] int block_rows() const {
    const int lanes = cut.lanes == 0 ? wave : cut.lanes;
    return cut.waves / cut.waves_per_row * (wave / lanes) * cut.rows_per_team;
  }
};

WaveText text_of(const MatmulCase& c) {
  codegen::KernelText text{.header = "kernels/gpu/matmul_rows.h",
                           .kernel = "MatmulRows",
                           .defaults = "MatmulDefaults",
                           .before = epilogue_of(c.problem())};
  text.config.use("Weight", weight_text(c.type, c.n, c.k))
      .use("Epilogue", "gpu::Epilogue")
      .number("kTokens", c.rows.tile)
      .number("kTokensTotal", c.rows.total)
      .number("kXTerms", c.terms)
      .number("kWaves", c.cut.waves)
      .number("kLanesPerRow", c.cut.lanes == 0 ? c.wave : c.cut.lanes)
      .number("kWavesPerRow", c.cut.waves_per_row)
      .number("kRowsPerTeam", c.cut.rows_per_team)
      .number("kUnitsAhead", c.cut.ahead)
      .number("kPrefetchBytes", c.cut.prefetch ? 256 : 0);
  text.blocks = (c.n + c.block_rows() - 1) / c.block_rows() * (c.rows.total / c.rows.tile);
  text.threads = c.cut.waves * c.wave;
  return {c.wave, std::move(text)};
}

}  // namespace

TEST_CASE("GEMV gives the products for all types, shapes and splits") {
  const Choice<8> sizes{std::size(kWeightTypes), std::size(kColumns),     std::size(kDepths), std::size(kRows),
                        std::size(kCuts),        std::size(kMatmulKinds), std::size(kWaves),  std::size(kTerms)};
  const auto case_of = [](const Choice<8>& at) {
    return MatmulCase{kWeightTypes[at[0]], kColumns[at[1]],     kDepths[at[2]], kRows[at[3]],
                      kCuts[at[4]],        kMatmulKinds[at[5]], kWaves[at[6]],  kTerms[at[7]]};
  };
  std::vector<MatmulCase> cases;
  for (const auto& choice : cases_of(sizes, [&](const Choice<8>& at) {
         const auto c = case_of(at);
         return has_rows_of(c.type, c.k) && (c.terms == 1 || !is_float(c.type)) &&
                (c.kind != MatmulKind::kGlu || (c.n % 32 == 0 && c.block_rows() % 32 == 0));
       }))
    cases.push_back(case_of(choice));
  check_cases(cases, text_of, [](const MatmulCase& c, const Kernel& kernel) {
    INFO("tiles of " << c.rows.tile << ", cut " << c.cut.waves << '/' << c.cut.lanes << ", wave " << c.wave);
    check_matmul(c.problem(), kernel);
  });
}
