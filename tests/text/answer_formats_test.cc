// One test for each way of writing calls, on templates that print it with markers of their own.
#include "tests/text/answer_help.h"

using namespace forge::text;

namespace {

const std::string kTwo = "weather {\"city\": \"Oslo\", \"days\": 3}\nnow {}\n";
constexpr std::string_view kArguments = R"({"city": "Oslo", "days": 3})";

std::string call_json(std::string_view name, std::string_view arguments) {
  return "{\"name\": \"" + std::string(name) + "\", \"arguments\": " + std::string(arguments) + "}";
}

void check_two(const AnswerFormat& format, const std::string& text) {
  const Message message = parse(format, "I look.\n" + text);
  CHECK(message.content == "I look.");
  CHECK(message.listed() == kTwo);
  CHECK(message.finish == "tool_calls");
}

}  // namespace

TEST_CASE("a JSON object in each call's own marker") {
  for (const std::string tag : {"tool_call", "x:do", "ruf"}) {
    const std::string open = "<" + tag + ">\n", close = "\n</" + tag + ">";
    const auto format = format_of(open + std::string(kJsonCall) + close);
    check_two(format, open + call_json("weather", kArguments) + close + "\n" + open + call_json("now", "{}") + close);
  }
}

TEST_CASE("a call whose closing tag is missing has whole arguments, unless a limit cut it") {
  const std::string parameters = "{% for k, v in f.arguments.items() %}<arg={{ k }}>\n{{ v }}\n</arg>\n{% endfor %}";
  const auto format = format_of("<do>\n<fn={{ f.name }}>\n" + parameters + "</fn>\n</do>");
  const std::string open = "<do>\n<fn=weather>\n<arg=city>\nOslo\n</arg>\n";
  CHECK(parse(format, open).listed() == "weather {\"city\": \"Oslo\"}\n");
  CHECK(parse(format, "<do>\n<fn=now>\n").listed() == "now {}\n");
  CHECK(parse(format, open, {}, true).listed() == "weather {\"city\": \"Oslo\"\n");
}

TEST_CASE("a list of JSON objects after one marker") {
  const auto format = format_of(std::string(kJsonCall) + "{{ ', ' if not loop.last }}", "[DO_CALLS][", "]");
  check_two(format, "[DO_CALLS][" + call_json("weather", kArguments) + ", " + call_json("now", "{}") + "]");
}

TEST_CASE("JSON objects without a list between two markers") {
  const auto format = format_of(std::string(kJsonCall) + "\n", "<calls>\n", "</calls>");
  check_two(format, "<calls>\n" + call_json("weather", kArguments) + "\n" + call_json("now", "{}") + "\n</calls>");
}

TEST_CASE("a list after a plain word") {
  const auto format = format_of(std::string(kJsonCall) + "{{ ', ' if not loop.last }}", " usetools[", "]");
  check_two(format, " usetools[" + call_json("weather", kArguments) + ", " + call_json("now", "{}") + "]");
  CHECK(parse(format, "One usetools [a] and usetools.").content == "One usetools [a] and usetools.");
}

TEST_CASE("keys in other spellings and orders, ids, arguments as a string, the name as the key") {
  const auto format = format_of("<call>" + std::string(kJsonCall) + "</call>");
  CHECK(parse(format, R"(<call>{"tool_call_id": 7, "tool_name": "now", "parameters": {}}</call>)").listed() ==
        "now {}\n");
  CHECK(parse(format, R"(<call>{"arguments": {"days": 1}, "name": "weather", "id": "a1"}</call>)").listed() ==
        "#a1 weather {\"days\": 1}\n");
  CHECK(
      parse(format,
            R"(<call>{"type": "function", "function": {"name": "now", "arguments": "{\"a\": \"\u00e9\\n\"}"}}</call>)")
          .listed() == "now {\"a\": \"é\\n\"}\n");
  CHECK(parse(format, R"(<call>{"name": "now"}</call>)").listed() == "now {}\n");
  const auto by_key = format_of("{\"{{ f.name }}\": {{ f.arguments | tojson }}}", "<|go|>[", "]<|/go|>");
  CHECK(parse(by_key, R"(<|go|>[{"weather": {"days": 2}}, {"now": {}}]<|/go|>)").listed() ==
        "weather {\"days\": 2}\nnow {}\n");
}

