// Proves that a deployment needs the runtime only: replay_only replays a plan without a compiler and contains none of
// its symbols.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "runtime/plan/plan_file.h"
#include "tests/e2e/tiny_model.h"
#include "tests/support/temp_dir.h"

using namespace forge;
using namespace forge::tests;

namespace {

std::string output_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  REQUIRE(pclose(pipe) == 0);
  return text;
}

std::string program() {
  const char* path = std::getenv("FORGE_REPLAY_ONLY");
  REQUIRE(path != nullptr);
  return path;
}

}  // namespace

TEST_CASE("a program with the runtime alone replays a ready plan") {
  const TinyShape shape{.dtype = DType::kQ4_0};
  const TinyModel model(shape);
  const TempDir dir;
  const auto model_path = dir.write("tiny.gguf", tiny_gguf(shape));
  const std::string targets[] = {codegen::host_target()};
  plan::write_plan(dir.file("tiny.plan"), codegen::compile_plan(model.portable().graph, model.file(), targets,
                                                                {.context = 64, .batch_max = 1}));
  const auto ids = random_ids(12, model.file().vocab, 9);
  std::string command = program() + " " + dir.file("tiny.plan").string() + " " + model_path.string(), expected;
  for (const auto id : ids) command += " " + std::to_string(id);
  const auto logits = run_alone(*model.open(), ids, 1, {0});
  const auto vocab = static_cast<std::ptrdiff_t>(model.file().vocab);
  for (std::ptrdiff_t i = 0; i < static_cast<std::ptrdiff_t>(ids.size()); ++i) {
    const auto row = logits.begin() + i * vocab;
    expected += std::to_string(std::max_element(row, row + vocab) - row) + "\n";
  }
  CHECK(output_of(command) == expected);
}

TEST_CASE("replay_only contains no symbol of the compiler, passes, graph or loader") {
  const auto symbols = output_of("nm -C " + program());
  CHECK(symbols.find("forge::runtime::CpuExecutor") != std::string::npos);
  CHECK(symbols.find("forge::runtime::GpuExecutor") != std::string::npos);
  for (const auto* room : {"forge::passes", "forge::codegen", "forge::ir", "forge::loader"}) {
    INFO(room);
    CHECK(symbols.find(room) == std::string::npos);
  }
}
