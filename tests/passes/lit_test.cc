// Runs tests/lit/*.ir, one file per pass: graph text in, graph text out. Format of a file:
//   // pass: NAME             the pass of all cases below
//   // case: WORDS            begins a case; the input graph follows
//   // target: KEY=VALUE ...  optional settings of the fake target: splits=0 interleave=0 quantises=0 rotates=1
//                            activation=i8 choosing=q16a_16 alone=OP
//   // note: TEXT             optional; one of the pass's notes must contain TEXT
//   // expect: changed | unchanged | error TEXT      after "changed" the expected graph follows
// The resulting graph must equal the expected one (value names do not matter), pass the verifier, give the same results
// in the interpreter, and not change when the pass runs again. With FORGE_LIT_UPDATE=1 the results are written into the
// files.

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/text/text.h"
#include "passes/passes.h"
#include "support/error.h"
#include "tests/passes/fake_target.h"
#include "tests/passes/tiny_llama.h"

namespace forge::passes::test {
namespace {

struct LitCase {
  std::string name, input, expected;
  std::string expect;              ///< "changed", "unchanged" or "error TEXT"
  std::vector<std::string> notes;  ///< each must be contained in one of the notes
  std::vector<std::string> head;   ///< comment lines of the case except "expect", kept for updates
  FakeTarget target;
};

struct LitFile {
  std::filesystem::path path;
  std::string preamble;
  const Pass* pass = nullptr;
  std::vector<LitCase> cases;
};

bool take_prefix(std::string_view& line, std::string_view prefix) {
  if (!line.starts_with(prefix)) return false;
  line.remove_prefix(prefix.size());
  return true;
}

void set_knobs(FakeTarget& target, const std::string& text) {
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    REQUIRE(equals != std::string::npos);
    const std::string key = word.substr(0, equals);
    const std::string value = word.substr(equals + 1);
    if (key == "splits")
      target.splits = value == "1";
    else if (key == "rotates")
      target.rotates = value == "1";
    else if (key == "quantises")
      target.quantises = value == "1";
    else if (key == "interleave")
      target.interleave = std::stoll(value);
    else if (key == "activation")
      target.activation = dtype_of_name(value).value();
    else if (key == "choosing")
      target.choosing = dtype_of_name(value).value();
    else if (key == "alone")
      target.alone.insert(ir::find_op(value)->op);
    else
      FAIL("unknown knob " << key);
  }
}

LitFile read_lit(const std::filesystem::path& path) {
  LitFile file{.path = path};
  std::ifstream in(path);
  for (std::string text; std::getline(in, text);) {
    std::string_view line = text;
    LitCase* now = file.cases.empty() ? nullptr : &file.cases.back();
    if (take_prefix(line, "// pass: ")) {
      const auto passes = pipeline_passes();
      const auto found = std::ranges::find(passes, line, &Pass::name);
      REQUIRE(found != passes.end());
      file.pass = &*found;
      file.preamble += text + "\n";
    } else if (take_prefix(line, "// case: ")) {
      file.cases.push_back({.name = std::string(line), .head = {text}});
    } else if (now == nullptr) {
      file.preamble += text + "\n";
    } else if (take_prefix(line, "// expect: ")) {
      now->expect = line;
    } else if (take_prefix(line, "// target: ")) {
      set_knobs(now->target, std::string(line));
      now->head.push_back(text);
    } else if (take_prefix(line, "// note: ")) {
      now->notes.emplace_back(line);
      now->head.push_back(text);
    } else {
      (now->expect.empty() ? now->input : now->expected) += text + "\n";
    }
  }
  return file;
}

/// Runs one case and returns the resulting text.
std::string run_case(const Pass& pass, const LitCase& lit) {
  ir::Graph graph = ir::parse(lit.input);
  ir::verify(graph);
  const auto meaning = run_two_steps(graph);
  const auto before = graph.hash();
  PassContext context{.target = lit.target, .notes = {}};
  if (lit.expect.starts_with("error ")) {
    CHECK_THROWS_WITH(pass.run(graph, context), Catch::Contains(lit.expect.substr(6)));
    return {};
  }
  const bool changed = pass.run(graph, context);
  CHECK(changed == (graph.hash() != before));
  CHECK(changed == (lit.expect == "changed"));
  ir::verify(graph);
  graph.compact();
  for (const std::string& wanted : lit.notes) {
    const auto has = [&](const std::string& text) { return text.find(wanted) != std::string::npos; };
    CHECK(std::ranges::any_of(context.notes, has));
  }
  CHECK(nmse(meaning, run_two_steps(graph)) < 1e-10);
  std::string out = ir::print(graph);
  if (changed) CHECK_FALSE(pass.run(graph, context));
  return out;
}

std::string trimmed(std::string text) {
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

TEST_CASE("lit: passes turn the inputs into the expected graphs", "[lit]") {
  const char* dir = std::getenv("FORGE_LIT_DIR");
  if (dir == nullptr) dir = "tests/lit";  // relative to the project's root
  REQUIRE(std::filesystem::is_directory(dir));
  const bool update = std::getenv("FORGE_LIT_UPDATE") != nullptr;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(dir))
    if (entry.path().extension() == ".ir") paths.push_back(entry.path());
  std::ranges::sort(paths);
  CHECK(paths.size() == pipeline_passes().size());  // one file per pass
  for (const auto& path : paths) {
    LitFile file = read_lit(path);
    INFO(path.filename().string());
    REQUIRE(file.pass != nullptr);
    CHECK(path.stem() == file.pass->name);
    CHECK(file.cases.size() >= 2);
    std::string updated = trimmed(file.preamble);
    for (const LitCase& lit : file.cases) {
      INFO(lit.name);
      const std::string out = run_case(*file.pass, lit);
      if (lit.expect == "changed" && !update) CHECK(out == ir::print(ir::parse(lit.expected)));
      updated += "\n";
      for (const std::string& line : lit.head) updated += line + "\n";
      updated += trimmed(lit.input) + "// expect: " + lit.expect + "\n" + (lit.expect == "changed" ? out : "");
    }
    if (update) std::ofstream(path) << updated;
  }
}

}  // namespace
}  // namespace forge::passes::test
