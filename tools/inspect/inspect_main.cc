// Entry point of forge-inspect: shows models, plans, traces, the cache and this machine's devices. Without a command
// name its first argument is a MODEL; the commands, each with an option table of its own, are in kCommands.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/plan_file.h"
#include "session/open_model.h"
#include "session/self_test/self_test_process.h"
#include "support/error.h"
#include "support/os/console.h"
#include "tools/cli/entry.h"
#include "tools/cli/options.h"
#include "tools/inspect/inspect_answers.h"
#include "tools/inspect/inspect_arena.h"
#include "tools/inspect/inspect_cache.h"
#include "tools/inspect/inspect_chat.h"
#include "tools/inspect/inspect_code.h"
#include "tools/inspect/inspect_constraints.h"
#include "tools/inspect/inspect_families.h"
#include "tools/inspect/inspect_graph.h"
#include "tools/inspect/inspect_model.h"
#include "tools/inspect/inspect_tokenize.h"
#include "tools/inspect/inspect_trace.h"
#include "tools/inspect/self_test_command.h"

namespace {

using namespace forge;
using namespace forge::tools;

constexpr const char* kInspectFooter =
    "Further commands:\n"
    "  forge-inspect tokenize MODEL [--special] < TEXT      print the token ids of a text\n"
    "  forge-inspect check-constraints MODEL < LINES        check texts against schemas and grammars\n"
    "  forge-inspect render-chat --template FILE < JSON     print the prompt that a chat template makes\n"
    "  forge-inspect parse-answers < JSON LINES             parse answers: reasoning, content and tool calls\n"
    "  forge-inspect devices [--json]                       list the CPU, GPUs, drivers and compilers\n"
    "  forge-inspect devices --self-test [--device hip:0]   test the GPUs with their driver and compiler\n"
    "  forge-inspect cache [--json] [--clear PART]          list or clear the cache\n"
    "  forge-inspect families [--json | --markdown]         list the supported models and tensor types\n"
    "  forge-inspect trace FILE --svg OUT                   draw a trace written by --profile-trace\n";

// One struct per command: the constructor builds its option table, run() executes it after parsing.

struct Tokenize {
  std::string model;
  bool special = false;
  Options options{"forge-inspect tokenize",
                  "Prints the token ids of the text on stdin as a JSON array, without a BOS token."};

  Tokenize() {
    options.positional("MODEL", model, "a GGUF file")
        .flag("--special", special, "encode the text of a control token as that token");
  }
  void run() const {
    std::ios::sync_with_stdio(false);
    std::ostringstream ids;
    inspect_tokenize(model, special, std::cin, ids, std::cerr);
    Output().write(ids.view());
  }
};

struct CheckConstraints {
  std::string model;
  Options options{
      "forge-inspect check-constraints",
      "Says for each line on stdin whether its text is what its constraint allows, by masks of tokens.",
      "Reads {\"schema\": {\"type\": \"integer\"}, \"text\": \"42\"}, or \"regex\" or \"gbnf\" with an "
      "expression or a grammar. Writes {\"accepted\": true} or {\"refused\": \"why\"}, line for line. With "
      "\"seed\": 1 it writes {\"text\": \"...\"}: the text, or none, continued by random allowed tokens.\n"};

  bool times = false;

  CheckConstraints() {
    options.positional("MODEL", model, "a GGUF file; its vocabulary is enough");
    options.flag("--times", times, "print the times of compilation and masks on stderr");
  }
  void run() const {
    std::ios::sync_with_stdio(false);
    std::ostringstream answers;
    inspect_constraints(model, std::cin, answers, times);
    Output().write(answers.view());
  }
};

struct RenderChat {
  std::string file;
  Options options{
      "forge-inspect render-chat", "Prints the prompt that a chat template makes from the JSON object on stdin.",
      "Reads {\"messages\": [...], \"tools\": [...], \"add_generation_prompt\": true, \"bos_token\": \"\",\n"
      "\"eos_token\": \"\", \"now\": \"2026-01-15T12:30:00\"}. Only messages is required. Other keys become variables "
      "of the template.\n"};