TEST_CASE("a name, markers and JSON") {
  const auto plain = format_of("[USE]{{ f.name }}[ARGS]{{ f.arguments | tojson }}");
  check_two(plain, "[USE]weather[ARGS]" + std::string(kArguments) + "[USE]now[ARGS]{}");
  const auto with_id =
      format_of("<|b|>{{ c.id }}<|b:name|>{{ f.name }}<|b:args|>{{ f.arguments | tojson }}<|b:end|>", "<|bs|>");
  CHECK(parse(with_id, "<|bs|><|b|>k7<|b:name|>now<|b:args|>{}<|b:end|>").listed() == "#k7 now {}\n");
  const auto fenced =
      format_of("<c>function<sep>{{ f.name }}\n```json\n{{ f.arguments | tojson }}\n```</c>", "<cs>", "</cs>");
  check_two(fenced, "<cs><c>function<sep>weather\n```json\n" + std::string(kArguments) +
                        "\n```</c>\n<c>function<sep>now\n```json\n{}\n```</c></cs>");
  const auto numbered = format_of("<c>functions.{{ f.name }}:{{ loop.index0 }}<a>{{ f.arguments | tojson }}</c>");
  CHECK(parse(numbered, "<c>functions.now:0<a>{}</c>").listed() == "#functions.now:0 now {}\n");
}

TEST_CASE("an element for each parameter, typed by the schema") {
  const std::string parameters = "{% for k, v in f.arguments.items() %}<arg={{ k }}>\n{{ v }}\n</arg>\n{% endfor %}";
  const auto format = format_of("<do>\n<fn={{ f.name }}>\n" + parameters + "</fn>\n</do>");
  const Message message =
      parse(format,
            "<do>\n<fn=weather>\n<arg=city>\n007\n</arg>\n<arg=days>\n7\n</arg>\n<arg=metric>\nTrue\n</arg>\n"
            "<arg=tags>\n['a', 1]\n</arg>\n<arg=where>\n{\"x\": null}\n</arg>\n<arg=new>\nplain\n</arg>\n</fn>\n</do>");
  CHECK(message.listed() ==
        "weather {\"city\": \"007\", \"days\": 7, \"metric\": true, \"tags\": [\"a\", 1], \"where\": {\"x\": null}, "
        "\"new\": \"plain\"}\n");
  CHECK(parse(format, "<do>\n<fn=weather>\n<arg=city>\n\na </\n\n</arg>\n</fn>\n</do>").listed() ==
        "weather {\"city\": \"\\na </\\n\"}\n");
  CHECK(parse(format, "<do>\n<fn=now>\n</fn>\n</do>").listed() == "now {}\n");
  const auto named = format_of(
      "<fn name=\"{{ f.name }}\">{% for k, v in f.arguments.items() %}<p name=\"{{ k }}\">{{ v }}</p>{% endfor %}</fn>"
      "{# a value may be in <![CDATA[ ]]> #}");
  CHECK(parse(named, "<fn name=\"weather\"><p name=\"city\"><![CDATA[a</p>\n]]></p><p name=\"days\">2</p></fn>")
            .listed() == "weather {\"city\": \"a</p>\\n\", \"days\": 2}\n");
  const auto json = format_of("<fn={{ f.name }}>{{ f.arguments | tojson }}</fn>");
  check_two(json, "<fn=weather>" + std::string(kArguments) + "</fn><fn=now>{}</fn>");
}

TEST_CASE("keys and values in elements of their own") {
  const auto format = format_of(
      "<go>{{ f.name }}{% for k, v in f.arguments.items() %}<a_key>{{ k }}</a_key><a_val>{{ v }}</a_val>{% endfor "
      "%}</go>");
  check_two(
      format,
      "<go>weather<a_key>city</a_key><a_val>Oslo</a_val>\n<a_key>days</a_key>\n<a_val>3</a_val></go>\n<go>now</go>");
}

