// The chat template engine: the language, errors with line and column, resource limits, and chat requests.
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <string>

#include "support/error.h"
#include "tests/support/sanitizers.h"
#include "tests/support/skip.h"
#include "text/chat/chat.h"

using namespace forge::text;
using namespace forge::text::jinja;

namespace {

const Clock kNow = Clock::parse("2026-01-15T12:30:00");
const RenderLimits kLimits{.steps_max = forge::tests::sized(RenderLimits{}.steps_max)};

std::string render(std::string_view source, std::string_view json = R"({"messages": []})",
                   const RenderLimits& limits = kLimits) {
  ChatRequest request = parse_chat_request(json);
  request.now = kNow;
  return render_chat(ChatTemplate::parse(source), request, limits);
}

/// The error line of a template that must fail.
std::string failure(std::string_view source, const RenderLimits& limits = kLimits) {
  try {
    return "rendered: " + render(source, R"({"messages": []})", limits);
  } catch (const forge::Error& error) {
    CHECK(error.exit_status() == 3);
    return error.line();
  }
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("white space: trim_blocks, lstrip_blocks and the minus and plus signs") {
  CHECK(render("  {% if true %}\nx\n  {% endif %}\ny\n") == "x\ny");
  CHECK(render("a {%- if true -%} b {%- endif %}") == "ab");
  CHECK(render("  {%+ if true +%}\nx{% endif %}") == "  \nx");
  CHECK(render("a\r\n{# c #}\nb\n\n") == "a\nb\n");
  CHECK(render("{% raw %}{{ x }}{% endraw %}|{{- ' y' -}} |") == "{{ x }}| y|");
}

TEST_CASE("scopes: loop variables do not leak, namespaces do, `if` has no scope") {
  CHECK(render("{% set x = 1 %}{% for i in [1, 2] %}{% set x = 5 %}{% endfor %}{{ x }}") == "1");
  CHECK(render("{% set ns = namespace(x=1) %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}") ==
        "4");
  CHECK(render("{% if true %}{% set x = 3 %}{% endif %}{{ x }}{% with x = 4 %}{{ x }}{% endwith %}{{ x }}") == "343");
}

TEST_CASE("loops: filter, else, loop.*, break, continue, recursion") {
  CHECK(render("{% for i in range(5) if i is odd %}{{ loop.index }}/{{ loop.length }}:{{ i }} {% endfor %}") ==
        "1/2:1 2/2:3 ");
  CHECK(render("{% for i in [] %}{% else %}none{% endfor %}") == "none");
  CHECK(render("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i > 2 %}{% break %}{% endif %}{{ "
               "i }}{% endfor %}") == "02");
  CHECK(render("{% for n in [[1, [2]], [3]] recursive %}{% if n is number %}{{ n }}@{{ loop.depth }} {% else %}{{ "
               "loop(n) }}{% endif %}{% endfor %}") == "1@2 2@3 3@2 ");
}

TEST_CASE("macros: defaults, keywords, caller, varargs") {
  CHECK(render("{% macro m(a, b=a ~ '!') %}{{ a }}{{ b }}{% endmacro %}{{ m('x') }}{{ m(1, b=2) }}") == "xx!12");
  CHECK(render("{% macro m() %}<{{ caller('q') }}>{% endmacro %}{% call(v) m() %}{{ v }}{% endcall %}") == "<q>");
  CHECK(render("{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}") == "3210");
  CHECK(has(failure("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}"), "not more than 1 argument"));
}

TEST_CASE("values print as Python prints them") {
  CHECK(render("{{ [1, 'a', none, true, 1.0, {'k': (1,)}] }}") == "[1, 'a', None, True, 1.0, {'k': (1,)}]");
  CHECK(render("{{ 1e16 }} {{ 0.1 }} {{ 1 / 3 }} {{ -7 // 2 }} {{ -7 % 3 }}") == "1e+16 0.1 0.3333333333333333 -4 2");
  CHECK(render("{{ \"it's\" }}{{ [\"it's\", 'a\"b'] }}") == "it's[\"it's\", 'a\"b']");
  CHECK(render("{{ {'é': '<&>', 'n': [1, 2.5]} | tojson }}") == "{\"é\": \"<&>\", \"n\": [1, 2.5]}");
  // Escapes as in json.dumps, including DEL.
  CHECK(render("{{ '\"\\\\/\x01\x1f\x7f\\n\\r\\t\\b\\f é😀' | tojson }}") ==
        "\"\\\"\\\\/\\u0001\\u001f\x7f\\n\\r\\t\\b\\f é😀\"");
  CHECK(render("{{ '\"\\\\/\x01\x1f\x7f\\n\\r\\t\\b\\f é😀' | tojson(ensure_ascii=true) }}") ==
        R"("\"\\/\u0001\u001f\u007f\n\r\t\b\f \u00e9\ud83d\ude00")");
  CHECK(render("{{ {'a': [1], 'b': {}} | tojson(indent=2) }}") == "{\n  \"a\": [\n    1\n  ],\n  \"b\": {}\n}");
  CHECK(render("{{ strftime_now('%d %b %Y') }}") == "15 Jan 2026");
  CHECK(render("{{ 'ßΣ'.upper() }}{{ 'ΑΣ'.lower() }}") == "SSΣας");
}

TEST_CASE("generation blocks print their contents") {
  CHECK(render("{% generation %}{{ 'x' }}{% endgeneration %}y") == "xy");
}

TEST_CASE("errors name their line and column") {
  CHECK(has(failure("a\n b {{ 1 + }}"), "line 2, column 11: expected an expression"));
  CHECK(has(failure("a\né{{ foo.bar }}"), "line 2, column 8: 'foo' is undefined"));
  CHECK(has(failure("{{ 1|nosuch }}"), "line 1, column 6: there is no filter named 'nosuch'"));
  CHECK(has(failure("{{ 1 is nosuch }}"), "there is no test named 'nosuch'"));
  CHECK(has(failure("{% nosuch %}"), "line 1, column 4: unknown tag 'nosuch'"));
  CHECK(has(failure("{% include 'x' %}"), "'include' is not supported"));
  CHECK(has(failure("{% if x %}"), "this 'if' is never closed"));
  CHECK(has(failure("{{ raise_exception('no \x1b system') }}"), "refuses this conversation: no \\x1b system"));
  CHECK(has(failure("{{ '\xff' }}"), "not valid UTF-8"));
  CHECK(has(failure("{{ 9223372036854775807 + 1 }}"), "does not fit 64 bits"));
  CHECK(render("{% if false %}{{ 1|nosuch }}{% endif %}ok") == "ok");
}

TEST_CASE("the sandbox hides attributes that modify or escape") {
  CHECK(render("{{ [1].append is defined }}{{ {}.update is defined }}") == "FalseFalse");
  CHECK(has(failure("{{ [1].append(2) }}"), "unsafe"));
  CHECK(has(failure("{{ ''.__class__.__mro__ }}"), "unsafe"));
  CHECK(has(failure("{{ '{0.__class__.x}'.format(1) }}"), "unsafe"));
}

TEST_CASE("no template can hang, overflow the stack or exhaust the memory") {
  // Without limits some of these would take days: the test is that it ends.
  CHECK(has(failure("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"),
            "error[template]"));
  CHECK(has(failure("{% for a in range(100000) %}{{ 'x' * 100000 }}{% endfor %}"), "error[template]"));
  CHECK(has(failure("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), "recurses too deeply"));
  CHECK(has(failure("{{ 'x' * 99999999999 }}"), "limit"));
  CHECK(has(failure("{{ '%999999999d' % 1 }}"), "limit"));
  CHECK(has(failure("{% set ns = namespace(v='x') %}{% for i in range(99) %}{% set ns.v = ns.v + ns.v %}{% endfor %}"),
            "limit"));
  CHECK(has(failure("{% set ns = namespace(v=[1]) %}{% for i in range(9999) %}{% set ns.v = [ns.v] %}{% endfor %}"),
            "nested"));
  CHECK(has(
      failure("{% set ns = namespace(v=[1]) %}{% for i in range(9999) %}{% set ns.v = [ns.v]|select %}{% endfor %}"),
      "nested"));
  CHECK(has(failure("{% set ns = namespace(v=[1]) %}{% for i in range(150) %}{% set ns.v = [ns.v, ns.v] %}{% endfor "
                    "%}{{ ns.v }}"),
            "error[template]"));
  CHECK(has(failure("{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}"), "nested too deeply"));
  CHECK(has(failure("{{ " + std::string(100000, '-') + "1 }}"), "nested too deeply"));
  std::string ifs, sums = "{{ 1";
  for (int i = 0; i < 50000; ++i) ifs += "{% if 1 %}";
  for (int i = 0; i < 50000; ++i) sums += " + 1";
  CHECK(has(failure(ifs), "nested too deeply"));
  CHECK(has(failure(sums + " }}"), "nested too deeply"));
  CHECK(render("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}ok") == "ok");
}

TEST_CASE("the given limits apply") {
  CHECK(has(failure("{{ 'x' * 100 }}", {.output_bytes_max = 10}), "limit"));
  CHECK(has(failure("{% for i in range(100) %}a{% endfor %}", {.output_bytes_max = 10}), "more than 10 bytes"));
  CHECK(has(failure("{% for i in range(100) %}a{% endfor %}", {.steps_max = 50}), "runs too long"));
}

TEST_CASE("a request: optional members, and refusals") {
  CHECK(render("{{ tools }}{{ enable_thinking }}{{ add_generation_prompt }}{{ bos_token }}",
               R"({"messages": [], "enable_thinking": false, "bos_token": "<s>"})") == "NoneFalseFalse<s>");
  for (const char* bad :
       {"", "[]", "{", R"({"tools": []})", R"({"messages": 1})", R"({"messages": [], "now": "x"})",
        R"({"messages": [1e999]})", R"({"messages": [99999999999999999999]})", "{\"messages\": [\"\xff\"]}"})
    CHECK_THROWS_AS(parse_chat_request(bad), forge::Error);
  CHECK_THROWS_AS(parse_chat_request("{\"messages\": " + std::string(100000, '[')), forge::Error);
}

TEST_CASE("the reference templates render as expected") {
  const auto path = forge::tests::reference_file("chat/templates.json");
  if (path.empty()) return;
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const ChatRequest all = parse_chat_request("{\"messages\": [], \"all\": " + text + "}");
  const auto& entries = all.extra.find("all")->list().items;
  REQUIRE(!entries.empty());
  for (const Value& entry : entries) {
    const Dict& item = entry.dict();
    INFO(item.find("name")->text());
    REQUIRE(!item.find("cases")->list().items.empty());
    const ChatTemplate compiled = ChatTemplate::parse(item.find("template")->text());
    for (const Value& each : item.find("cases")->list().items) {
      const Dict& input = each.dict().find("input")->dict();
      ChatRequest request;
      request.messages = *input.find("messages");
      if (const Value* tools = input.find("tools")) request.tools = *tools;
      request.add_generation_prompt = truth(*input.find("add_generation_prompt"));
      request.bos_token = item.find("bos_token")->text();
      request.eos_token = item.find("eos_token")->text();
      request.now = Clock::parse(item.find("now")->text());
      if (const Value* output = each.dict().find("output"))
        CHECK(render_chat(compiled, request) == output->text());
      else
        CHECK_THROWS_AS(render_chat(compiled, request), forge::Error);
    }
  }
}
