// forge-inspect: what is in a model or plan, and what this machine offers.

#include <fmt/format.h>

#include <array>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/plan_file.h"
#include "support/error.h"
#include "tools/console.h"
#include "tools/entry.h"
#include "tools/inspect_arena.h"
#include "tools/inspect_cache.h"
#include "tools/inspect_chat.h"
#include "tools/inspect_code.h"
#include "tools/inspect_families.h"
#include "tools/inspect_graph.h"
#include "tools/inspect_model.h"
#include "tools/inspect_tokenize.h"
#include "tools/inspect_trace.h"
#include "tools/open_model.h"
#include "tools/options.h"

namespace {

using namespace forge;
using namespace forge::tools;

constexpr const char* kFooter =
    "Further commands:\n"
    "  forge-inspect tokenize MODEL [--special] < TEXT        token ids of a text\n"
    "  forge-inspect render-chat --template FILE < JSON       the prompt that a chat template makes\n"
    "  forge-inspect devices [--json]                         this machine, as forge sees it\n"
    "  forge-inspect cache [--json] [--clear all|plans|kernels|weights]    what is kept, and clearing it\n"
    "  forge-inspect families [--json | --markdown]           which models run\n"
    "  forge-inspect trace FILE --svg OUT                     a picture of what --profile-trace wrote\n";

int tokenize(int argc, char** argv) {
  std::string model;
  bool special = false;
  Options options("forge-inspect tokenize", "Writes the token ids of standard input as a JSON array; no BOS is added.");
  options.positional("MODEL", model, "a GGUF file")
      .flag("--special", special, "text that spells a control token becomes that token");
  if (!options.parse(argc, argv)) return 0;
  std::ios::sync_with_stdio(false);
  inspect_tokenize(model, special, std::cin, std::cout, std::cerr);
  std::cout.flush();
  if (!std::cout) throw Error(ErrorCode::kIo, "cannot write to standard output");
  return 0;
}

int devices(int argc, char** argv) {
  bool json = false;
  Options options("forge-inspect devices", "Shows what this machine offers to forge.");
  options.flag("--json", json, "as JSON");
  if (options.parse(argc, argv)) Output().write(inspect_devices(json));
  return 0;
}

int cache(int argc, char** argv) {
  bool json = false;
  std::optional<std::string> clear;
  Options options("forge-inspect cache", "Shows what lies in the cache, or removes it.");
  options.flag("--json", json, "as JSON").choice("--clear", clear, kCacheParts, "remove these; they are made again");
  if (!options.parse(argc, argv)) return 0;
  if (clear && json) throw Error(ErrorCode::kUsage, "--clear and --json exclude each other", {}, "give one of them");
  if (clear)
    note(clear_cache(*clear));
  else
    Output().write(inspect_cache(json));
  return 0;
}

int families(int argc, char** argv) {
  bool json = false, markdown = false;
  Options options("forge-inspect families", "Shows which model families and tensor types run.");
  options.flag("--json", json, "as JSON").flag("--markdown", markdown, "as the page docs/models.md");
  if (!options.parse(argc, argv)) return 0;
  if (json && markdown) throw Error(ErrorCode::kUsage, "--json and --markdown exclude each other");
  Output().write(inspect_families(json       ? FamiliesForm::kJson
                                  : markdown ? FamiliesForm::kMarkdown
                                             : FamiliesForm::kText));
  return 0;
}

int trace(int argc, char** argv) {
  std::string file, svg;
  TraceChoice choice;
  Options options("forge-inspect trace",
                  "Draws a part of what --profile-trace wrote: steps, and each thread's chunks.");
  options.positional("FILE", file, "what --profile-trace wrote")
      .text("--svg", svg, "OUT", "the picture")
      .integer("--forward", choice.forward, 1, std::int64_t{1} << 32, "the Nth forward; default the last one")
      .integer("--layer", choice.layer, 0, 1 << 20, "its steps alone; default the layer in the middle")
      .flag("--whole", choice.whole, "all steps of the forward");
  if (!options.parse(argc, argv)) return 0;
  if (svg.empty()) throw Error(ErrorCode::kUsage, "--svg is missing", {}, "say where the picture goes: --svg OUT");
  if (choice.whole && choice.layer)
    throw Error(ErrorCode::kUsage, "--whole and --layer exclude each other", {}, "give one of them");
  note(write_trace_svg(file, choice, svg));
  return 0;
}

int inspect(int argc, char** argv) {
  InspectOptions request;
  std::string code;
  std::optional<std::string> arena, graph;
  GraphChoice choice;
  Options options("forge-inspect", "Shows what is in a GGUF model, or in a plan that forge-compile made.", kFooter);
  options.positional("MODEL", request.path, "MODEL.gguf, or a plan")
      .flag("--json", request.json, "as JSON")
      .flag("--all", request.all, "every tensor of a model, every step and weight of a plan")
      .text("--code", code, "DIR", "write a plan's code objects there, and their disassembly where there is a tool")
      .text("--arena-svg", arena, "FILE", "draw a plan's arena over its steps")
      .text("--graph-svg", graph, "FILE", "draw a plan's graph: steps, values and their places; needs Graphviz")
      .text("--variant", choice.variant, "NAME", "which variant is drawn; default: the first")
      .text("--layer", choice.layer, "N|all", "what of the graph is drawn; default: the layer in the middle")
      .integer("-c,--context", request.context, 1, kContextMax, "show the memory for this context");
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
    const std::string_view command = argc > 1 ? argv[1] : "";
    if (command == "tokenize") return tokenize(argc - 1, argv + 1);
    if (command == "render-chat") return inspect_render_chat({argv + 2, argv + argc});
    if (command == "cache") return cache(argc - 1, argv + 1);
    if (command == "devices") return devices(argc - 1, argv + 1);
    if (command == "families") return families(argc - 1, argv + 1);
    if (command == "trace") return trace(argc - 1, argv + 1);
    return inspect(argc, argv);
  });
}