  RenderChat() { options.text("--template", file, "FILE", "the Jinja chat template"); }
  void run() const {
    if (file.empty())
      throw Error(ErrorCode::kUsage, "--template is missing", {}, "forge-inspect render-chat --template FILE < JSON");
    inspect_render_chat(file);
  }
};

struct ParseAnswers {
  Options options{
      "forge-inspect parse-answers", "Parses the answers on stdin, one JSON object a line.",
      "Reads {\"template_source\": \"\", \"prompt\": \"\", \"completion\": \"\", \"tools\": [...],\n"
      "\"ended\": \"stop\", \"special_tokens\": [...], \"bos_token\": \"\", \"eos_token\": \"\"} and writes\n"
      "{\"content\", \"reasoning_content\", \"tool_calls\", \"finish_reason\"}. With \"chunks\": [...] instead of\n"
      "\"completion\" it writes {\"deltas\"}: a list for each chunk and one for the end. Only template_source\n"
      "and completion or chunks are required.\n"};
  void run() const { inspect_parse_answers(); }
};

struct Cache {
  bool json = false;
  std::optional<std::string> clear;
  Options options{"forge-inspect cache", "Lists the contents of the cache, or deletes them."};

  Cache() {
    options.flag("--json", json, "print JSON")
        .choice("--clear", clear, kCacheParts, "delete this part of the cache; it is made again when needed");
  }
  void run() const {
    if (clear && json) throw Error(ErrorCode::kUsage, "--clear and --json exclude each other", {}, "give one of them");
    if (clear)
      note(clear_cache(*clear));
    else
      Output().write(inspect_cache(json));
  }
};

struct Devices {
  bool json = false, self_test = false;
  std::optional<std::string> device;
  Options options{"forge-inspect devices",
                  "Lists the CPU, GPUs, drivers and compilers of this machine, or tests the GPUs."};

  Devices() {
    options.flag("--json", json, "print JSON")
        .flag("--self-test", self_test,
              "test kernel primitives and a tiny model on each GPU against the CPU, and store the verdict")
        .text("--device", device, "hip:N|cuda:N", "test this GPU only");
  }
  void run() const {
    if (device && !self_test) throw Error(ErrorCode::kUsage, "--device needs --self-test", {}, "give both");
    if (self_test)
      self_test_devices(device, json);
    else
      Output().write(inspect_devices(json));
  }
};

struct SelfTest {
  std::string device;
  Options options{"forge-inspect self-test",
                  "Tests one GPU in this process and prints results line by line, for programs.",
                  "`forge-inspect devices --self-test` starts this as a child process, because a driver may crash or "
                  "hang.\n"};

  SelfTest() { options.text("--device", device, "hip:N|cuda:N", "the GPU to test"); }
  void run() const {
    if (device.empty())
      throw Error(ErrorCode::kUsage, "--device is missing", {}, "forge-inspect self-test --device hip:0");
    forge::session::write_self_test(device);
    std::_Exit(0);  // no destructors: a driver would wait there for a kernel that never ends
  }
};

struct Families {
  bool json = false, markdown = false;
  Options options{"forge-inspect families", "Lists the supported model families and tensor types."};

  Families() {
    options.flag("--json", json, "print JSON").flag("--markdown", markdown, "print the text of docs/models.md");
  }
  void run() const {
    if (json && markdown) throw Error(ErrorCode::kUsage, "--json and --markdown exclude each other");
    Output().write(inspect_families(json       ? FamiliesForm::kJson
                                    : markdown ? FamiliesForm::kMarkdown
                                               : FamiliesForm::kText));
  }
};

struct Trace {
  std::string file, svg;
  TraceChoice choice;
  Options options{"forge-inspect trace", "Draws one forward pass of a trace: its steps and the chunks of each thread."};

