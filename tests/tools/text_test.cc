// Small parts shared by the tools: options, JSON, files, memory checks and number formats.

#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <limits>

#include "session/memory_limit.h"
#include "session/prompt.h"
#include "support/error.h"
#include "support/json_text.h"
#include "support/os/atomic_file.h"
#include "support/os/console.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"
#include "tools/cli/options.h"
#include "tools/compile/compile_report.h"
#include "tools/run/prompt_input.h"
#include "tools/run/run_options.h"

namespace forge::tools {
namespace {

using tests::code_of;

template <std::size_t N>
bool parse(RunRequest& request, const std::array<const char*, N>& arguments) {
  return parse_run_options(static_cast<int>(N), arguments.data(), request);
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::size_t file_count(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

}  // namespace

TEST_CASE("forge-run's options are parsed into the right fields") {
  RunRequest request;
  REQUIRE(parse(request, std::array{"forge-run", "m.gguf", "-p", "-dashed text", "-n", "7", "--temp", "0.5", "--stop",
                                    "a", "--stop", "b", "-c", "99", "--seed", "5"}));
  CHECK(request.session.model.path == "m.gguf");
  CHECK(request.prompt.text == "-dashed text");
  CHECK(request.predict == 7);
  CHECK(request.temperature == 0.5F);
  CHECK(request.stops == std::vector<std::string>{"a", "b"});
  CHECK(request.session.model.context == 99);
  CHECK(request.seed == 5);
  CHECK_FALSE((request.top_k || request.top_p || request.min_p || request.repeat_penalty || request.repeat_window));
  RunRequest endless;
  REQUIRE(parse(endless, std::array{"forge-run", "m.gguf", "-n", "-1"}));
  CHECK(endless.predict == -1);
}

TEST_CASE("contradictory or invalid options are refused in one line") {
  const auto refused = [](auto... arguments) {
    RunRequest request;
    return code_of([&] { (void)parse(request, std::array{"forge-run", "m.gguf", arguments...}); }) == ErrorCode::kUsage;
  };
  CHECK(refused("--nonsense"));
  CHECK(refused("-n", "1x"));
  CHECK(refused("-n", "0x10"));
  CHECK(refused("-n", "-2"));
  CHECK(refused("--temp", "inf"));
  CHECK(refused("--dump-logits", "x"));
  CHECK(refused("--decode"));
  CHECK(refused("--tokens", "1", "-p", "x"));
  CHECK(refused("-n", "1", "-n", "2"));
}

TEST_CASE("lists of numbers are parsed strictly") {
  CHECK(parse_integers("-t", "1,2,30", 1, 30) == std::vector<std::int64_t>{1, 2, 30});
  for (const auto* bad : {"", ",", "1,", ",1", "1,,2", "1 ,2", "+1", "31", "0", "1e1", "99999999999999999999"})
    CHECK(code_of([&] { (void)parse_integers("-t", bad, 1, 30); }) == ErrorCode::kUsage);
  CHECK(parse_tokens("0,89", 90) == std::vector<std::int32_t>{0, 89});
  CHECK(code_of([] { (void)parse_tokens("90", 90); }) == ErrorCode::kUsage);
}

TEST_CASE("JSON strings are escaped and always valid UTF-8") {
  CHECK(json_string("plain") == "\"plain\"");
  CHECK(json_string("a\"b\\c\n\t\x01\x7f") == "\"a\\\"b\\\\c\\n\\t\\u0001\\u007f\"");
  CHECK(json_string("\xC3\xA9\xF0\x9F\x98\x80") == "\"\xC3\xA9\xF0\x9F\x98\x80\"");
  CHECK(json_string(std::string_view("\0", 1)) == "\"\\u0000\"");
  // truncated, a stray continuation byte, an overlong form, a surrogate, beyond Unicode
  CHECK(json_string("\xC3") == "\"\xEF\xBF\xBD\"");
  CHECK(json_string("\x80x") == "\"\xEF\xBF\xBDx\"");
  for (const auto* bad : {"\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC0\xAF", "\xFF"})
    CHECK(json_string(bad).starts_with("\"\xEF\xBF\xBD"));
  CHECK(json_number(0.1) == "0.1");
  CHECK(json_number(std::nan("")) == "null");
  CHECK(json_number(std::numeric_limits<double>::infinity()) == "null");
}

TEST_CASE("JsonWriter nests and separates") {
  JsonWriter json;
  json.open('{').field("a", 1).field("b", "x").open("c", '[').item("y").open('{').close().close();
  const std::array<std::int32_t, 2> ids{3, 4};
  json.field("d", std::span<const std::int32_t>(ids)).field("e", true).close();
  CHECK(json.take() ==
        "{\n  \"a\": 1,\n  \"b\": \"x\",\n  \"c\": [\n    \"y\",\n    {}\n  ],\n  \"d\": [3, 4],\n  \"e\": true\n}\n");
  JsonWriter open;
  open.open('[');
  CHECK(code_of([&] { (void)open.take(); }) == ErrorCode::kInternal);
}

TEST_CASE("an atomic file appears complete or not at all") {
  const tests::TempDir folder;
  const auto path = folder.write("x", "old");
  const auto bytes = std::as_bytes(std::span("new", 3));
  {
    AtomicFile file(path);
    file.write(bytes);
    CHECK(contents(path) == "old");
  }
  CHECK(contents(path) == "old");
  CHECK(file_count(folder.path()) == 1);
  {
    AtomicFile file(path);
    file.write(bytes);
    file.commit();
  }
  CHECK(contents(path) == "new");
  CHECK(file_count(folder.path()) == 1);
  CHECK(code_of([&] { AtomicFile file(folder.path()); }) == ErrorCode::kUsage);
  CHECK(code_of([&] { AtomicFile file("/dev/null"); }) == ErrorCode::kUsage);
  CHECK(code_of([&] { AtomicFile file(folder.file("no/such")); }) == ErrorCode::kIo);
}

TEST_CASE("a model that does not fit memory is refused with a context that fits") {
  const runtime::MemoryRequirements need{.weights = 600, .arena = 100, .kv = 4'000'000, .io = 300};
  check_memory(need, 4000, 1, {.bytes = 4'001'000, .what = "room"});
  try {
    check_memory(need, 4000, 1, {.bytes = 1'001'000, .what = "room"});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kMemory);
    CHECK(error.exit_status() == 5);
    CHECK(error.line().find("-c 944") !=
          std::string::npos);  // 95 % of a quarter of the context, rounded down to half blocks
    CHECK(error.line().find("room") != std::string::npos);
  }
  try {
    check_memory(need, 4000, 1, {.bytes = 900, .what = "room"});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.line().find("smaller model") != std::string::npos);
  }
  CHECK(memory_available().bytes > 0);
  CHECK(memory_peak() > 1 << 20);
}

TEST_CASE("sizes are printed in readable units") {
  CHECK(human_bytes(0) == "0 B");
  CHECK(human_bytes(1023) == "1023 B");
  CHECK(human_bytes(1536) == "1.5 KiB");
  CHECK(human_bytes(std::uint64_t{94} << 20) == "94.0 MiB");
}

TEST_CASE("strip_error_code gives an error's reason without its code") {
  CHECK(strip_error_code(Error(ErrorCode::kDevice, "no card", "none is there").line()) == "no card: none is there");
  CHECK(strip_error_code("a driver [old]: too old") == "a driver [old]: too old");
  CHECK(strip_error_code("error[cut") == "error[cut");
}

TEST_CASE("statistics of a plan: steps per layer, weights read, arena ratio") {
  plan::VariantT variant;
  for (const int layer : {-1, 0, 0, 0, 1, 1, 2, 2, -1}) {
    variant.steps.push_back(std::make_unique<plan::StepT>());
    variant.steps.back()->layer = layer;
    variant.steps.back()->weight_bytes = 10;
  }
  CHECK(steps_a_layer(variant) == 2);  // the most common number of steps of a layer
  CHECK(weight_bytes_read(variant) == 90);
  CHECK(arena_ratio(150, 100) == 1.5);
  CHECK(arena_ratio(0, 0) == 1.0);
  CHECK(steps_a_layer({}) == 0);
}

}  // namespace forge::tools
