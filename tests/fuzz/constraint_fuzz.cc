// Any bytes as a JSON schema, a grammar or a regular expression, and a walk over tokens that its masks allow. A
// constraint is refused in one line or kept: no dead end, and the mask and accept() agree.

#include "tests/fuzz/target.h"
#include "tests/text/byte_trie.h"
#include "text/constraint/constraint.h"

using namespace forge;
using namespace forge::text::constraint;

namespace {

/// A twentieth of the usual limit: AddressSanitizer takes thirty times as long for a step.
constexpr ConstraintLimits kLimits{.bytes = RegularPool::kBytesMax, .steps = RegularPool::kWorkMax / 20};

std::shared_ptr<const TokenTrie> make_trie() {
  return tests::byte_trie({"{\"", "\": ", "\", \"", "\"}", "}}", "true", "abc", "12", "é", "\",\"a\""});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto trie = make_trie();
  if (size < 2) return 0;
  return fuzz::refuse_or_read([&] {
    const auto syntax = data[0] % 4 == 0   ? ConstraintSyntax::kRegex
                        : data[0] % 4 == 1 ? ConstraintSyntax::kGbnf
                                           : ConstraintSyntax::kJsonSchema;
    Constraint constraint(compile({syntax, std::string(fuzz::text_of(data + 2, size - 2))}, trie, kLimits));
    std::uint32_t random = data[1];
    for (int step = 0; step < 24; ++step) {
      const auto mask = constraint.mask();
      std::vector<std::int32_t> allowed;
      for (std::size_t id = 0; id < trie->vocab(); ++id)
        if ((mask[id / 32] >> id % 32 & 1U) != 0) allowed.push_back(static_cast<std::int32_t>(id));
      fuzz::expect(!allowed.empty(), "a dead end");
      random = random * 1664525U + 1013904223U;
      const auto token = allowed[(random >> 8) % allowed.size()];
      fuzz::expect(constraint.accept(token), "a token of the mask is refused");
      if (token == 0) return;
    }
    constraint.roll_back(3);
    (void)constraint.forced();
  });
}
