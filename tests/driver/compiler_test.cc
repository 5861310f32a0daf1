// The vendors' run-time compilers compile and report source errors, where they are installed; no GPU is needed. Only
// targets that every release supports are used, because hipRTC 5.2 aborts the process for others.
#include <catch2/catch.hpp>
#include <optional>

#include "runtime/driver/driver.h"
#include "tests/support/skip.h"

namespace forge::driver::test {

namespace {

constexpr const char* kGood = R"(
extern "C" __global__ void twice(float* data) { data[threadIdx.x] *= 2.0f; }
)";
constexpr const char* kBad = "extern \"C\" __global__ void twice(float* data) { data[0] = undeclared_thing; }\n";

void check_compiler(Vendor vendor, const std::string& option) {
  std::optional<RuntimeCompiler> compiler;
  try {
    compiler.emplace(RuntimeCompiler::open(vendor));
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kDevice);
    REQUIRE(error.line().find("there is no ") != std::string::npos);  // otherwise it is installed but does not load
    tests::skip_case(error.line());
    return;
  }
  INFO(compiler->library() << " " << compiler->version());
  CHECK(compiler->version() != "unknown");
  const std::vector<std::string> options{option};
  const CompileResult good = compiler->compile(kGood, "twice.hip", options);
  INFO(good.failure << good.log);
  REQUIRE(good.ok());
  REQUIRE(good.code.size() > 64);
  CHECK(std::string(reinterpret_cast<const char*>(good.code.data()) + 1, 3) == "ELF");

  const CompileResult bad = compiler->compile(kBad, "named_here.hip", options);
  CHECK_FALSE(bad.ok());
  CHECK(bad.code.empty());
  CHECK(bad.failure.find("CompileProgram") != std::string::npos);
  CHECK(bad.log.find("undeclared_thing") != std::string::npos);
  CHECK(bad.log.find('\0') == std::string::npos);
}

}  // namespace

TEST_CASE("hipRTC compiles to a code object, and reports source errors") {
  check_compiler(Vendor::kAmd, "--offload-arch=gfx1030");
}

TEST_CASE("NVRTC compiles to a cubin, and reports source errors") {
  check_compiler(Vendor::kNvidia, "--gpu-architecture=sm_90");
}

TEST_CASE("the null driver has no compiler") {
  CHECK_THROWS_AS(RuntimeCompiler::open(Vendor::kNull), Error);
}

}  // namespace forge::driver::test
