// The SVG picture of a plan's arena and the DOT graph of its steps: positions and labels of the boxes, and that they
// show exactly the plan's buffers.
#include <fmt/format.h>
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "codegen/compile.h"
#include "runtime/plan/step.h"
#include "session/model_file.h"
#include "support/error.h"
#include "tests/e2e/tiny_model.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"
#include "tools/inspect/inspect_arena.h"
#include "tools/viz/arena_svg.h"
#include "tools/viz/plan_dot.h"

namespace forge::tools::test {
namespace {

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

ArenaPicture two_boxes() {
  return {.title = "Arena of <a & b>\n",
          .layers = {-1, 0, 0, 1},
          .boxes = {{.name = "%1 add", .details = "f32[T,4]\nmade by x<y", .bytes = 64, .first = 0, .last = 2},
                    {.kind = ArenaBox::Kind::kScratch, .name = "s", .offset = 64, .bytes = 64, .first = 1, .last = 1}},
          .peak_bytes = 128,
          .bound_bytes = 64};
}

plan::PlanT compile(std::string target, const codegen::CompileOptions& options) {
  const tests::TempDir folder;
  const auto model = folder.write("tiny.gguf", tests::tiny_gguf({}));
  const auto file = loader::Gguf::open(model);
  return session::compile_model(file, std::span(&target, 1), options);
}

ErrorCode code_of(const plan::PlanT& plan, const std::optional<std::string>& variant = {}) {
  return tests::code_of([&] { (void)arena_picture(plan, variant); });
}

}  // namespace

TEST_CASE("a box is drawn at its steps and its offset") {
  const auto text = arena_svg(two_boxes());
  INFO(text);
  // A step is 40 px wide, from x = 84. 128 bytes are the 480 px above y = 572.
  CHECK(count(text, R"(<rect x="84.0" y="332.00" width="120.0" height="240.00" class="box value">)") == 1);
  CHECK(count(text, R"(<rect x="124.0" y="92.00" width="40.0" height="240.00" class="box scratch">)") == 1);
  CHECK(count(text, "<title>%1 add\n64 bytes (64 B) at offset 0\nsteps 0 to 2\nf32[T,4]\nmade by x&lt;y</title>") == 1);
  CHECK(count(text, "at offset 64\nstep 1</title>") == 1);
  CHECK(count(text, R"(y1="92.0" x2="844.0" y2="92.0" class="peak"/>)") == 1);
  CHECK(count(text, R"(y1="332.0" x2="844.0" y2="332.0" class="bound"/>)") == 1);
  CHECK(count(text, R"(<title>Arena of &lt;a &amp; b&gt;\x0a</title>)") == 1);
  CHECK(text == arena_svg(two_boxes()));
  CHECK(count(arena_svg({}), "</svg>") == 1);
}

TEST_CASE("the picture is the plan's arena: its sizes, no overlapping boxes, filled up to the peak") {
  for (const auto* target : {"cpu-generic", "cpu-x86-64-v4-vnni"}) {
    const auto plan =
        compile(target, {.context = 128, .batch_max = 2, .skip = {"fuse_glu", "merge_qkv"}, .hidden = true});
    REQUIRE(std::ranges::any_of(plan.programs[0]->variants, [](const auto& one) { return one->hidden_width > 0; }));
    for (const auto& variant : plan.programs[0]->variants) {
      const auto picture = arena_picture(plan, variant->name);
      INFO(target << " " << variant->name);
      CHECK(picture.layers.size() == variant->steps.size());
      CHECK(picture.peak_bytes == variant->arena_bytes);
      CHECK(picture.bound_bytes == variant->arena_bound_bytes);
      CHECK(picture.boxes.size() > variant->steps.size() / 2);
      std::int64_t top = 0;
      for (const auto& a : picture.boxes) {
        top = std::max(top, a.offset + a.bytes);
        for (const auto& b : picture.boxes) {
          if (&a == &b) continue;
          const bool in_time = a.first <= b.last && b.first <= a.last;
          CHECK_FALSE((in_time && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes));
        }
      }
      CHECK(top <= picture.peak_bytes);
      CHECK(top > picture.peak_bytes - 64);  // buffers are aligned to 64 bytes
    }
  }
}

TEST_CASE("a plan whose buffers lie outside its arena or its steps is refused") {
  struct Damage {
    const char* what;
    std::function<void(plan::PlanT&, plan::VariantT&, plan::BufferT&)>
        apply;  ///< applied to the last buffer of the plan's first variant
  };
  const std::vector<Damage> damages{
      {"beyond the arena",
       [](auto&, auto& variant, auto& buffer) {
         buffer.offset = variant.arena_bytes;
         buffer.bytes = 1;
       }},
      {"so long that its end overflows",
       [](auto&, auto&, auto& buffer) { buffer.bytes = std::numeric_limits<std::int64_t>::max(); }},
      {"before the arena", [](auto&, auto&, auto& buffer) { buffer.offset = -64; }},
      {"it ends before it begins", [](auto&, auto&, auto& buffer) { buffer.first = buffer.last + 1; }},
      {"it outlives the steps",
       [](auto&, auto& variant, auto& buffer) { buffer.last = static_cast<std::uint32_t>(variant.steps.size()); }},
      {"a value is made by no step",
       [](auto&, auto& variant, auto&) { variant.buffers.front()->values.front()->step = 1 << 30; }},
      {"a value is null", [](auto&, auto& variant, auto&) { variant.buffers.front()->values.front() = nullptr; }},
      {"a buffer is null", [](auto&, auto& variant, auto&) { variant.buffers.front() = nullptr; }},
      {"a step is null", [](auto&, auto& variant, auto&) { variant.steps.back() = nullptr; }},
      {"no steps", [](auto&, auto& variant, auto&) { variant.steps.clear(); }},
      {"no variants", [](auto& plan, auto&, auto&) { plan.programs[0]->variants.clear(); }},
      {"no program", [](auto& plan, auto&, auto&) { plan.programs.clear(); }},
  };
  const auto sound = compile("cpu-generic", {.context = 128, .hidden = true});
  CHECK(code_of(sound, "decode9") == ErrorCode::kUsage);
  REQUIRE_NOTHROW(arena_picture(sound, {}));
  for (const auto& damage : damages) {
    CAPTURE(damage.what);
    auto plan = sound;
    auto& variant = *plan.programs[0]->variants[0];
    damage.apply(plan, variant, *variant.buffers.back());
    CHECK(code_of(plan) == ErrorCode::kPlan);
  }
}

TEST_CASE("every arena operand of a step lies in a buffer that is live at that step") {
  const auto plan = compile("cpu-generic", {.context = 128, .batch_max = 2, .hidden = true});
  for (const auto& variant : plan.programs[0]->variants) {
    INFO(variant->name);
    for (std::size_t i = 0; i < variant->steps.size(); ++i)
      for (const auto& operand : variant->steps[i]->operands) {
        if (operand.space() != plan::Space::Arena) continue;
        CHECK(std::ranges::any_of(variant->buffers, [&](const auto& buffer) {
          const auto offset = static_cast<std::int64_t>(operand.offset());
          return buffer->first <= i && i <= buffer->last && buffer->offset <= offset &&
                 offset < buffer->offset + buffer->bytes;
        }));
      }
  }
}

TEST_CASE("the DOT graph of a plan has its steps, and edges from producer to consumer") {
  const auto plan = compile("cpu-generic", {.context = 128});
  const auto& variant = *plan.programs[0]->variants[0];
  const auto all = plan_dot(variant, kAllLayers), one = plan_dot(variant, 1);
  CHECK(count(all, "fillcolor=\"#d6e4f7\"") > count(one, "fillcolor=\"#d6e4f7\""));
  for (std::size_t i = 0; i < variant.steps.size(); ++i)
    CHECK(count(all, fmt::format("    s{} [label=\"step {}: ", i, i)) == 1);
  CHECK(count(all, "style=\"rounded,dashed\"") == 0);
  CHECK(count(one, "style=\"rounded,dashed\"") >= 1);  // the producer of the layer's input
  CHECK(count(one, "arena 0x") >= 4);
  // Steps of a chain: each reads the result of the one before.
  std::size_t linked = 0;
  for (std::size_t i = 1; i < variant.steps.size(); ++i) linked += count(all, fmt::format("  s{} -> s{} ", i - 1, i));
  CHECK(linked >= variant.steps.size() / 2);
}

TEST_CASE("compile options are read from a plan as they were written") {
  for (const codegen::CompileOptions& options :
       {codegen::CompileOptions{.context = 128},
        codegen::CompileOptions{.context = 64, .batch_max = 4, .skip = {"fuse_glu"}},
        codegen::CompileOptions{
            .context = 64, .skip = {"fuse_glu", "merge_qkv"}, .hidden = true, .tune = "rows=4,8x8:units=2"}}) {
    const auto plan = compile("cpu-generic", options);
    const auto back = codegen::options_of(*plan.programs[0]);
    CHECK(codegen::options_text(back) == codegen::options_text(options));
    CHECK(back.skip == options.skip);
    CHECK(back.tune == options.tune);
    CHECK(back.hidden == options.hidden);
  }
  plan::ProgramT program;
  program.options = std::make_unique<plan::OptionsT>();
  program.options->kv_type = static_cast<std::uint8_t>(DType::kQ8_0);
  CHECK(codegen::options_of(program).kv_type == DType::kQ8_0);
  program.options->kv_type = 250;
  CHECK(tests::code_of([&] { (void)codegen::options_of(program); }) == ErrorCode::kPlan);
}

}  // namespace forge::tools::test
