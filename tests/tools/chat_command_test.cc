// What a typed line of the chat means, and the sampling options that /set changes.

#include "tools/run/chat_command.h"

#include <catch2/catch.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "loader/gguf/gguf.h"
#include "support/error.h"
#include "tests/e2e/tiny_model.h"
#include "tests/support/error_of.h"
#include "tools/run/run_options.h"

namespace forge::tools {

TEST_CASE("a line is text or a command with a key and a value") {
  CHECK(parse_chat_line("hello").command.empty());
  CHECK(parse_chat_line(" /etc/passwd").command.empty());
  CHECK(parse_chat_line("/help").command == "help");
  CHECK(parse_chat_line("/").command == "/");
  const auto set = parse_chat_line("/set  stop   two words ");
  CHECK(set.command == "set");
  CHECK(set.key == "stop");
  CHECK(set.argument == "two words");
  CHECK(parse_chat_line("/set temp").key == "temp");
  CHECK(!parse_chat_line("/set temp").argument);
}

TEST_CASE("sampling options are set by name, within their bounds, and can be reset") {
  RunRequest request;
  request.temperature = 0.5F;
  const auto bytes = tests::tiny_gguf({});
  settle_sampling(request, loader::Gguf::from(std::as_bytes(std::span(bytes))));
  CHECK(request.top_k == 40);
  Options options("/set", "");
  add_sampling(options, request);
  options.set("temp", "0.75");
  CHECK(request.temperature == 0.75F);
  options.set("temp", std::nullopt);
  CHECK(request.temperature == 0.5F);
  options.set("seed", "7");
  CHECK(request.seed == 7);
  options.set("seed", std::nullopt);
  CHECK(!request.seed);
  options.set("stop", "a b");
  options.set("stop", "c");
  CHECK(request.stops == std::vector<std::string>{"a b", "c"});
  options.set("stop", std::nullopt);
  CHECK(request.stops.empty());
  options.set("ignore-eos", "on");
  CHECK(request.ignore_eos);
  for (const auto& [key, value] : {std::pair{"temp", "x"},
                                   {"temp", "101"},
                                   {"top-k", "-1"},
                                   {"ignore-eos", "yes"},
                                   {"nonsense", "1"},
                                   {"--temp", "1"},
                                   {"", "1"}})
    CHECK(tests::code_of([&] { options.set(key, value); }) == ErrorCode::kUsage);
  CHECK(request.temperature == 0.5F);
  for (const auto& row : options.rows()) CHECK((row.show() != "" || row.name() == "seed" || row.name() == "stop"));
}

}  // namespace forge::tools
