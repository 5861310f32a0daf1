// The device headers embedded in the binary equal the source tree, and a source expands to one text without includes.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "codegen/gpu/source/sources.h"
#include "support/error.h"
#include "tests/support/error_of.h"

namespace forge::codegen::tests {
namespace {

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("the embedded device headers equal those of the source tree") {
  bool prelude = false;
  for (const auto& source : embedded_sources()) {
    INFO(source.path);
    prelude = prelude || source.path == "kernels/gpu/prelude/prelude.h";
    std::ifstream file(std::filesystem::path(FORGE_SOURCE_ROOT) / source.path, std::ios::binary);
    REQUIRE(file);
    CHECK(source.text == std::string(std::istreambuf_iterator<char>(file), {}));
  }
  CHECK(prelude);
}

TEST_CASE("expansion resolves every project include and takes each header once") {
  const std::string text = expand_source(
      "// first\n#include \"kernels/quant/q8_0.h\"\n  #  include \"kernels/quant/f16.h\"\n"
      "#include \"kernels/quant/q4_0.h\"\nint last;\n",
      "mine");
  CHECK(count(text, "#include \"") == 0);
  CHECK(count(text, "#pragma once") == 0);
  CHECK(count(text, "#line 1 \"kernels/quant/f16.h\"") == 1);
  CHECK(count(text, "#line 1 \"kernels/quant/portable.h\"") == 1);
  CHECK(text.starts_with("#line 1 \"mine\"\n// first\n"));
  CHECK(text.ends_with("#line 5 \"mine\"\nint last;\n"));
}

TEST_CASE("a header included only in another compiler's branch is also there for this compiler") {
  const std::string text = expand_source(
      "#if defined(A)\n#include \"kernels/quant/portable.h\"\n#else\n#include \"kernels/quant/portable.h\"\n#endif\n"
      "#include \"kernels/quant/portable.h\"\n#include \"kernels/quant/portable.h\"\n");
  // Once in each branch and once outside, each guarded by the macro that replaces #pragma once. The fourth include
  // directive adds nothing, since the third is unconditional.
  CHECK(count(text, "#line 1 \"kernels/quant/portable.h\"") == 3);
  CHECK(count(text, "#ifndef FORGE_ONCE_kernels_quant_portable_h") == 3);
  const std::string prelude = expand_source("#include \"kernels/gpu/prelude/prelude.h\"\n");
  CHECK(count(prelude, "#line 1 \"kernels/gpu/prelude/prelude_types.h\"") >= 2);
  CHECK(prelude.size() < 200'000);
}

TEST_CASE("other includes stay as they are") {
  const std::string text =
      expand_source("#include <cstdint>\nconst char* s = \"#include\";\n// #include \"x.h\"\nint a", "n");
  CHECK(text == "#line 1 \"n\"\n#include <cstdint>\nconst char* s = \"#include\";\n// #include \"x.h\"\nint a\n");
  CHECK(expand_source("", "n") == "#line 1 \"n\"\n");
}

TEST_CASE("a missing header is an error that names it and the file that includes it") {
  const auto line = forge::tests::error_of(
      [] { static_cast<void>(expand_source("#include \"kernels/gpu/absent.h\"\n", "mine")); }, ErrorCode::kInternal);
  CHECK(line.find("kernels/gpu/absent.h") != std::string::npos);
  CHECK(line.find("mine") != std::string::npos);
}

}  // namespace forge::codegen::tests