  Trace() {
    options.positional("FILE", file, "a trace written by --profile-trace")
        .text("--svg", svg, "OUT", "write the drawing to this file")
        .integer("--forward", choice.forward, 1, std::int64_t{1} << 32,
                 "draw the Nth forward pass, from 1; default: the last one")
        .integer("--layer", choice.layer, 0, 1 << 20, "draw only the steps of this layer; default: the middle one")
        .flag("--whole", choice.whole, "draw all steps of the forward pass");
  }
  void run() const {
    if (svg.empty()) throw Error(ErrorCode::kUsage, "--svg is missing", {}, "give the file to write: --svg OUT");
    if (choice.whole && choice.layer)
      throw Error(ErrorCode::kUsage, "--whole and --layer exclude each other", {}, "give one of them");
    note(write_trace_svg(file, choice, svg));
  }
};

template <class T>
void run(int argc, char** argv) {
  T command;
  if (command.options.parse(argc, argv)) command.run();
}
template <class T>
OptionPage page() {
  return T().options.page();
}

struct Command {
  std::string_view name;
  void (*run)(int argc, char** argv);
  OptionPage (*page)();
};
constexpr std::array<Command, 9> kCommands{{{"tokenize", run<Tokenize>, page<Tokenize>},
                                            {"check-constraints", run<CheckConstraints>, page<CheckConstraints>},
                                            {"render-chat", run<RenderChat>, page<RenderChat>},
                                            {"parse-answers", run<ParseAnswers>, page<ParseAnswers>},
                                            {"devices", run<Devices>, page<Devices>},
                                            {"self-test", run<SelfTest>, page<SelfTest>},
                                            {"families", run<Families>, page<Families>},
                                            {"trace", run<Trace>, page<Trace>},
                                            {"cache", run<Cache>, page<Cache>}}};

int inspect(int argc, char** argv) {
  InspectOptions request;
  std::string code;
  std::optional<std::string> arena, graph;
  GraphChoice choice;
  Options options("forge-inspect", "Shows the contents of a GGUF model or a compiled plan.", kInspectFooter);
  options.positional("MODEL", request.path, "a GGUF file, or a plan made by forge-compile")
      .flag("--json", request.json, "print JSON")
      .flag("--all", request.all, "list every tensor of a model, or every step and weight of a plan")
      .text("--code", code, "DIR",
            "write the plan's GPU code objects to DIR, with disassembly if a disassembler is installed")
      .text("--arena-svg", arena, "FILE", "draw the plan's arena: offset and lifetime of each buffer")
      .text("--graph-svg", graph, "FILE", "draw the plan's steps and the values between them; needs Graphviz")
      .text("--variant", choice.variant, "NAME", "variant to draw; default: the first")
      .text("--layer", choice.layer, "N|all", "layer of the graph to draw; default: the middle one")
      .integer("-c,--context", request.context, 1, forge::session::kContextMax,
               "context size for the memory figures, in tokens")
      .commands([] {
        std::vector<OptionPage> pages;
        for (const auto& command : kCommands) pages.push_back(command.page());
        return pages;
      });
  if (!options.parse(argc, argv)) return 0;
  if (choice.variant && !arena && !graph)
    throw Error(ErrorCode::kUsage, "--variant needs --arena-svg or --graph-svg", {}, "say what to draw");
  if (choice.layer && !graph) throw Error(ErrorCode::kUsage, "--layer needs --graph-svg", {}, "give --graph-svg FILE");
  if (arena) note(write_arena_svg(request.path, choice.variant, *arena));
  if (graph) note(write_graph_svg(request.path, choice, *graph));
  if (!code.empty()) {
    note(fmt::format("{} code objects written to {}", write_code_objects(request.path, code), printable(code, 200)));
  }
  if (arena || graph || !code.empty()) return 0;
  Output().write(plan::looks_like_plan(request.path) ? inspect_plan(request) : inspect_model(request));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_tool([&] {
    const std::string_view name = argc > 1 ? argv[1] : "";
    const auto* const command = std::ranges::find(kCommands, name, &Command::name);
    if (command == kCommands.end()) return inspect(argc, argv);
    command->run(argc - 1, argv + 1);
    return 0;
  });
}
