// Fuzzes the text form of a graph (ir/text/text.h). Any text is refused with forge::Error, or parses to a graph whose
// printed form parses to the same graph and prints the same text. Only forge::Error may be thrown.

#include "ir/text/text.h"

#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forge;
  return fuzz::refuse_or_read([&] {
    const ir::Graph graph = ir::parse(fuzz::text_of(data, size));
    const std::string printed = ir::print(graph);
    try {
      const ir::Graph again = ir::parse(printed);
      fuzz::expect(again.hash() == graph.hash(), "a printed graph reads back as another one");
      fuzz::expect(ir::print(again) == printed, "print is not stable");
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", printed.c_str());
      fuzz::finding(error.line());
    }
  });
}
