// forge-inspect: what is in a model or plan, and what this machine offers.

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
#include "tools/inspect/inspect_arena.h"
#include "tools/inspect/inspect_cache.h"
#include "tools/inspect/inspect_chat.h"
#include "tools/inspect/inspect_code.h"
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
    "  forge-inspect tokenize MODEL [--special] < TEXT        token ids of a text\n"
    "  forge-inspect render-chat --template FILE < JSON       the prompt that a chat template makes\n"
    "  forge-inspect devices [--json]                         this machine, as forge sees it\n"
    "  forge-inspect devices --self-test [--device hip:0]     are this machine's GPUs right, with driver and "
    "compiler?\n"
    "  forge-inspect cache [--json] [--clear PART]            what is kept, and clearing it\n"
    "  forge-inspect families [--json | --markdown]           which models run\n"
    "  forge-inspect trace FILE --svg OUT                     a picture of what --profile-trace wrote\n";

// A command: its options' table, and what it does once they are parsed.

struct Tokenize {
  std::string model;
  bool special = false;
  Options options{"forge-inspect tokenize", "Writes the token ids of standard input as a JSON array; no BOS is added."};

  Tokenize() {
    options.positional("MODEL", model, "a GGUF file")
        .flag("--special", special, "text that spells a control token becomes that token");
  }
  void run() const {
    std::ios::sync_with_stdio(false);
    std::ostringstream ids;
    inspect_tokenize(model, special, std::cin, ids, std::cerr);
    Output().write(ids.view());
  }
};

struct RenderChat {
  std::string file;
  Options options{
      "forge-inspect render-chat", "Writes the prompt that a chat template makes of JSON on standard input.",
      "Reads {\"messages\": [...], \"tools\": [...], \"add_generation_prompt\": true, \"bos_token\": \"\",\n"
      "\"eos_token\": \"\", \"now\": \"2026-01-15T12:30:00\"}. All but messages may be left out; other keys "
      "become\nvariables of the template.\n"};

  RenderChat() { options.text("--template", file, "FILE", "the template"); }
  void run() const {
    if (file.empty())
      throw Error(ErrorCode::kUsage, "--template is missing", {}, "forge-inspect render-chat --template FILE < JSON");
    inspect_render_chat(file);
  }
};

struct Cache {
  bool json = false;
  std::optional<std::string> clear;
  Options options{"forge-inspect cache", "Shows what lies in the cache, or removes it."};

  Cache() {
    options.flag("--json", json, "as JSON").choice("--clear", clear, kCacheParts, "remove these; they are made again");
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
  Options options{"forge-inspect devices", "Shows what this machine offers to forge, or tests its GPUs."};

  Devices() {
    options.flag("--json", json, "as JSON")
        .flag("--self-test", self_test, "run every primitive and a tiny model on each GPU, against this CPU")
        .text("--device", device, "hip:N|cuda:N", "test this GPU alone");
  }
  void run() const {
    if (device && !self_test) throw Error(ErrorCode::kUsage, "--device goes with --self-test", {}, "give both");
    if (self_test)
      self_test_devices(device, json);
    else
      Output().write(inspect_devices(json));
  }
};

struct SelfTest {
  std::string device;
  Options options{"forge-inspect self-test",
                  "Tests one GPU in this process and writes what comes out line by line, for programs.",
                  "`forge-inspect devices --self-test` starts this, for a driver may crash or hang.\n"};

  SelfTest() { options.text("--device", device, "hip:N|cuda:N", "the GPU"); }
  void run() const {
    if (device.empty())
      throw Error(ErrorCode::kUsage, "--device is missing", {}, "forge-inspect self-test --device hip:0");
    forge::session::write_self_test(device);
    std::_Exit(0);  // a driver whose kernel never ends would wait for it
  }
};

struct Families {
  bool json = false, markdown = false;
  Options options{"forge-inspect families", "Shows which model families and tensor types run."};

  Families() { options.flag("--json", json, "as JSON").flag("--markdown", markdown, "as the page docs/models.md"); }
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
  Options options{"forge-inspect trace",
                  "Draws a part of what --profile-trace wrote: steps, and each thread's chunks."};

  Trace() {
    options.positional("FILE", file, "what --profile-trace wrote")
        .text("--svg", svg, "OUT", "the picture")
        .integer("--forward", choice.forward, 1, std::int64_t{1} << 32, "the Nth forward; default the last one")
        .integer("--layer", choice.layer, 0, 1 << 20, "its steps alone; default the layer in the middle")
        .flag("--whole", choice.whole, "all steps of the forward");
  }
  void run() const {
    if (svg.empty()) throw Error(ErrorCode::kUsage, "--svg is missing", {}, "say where the picture goes: --svg OUT");
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
constexpr std::array<Command, 7> kCommands{{{"tokenize", run<Tokenize>, page<Tokenize>},
                                            {"render-chat", run<RenderChat>, page<RenderChat>},
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
  Options options("forge-inspect", "Shows what is in a GGUF model, or in a plan that forge-compile made.",
                  kInspectFooter);
  options.positional("MODEL", request.path, "MODEL.gguf, or a plan")
      .flag("--json", request.json, "as JSON")
      .flag("--all", request.all, "every tensor of a model, every step and weight of a plan")
      .text("--code", code, "DIR", "write a plan's code objects there, and their disassembly where there is a tool")
      .text("--arena-svg", arena, "FILE", "draw a plan's arena over its steps")
      .text("--graph-svg", graph, "FILE", "draw a plan's graph: steps, values and their places; needs Graphviz")
      .text("--variant", choice.variant, "NAME", "which variant is drawn; default: the first")
      .text("--layer", choice.layer, "N|all", "what of the graph is drawn; default: the layer in the middle")
      .integer("-c,--context", request.context, 1, forge::session::kContextMax, "show the memory for this context")
      .commands([] {
        std::vector<OptionPage> pages;
        for (const auto& command : kCommands) pages.push_back(command.page());
        return pages;
      });
  if (!options.parse(argc, argv)) return 0;
  if (choice.variant && !arena && !graph)
    throw Error(ErrorCode::kUsage, "--variant goes with --arena-svg and --graph-svg", {}, "say what to draw");
  if (choice.layer && !graph)
    throw Error(ErrorCode::kUsage, "--layer goes with --graph-svg", {}, "give --graph-svg FILE");
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
