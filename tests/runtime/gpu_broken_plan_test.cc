// The GPU executor refuses plans whose parts contradict each other, before it loads anything.

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>

#include "kernels/quant/dtype.h"
#include "runtime/plan/gpu_io.h"
#include "runtime/plan/step.h"
#include "support/error.h"
#include "tests/runtime/gpu_model.h"

namespace forge {
namespace {

constexpr auto kF16 = static_cast<std::uint8_t>(DType::kF16);
constexpr auto kFp8 = static_cast<std::uint8_t>(DType::kFp8);

using test::error_line;
using test::GpuModel;

}  // namespace

TEST_CASE("a broken program is refused, naming the step") {
  struct Case {
    const char* says;
    void (*breaks)(plan::ProgramT&);
  };
  using plan::Space;
  const Case cases[] = {
      {"it is for 'gfx1100'", [](auto& p) { p.target = "gfx1100"; }},
      {"extends past its block",
       [](auto& p) { p.variants[0]->steps[0]->operands[5] = plan::operand_at(Space::Weights, 0, 1 << 20); }},
      {"extends past its block",
       [](auto& p) { p.variants[0]->steps[0]->operands[0] = plan::operand_at(Space::Arena, 0, 1024); }},
      {"extends past its block",
       [](auto& p) { p.variants[0]->steps[0]->operands[0] = plan::operand_at(Space::Constants, 0, 12); }},
      {"extends past its block",
       [](auto& p) { p.variants[0]->steps[0]->operands[0] = plan::operand_at(Space::Counters, 0, 260); }},
      {"extends past its block",
       [](auto& p) { p.variants[0]->steps[0]->operands[0] = plan::operand_at(Space::Output, 0, 1024); }},
      {"extends past its block",
       [](auto& p) { p.variants[0]->steps[0]->operands[0] = plan::operand_at(Space::Arena, 0, 2); }},
      {"KV group", [](auto& p) { p.variants[0]->steps[0]->operands[6] = plan::operand_at(Space::Kv, 2, 0); }},
      {"KV layer", [](auto& p) { p.variants[0]->steps[0]->operands[6] = plan::operand_at(Space::Kv, 1, 4); }},
      {"part 1 of 2", [](auto& p) { p.rank = 1, p.world = 2; }},
      {"takes embeddings", [](auto& p) { p.input_width = 8; }},
      {"unknown step input",
       [](auto& p) { p.variants[0]->steps[0]->operands[0] = plan::operand_at(Space::Input, 6, 0); }},
      {"a step input", [](auto& p) { p.variants[0]->steps[0]->operands[0] = plan::operand_at(Space::Input, 0, 4); }},
      {"cannot use", [](auto& p) { p.variants[0]->steps[0]->operands[0] = plan::operand_at(Space::File, 0, 0); }},
      {"cannot use",
       [](auto& p) { p.variants[0]->steps[0]->operands[0] = plan::operand_at(static_cast<Space>(77), 0, 0); }},
      {"step 'store'", [](auto& p) { p.variants[0]->steps[0]->body.AsLaunch()->blocks = 0; }},
      {"blocks of", [](auto& p) { p.variants[0]->steps[0]->body.AsLaunch()->threads = 1025; }},
      {"bytes of LDS", [](auto& p) { p.variants[0]->steps[0]->body.AsLaunch()->lds_bytes = 65537; }},
      {"not a kernel launch", [](auto& p) { p.variants[0]->steps[0]->body.Reset(); }},
      {"arguments", [](auto& p) { p.variants[0]->steps[0]->body.AsLaunch()->constants.resize(513); }},
      {"cannot run the plan's program", [](auto& p) { p.facts->on_host = true; }},
      {"facts about target", [](auto& p) { p.facts.reset(); }},
      {"code object 99 does not exist", [](auto& p) { p.variants[0]->steps[0]->body.AsLaunch()->code = 99; }},
      {"a step is missing", [](auto& p) { p.variants[0]->sample_steps[0].reset(); }},
      {"a variant of the plan is missing", [](auto& p) { p.variants[1].reset(); }},
      {"no variants", [](auto& p) { p.variants.clear(); }},
      {"bounds are out", [](auto& p) { p.variants[0]->bounds = plan::Bounds(0, 1, 1, 16); }},
      {"bounds are out", [](auto& p) { p.variants[0]->bounds = plan::Bounds(1, 1, 1, std::int64_t{1} << 40); }},
      {"no values of its own", [](auto& p) { p.kv_groups[1] = plan::KvGroup(2, 1, 4, 4, 4, 0, 32, kF16, true); }},
      {"recurrent state", [](auto& p) { p.recurrent_groups.emplace_back(1, 63); }},
      {"recurrent state", [](auto& p) { p.recurrent_groups.emplace_back(0, 64); }},
      {"is out of range", [](auto& p) { p.weights_bytes = -1; }},
      {"is out of range", [](auto& p) { p.arena_bytes = std::int64_t{1} << 60; }},
      {"is out of range", [](auto& p) { p.counter_bytes = -1; }},
      {"distinct names", [](auto& p) { p.code_objects[1]->name = "store"; }},
      {"distinct names", [](auto& p) { p.code_objects[1].reset(); }},
  };
  const auto refused = [](const char* says, auto&& breaks) {
    const GpuModel model;
    breaks(*model.program);
    const auto driver = model.driver();
    CHECK_THAT(error_line([&] { (void)model.open(driver); }, ErrorCode::kPlan), Catch::Contains(says));
    CHECK(model.control->counts().held() == 0);
  };
  for (const auto& [says, breaks] : cases) refused(says, breaks);
  // One byte too few, bytes of other blocks, of other values, or of rows that are keys and values at once; no element
  // type. In fp8: rows that are no whole loads of a lane, latents, and bytes of f16.
  using Group = plan::KvGroup;
  for (const auto& group : {Group(2, 1, 4, 4, 4, 0, 63, kF16, false), Group(2, 1, 4, 4, 8, 0, 128, kF16, false),
                            Group(2, 1, 4, 2, 4, 0, 64, kF16, false), Group(2, 1, 4, 4, 4, 0, 64, kF16, true),
                            Group(2, 1, 4, 4, 4, 0, 64, 0, false), Group(2, 1, 24, 24, 4, 0, 192, kFp8, false),
                            Group(2, 1, 32, 32, 4, 0, 128, kFp8, true), Group(2, 1, 32, 32, 4, 0, 512, kFp8, false)})
    refused("KV geometry", [&](auto& p) { p.kv_groups[1] = group; });
  const GpuModel model;
  model.program->code_objects[1]->bytes = {1, 2, 3};
  const auto driver = model.driver();
  CHECK_THAT(error_line([&] { (void)model.open(driver); }, ErrorCode::kDevice), Catch::Contains("logits"));
}

}  // namespace forge
