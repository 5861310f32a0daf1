// The report of forge-inspect about a GPU program's code objects: registers, shared memory and spills as text and as
// JSON.
#include <catch2/catch.hpp>

#include "tools/inspect/inspect_kernels.h"

namespace forge::tools::test {
namespace {

plan::ProgramT gpu_program() {
  plan::ProgramT program;
  program.target = "gfx1100";
  auto matmul = std::make_unique<plan::CodeObjectT>();
  matmul->name = "matmul_q4";
  matmul->bytes.assign(4096, 1);
  matmul->registers = 96;
  matmul->scalar_registers = 30;
  matmul->spill_bytes = 0;
  matmul->lds_bytes = 2048;
  matmul->occupancy = 24;
  matmul->compiler = "clang 19.1.7";
  auto unknown = std::make_unique<plan::CodeObjectT>();
  unknown->name = "bad\nname";
  unknown->compiler = "clang 19.1.7";
  program.code_objects.push_back(std::move(matmul));
  program.code_objects.push_back(std::move(unknown));
  program.code_objects.push_back(nullptr);
  auto variant = std::make_unique<plan::VariantT>();
  for (int i = 0; i < 3; ++i) {
    variant->steps.push_back(std::make_unique<plan::StepT>());
    variant->steps.back()->body.Set(plan::LaunchT());  // of code object 0
  }
  variant->sample_steps.push_back(std::make_unique<plan::StepT>());
  variant->sample_steps.back()->body.Set(plan::LaunchT());
  program.variants.push_back(std::move(variant));
  return program;
}

}  // namespace

TEST_CASE("each code object has a line with its resources") {
  const std::string text = code_objects_text(gpu_program());
  INFO(text);
  CHECK(text.find("kernels: 2 code objects of 4.0 KiB, by clang 19.1.7\n") != std::string::npos);
  CHECK(text.find("   96      30       0 B   2.0 KiB  24/32   4.0 KiB     4  matmul_q4\n") != std::string::npos);
  CHECK(text.find("    -       -         -         -      -       0 B     0  bad\\x0aname\n") != std::string::npos);
  CHECK(code_objects_text({}).empty());
}

TEST_CASE("JSON output has the resources as numbers") {
  JsonWriter json;
  json.open('{');
  code_objects_json(json, gpu_program());
  const std::string text = json.close().take();
  INFO(text);
  for (const char* part : {"\"name\": \"matmul_q4\"", "\"registers\": 96", "\"occupancy\": 24", "\"steps\": 4",
                           "\"spill_bytes\": -1", "\"compiler\": \"clang 19.1.7\""})
    CHECK(text.find(part) != std::string::npos);
}

}  // namespace forge::tools::test