TEST_CASE("Python calls") {
  const std::string arguments = "{% for k, v in f.arguments.items() %}{{ k }}='{{ v }}'{% endfor %}";
  const auto format = format_of("{{ f.name }}(" + arguments + "){{ ', ' if not loop.last }}", "<|py|>[", "]<|py_end|>");
  check_two(format, "<|py|>[weather(city='Oslo', days=3), now()]<|py_end|>");
  CHECK(parse(format, R"(<|py|>[weather(city="it's \x41\n", tags=[True, None, (1,), {'k': -0.5}])]<|py_end|>)")
            .listed() == "weather {\"city\": \"it's \\u0041\\n\", \"tags\": [true, null, [1], {\"k\": -0.5}]}\n");
}

TEST_CASE("Python that is no call is content") {
  const auto format = format_of("{{ f.name }}(x='{% for k, v in f.arguments.items() %}{{ k }}{{ v }}{% endfor %}')",
                                "<|py|>", "<|py_end|>");
  for (const std::string text : {"<|py|>print(1)", "<|py|>f(now())", "<|py|>f(**a)"})
    CHECK(parse(format, text).content == text);
}

TEST_CASE("braces with unquoted keys and marked strings") {
  const auto format = format_of(
      "<|c>call:{{ f.name }}{{ '{' }}{% for k, v in f.arguments.items() %}{{ k }}:<|'|>{{ v }}<|'|>{% endfor %}"
      "{{ '}' }}<c|>");
  check_two(format, "<|c>call:weather{city:<|'|>Oslo<|'|>,days:3}<c|><|c>call:now{}<c|>");
  CHECK(parse(format, "<|c>call:weather{city:<|'|>a\"<|b\n<|'|>,tags:[{x:true},<|'|>y<|'|>]}<c|>").listed() ==
        "weather {\"city\": \"a\\\"<|b\\n\", \"tags\": [{\"x\": true}, \"y\"]}\n");
}

TEST_CASE("calls without a marker, of offered tools only") {
  const auto format = format_of(kJsonCall);
  CHECK(parse(format, call_json("weather", kArguments)).listed() == "weather {\"city\": \"Oslo\", \"days\": 3}\n");
  const std::string other = call_json("delete", "{}"), data = R"({"name": "Bo", "age": 3})",
                    late = "See " + call_json("now", "{}");
  for (const auto& text : {other, data, late}) {
    CHECK(parse(format, text).content == text);
    CHECK(parse(format, text).finish == "stop");
  }
  const auto named = format_of("{{ f.name }}\n{{ f.arguments | tojson }}");
  CHECK(parse(named, "now\n{\"a\": 1}").listed() == "now {\"a\": 1}\n");
  CHECK(parse(named, "now is\n{\"a\": 1}").content == "now is\n{\"a\": 1}");
}

TEST_CASE("words of a template's own: keys, tags of keys and of ids, elements, a name in its tag") {
  const auto keys = format_of("<c>{\"tool\": \"{{ f.name }}\", \"with\": {{ f.arguments | tojson }}}</c>");
  CHECK((keys.name_key == "tool" && keys.arguments_key == "with"));
  CHECK(parse(keys, R"(<c>{"tool": "weather", "with": {"days": 1}}</c>)").listed() == "weather {\"days\": 1}\n");
  const std::string each = "{% for k, v in f.arguments.items() %}";
  const auto pairs =
      format_of("<job><what>{{ f.name }}</what>" + each + "<k>{{ k }}</k><v>{{ v }}</v>{% endfor %}</job>");
  CHECK(parse(pairs, "<job><what>weather</what><k>city</k><v>1</v><k>days</k><v>2</v></job>").listed() ==
        "weather {\"city\": \"1\", \"days\": 2}\n");
  CHECK(parse(pairs, "<job><what>now</what></job>").listed() == "now {}\n");
  const auto children =
      format_of("<i><n>{{ f.name }}</n><p>" + each + "<{{ k }}>{{ v }}</{{ k }}>{% endfor %}</p></i>");
  CHECK(parse(children, "<i><n>weather</n><p><city>Bo</city><days>2</days></p></i>").listed() ==
        "weather {\"city\": \"Bo\", \"days\": 2}\n");
  const auto act =
      format_of("<act tool=\"{{ f.name }}\">" + each + "<in key=\"{{ k }}\">{{ v }}</in>{% endfor %}</act>");
  CHECK(parse(act, "<act tool=\"weather\"><in key=\"days\">2</in></act>").listed() == "weather {\"days\": 2}\n");
  const auto colon = format_of("<fn:{{ f.name }}>{{ f.arguments | tojson }}</fn:{{ f.name }}>");
  check_two(colon, "<fn:weather>" + std::string(kArguments) + "</fn:weather><fn:now>{}</fn:now>");
  const auto id = format_of("[USE]{{ f.name }}[NO]{{ c.id }}[WITH]{{ f.arguments | tojson }}");
  CHECK(parse(id, "[USE]now[NO]k7[WITH]{}").listed() == "#k7 now {}\n");
}

TEST_CASE("reasoning by what is printed: a marker of its own, a pair, a split, and what the prompt tells") {
  const auto with = [](const std::string& thought) {
    return "{% for m in messages %}<|s|>{{ m.role }}\n" + thought +
           "<|e|>\n{% endfor %}{% if add_generation_prompt %}<|s|>assistant\n{% endif %}";
  };
  const auto check = [&](const std::string& thought, const std::string& open, const std::string& close) {
    const auto format = find_answer_format(with(thought), {});
    INFO(thought);
    CHECK((format.think_open == open && format.think_close == close));
    const auto message = parse(format, open + "Hm." + close + "Yes.");
    CHECK((message.reasoning == "Hm." && message.content == "Yes."));
  };
  check("{% if m.reasoning_content %}<|mull|>{{ m.reasoning_content }}<|say|>{% endif %}{{ m.content }}", "<|mull|>",
        "<|say|>");
  check("{% if m.role == 'assistant' %}<mu>\n{{ m.reasoning_content }}\n</mu>\n{% endif %}{{ m.content }}", "<mu>",
        "</mu>");
  check("{{ m.content.split('</mu>')[-1] }}", "<mu>", "</mu>");
  check("{% if loop.first %}Write [MU]Your thoughts.[/MU] first.{% endif %}{{ m.content }}", "[MU]", "[/MU]");
  CHECK(find_answer_format(with("{{ m.reasoning_content }}{{ m.content }}"), {}).think_open.empty());
}

TEST_CASE("a call's marker that the prompt tells of, and templates that change lists") {
  const std::string turns = "{% for m in messages %}<|s|>{{ m.role }}\n{{ m.content }}";
  const std::vector<std::string> control{"<|do|>", "<|s|>"};
  const auto told = find_answer_format(
      "{% if tools %}Answer with <|do|> and a JSON list. <tools>{{ tools | tojson }}</tools>{% endif %}" + turns +
          "{% endfor %}",
      control);
  CHECK(told.openers == std::vector<std::string>{"<|do|>"});
  check_two(told, "<|do|>[" + call_json("weather", kArguments) + ", " + call_json("now", "{}") + "]");
  const auto changed = find_answer_format(
      "{% set ns = namespace(ids=[]) %}" + turns +
          "{% for c in m.tool_calls or [] %}{% set _ = ns.ids.append(c.id) %}<|do|>{{ c.function.name }}<|a|>"
          "{{ c.function.arguments | tojson }}<|z|>{% endfor %}{% endfor %}",
      {});
  CHECK_FALSE(changed.history.shows_calls);
  check_two(changed, "<|do|>weather<|a|>" + std::string(kArguments) + "<|z|><|do|>now<|a|>{}<|z|>");
}

TEST_CASE("messages with channels and recipients") {
  const std::string source = "{{ '<|start|>assistant<|channel|>final<|message|>' + messages[0].content + '<|end|>' }}";
  const auto format = find_answer_format(source, {});
  const Message message =
      parse(format,
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I look."
            "<|end|><|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}<|call|>",
            "<|start|>assistant");
  CHECK(message.reasoning == "Hm.");
  CHECK(message.content == "I look.");
  CHECK(message.listed() == "now {}\n");
  CHECK(parse(format, "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{\"a\": 1}",
              "<|start|>assistant")
            .listed() == "now {\"a\": 1}\n");
  const auto recipients = find_answer_format("{# >>>all and >>>NAME #}{{ messages[0].content }}", {});
  CHECK(parse(recipients, "all\nI look.>>>now\n{}", "x>>>") == parse(recipients, ">>>all\nI look.>>>now\n{}"));
  CHECK(parse(recipients, "all\nI look.>>>now\n{}", "x>>>").listed() == "now {}\n");
}
