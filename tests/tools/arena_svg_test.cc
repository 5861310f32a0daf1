// The arena's picture: what is drawn where, and that it is exactly the plan's arena.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "codegen/reschedule.h"
#include "runtime/plan/step.h"
#include "support/error.h"
#include "tests/e2e/tiny_model.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"
#include "tools/arena_svg.h"
#include "tools/inspect_arena.h"
#include "tools/model_file.h"

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
  return compile_model(file, model, std::span(&target, 1), options);
}

ErrorCode code_of(const plan::PlanT& plan, const std::optional<std::string>& variant = {}) {
  return tests::code_of([&] { (void)arena_picture(plan, variant); });
}

}  // namespace

TEST_CASE("a box lies at its steps and offset") {
  const auto text = arena_svg(two_boxes());
  INFO(text);
  // Steps of 40 px from x 84; 128 bytes are the 480 px above y 572.
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

TEST_CASE("the picture is the plan's arena: sizes, no two boxes at one place, and filled up to its peak") {
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

TEST_CASE("a plan whose steps are not those of its graph is refused") {
  const auto made = [] { return compile("cpu-generic", {.context = 128}); };
  auto plan = made();
  CHECK(code_of(plan, "decode9") == ErrorCode::kUsage);
  auto& variant = *plan.programs[0]->variants[0];
  auto& step = *variant.steps.back();
  SECTION("a step reads beyond what lives") {
    step.operands.push_back(plan::operand_at(plan::Space::Arena, 0, std::uint64_t{1} << 40));
  }
  SECTION("a step does something else") {
    step.label = "another";
  }
  SECTION("a step is gone") {
    variant.steps.pop_back();
  }
  SECTION("a step is null") {
    variant.steps.back() = nullptr;
  }
  SECTION("the arena is larger") {
    variant.arena_bytes += 64;
  }
  SECTION("no variants") {
    plan.programs[0]->variants.clear();
  }
  SECTION("other options") {
    plan.programs[0]->options += " speed=9";
  }
  SECTION("no graph") {
    plan.graph = "abc";
  }
  SECTION("an absurd context") {
    plan.programs[0]->context = std::int64_t{1} << 60;
  }
  SECTION("no program") {
    plan.programs.clear();
  }
  CHECK(code_of(plan) == ErrorCode::kPlan);
}

TEST_CASE("a plan for embeddings is refused where its variants for them are not those of its graph") {
  auto plan = compile("cpu-generic", {.context = 128, .hidden = true});
  auto& variants = plan.programs[0]->variants;
  auto& last = *variants.back();
  REQUIRE(last.hidden_width > 0);
  REQUIRE_NOTHROW(arena_picture(plan, last.name));
  SECTION("a step does something else") {
    last.steps.front()->label = "another";
  }
  SECTION("a step reads beyond what lives") {
    last.steps.back()->operands.push_back(plan::operand_at(plan::Space::Arena, 0, std::uint64_t{1} << 40));
  }
  SECTION("it is gone") {
    variants.pop_back();
  }
  SECTION("it comes first") {
    std::ranges::rotate(variants, variants.end() - 1);
  }
  SECTION("it says that it gives logits") {
    last.hidden_width = 0;
  }
  SECTION("another says that it gives hidden rows") {
    variants.front()->hidden_width = last.hidden_width;
  }
  SECTION("there is one more") {
    variants.push_back(std::make_unique<plan::VariantT>(last));
  }
  SECTION("its options do not ask for it") {
    plan.programs[0]->options = codegen::options_text({.context = 128});
  }
  CHECK(code_of(plan) == ErrorCode::kPlan);
}

TEST_CASE("options come back as they were written") {
  for (const codegen::CompileOptions& options :
       {codegen::CompileOptions{.context = 128}, codegen::CompileOptions{.context = 1, .batch_max = 4, .skip = {"a"}},
        codegen::CompileOptions{.context = 7, .skip = {"a", "b"}, .hidden = true, .tune = "rows=4,8x8:units=2"}}) {
    plan::ProgramT program;
    program.options = codegen::options_text(options);
    program.context = options.context;
    program.batch_max = options.batch_max;
    const auto back = codegen::options_of(program);
    CHECK(back.skip == options.skip);
    CHECK(back.tune == options.tune);
    CHECK(back.hidden == options.hidden);
  }
}

}  // namespace forge::tools::test
