// Random scripts by RapidCheck, which also shrinks a failing script to a small one.
#include "tests/runtime/script_search.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <sstream>

namespace rc {

template <>
struct Arbitrary<forge::test::Op> {
  static Gen<forge::test::Op> arbitrary() {
    using Kind = forge::test::Op::Kind;
    const auto number = gen::inRange<std::uint32_t>(0, 1000);
    return gen::build<forge::test::Op>(
        gen::set(&forge::test::Op::kind, gen::weightedElement<Kind>({{6, Kind::kSubmit},
                                                                     {2, Kind::kCancel},
                                                                     {10, Kind::kStep},
                                                                     {1, Kind::kFault},
                                                                     {1, Kind::kWait},
                                                                     {1, Kind::kAbandon}})),
        gen::set(&forge::test::Op::a, number), gen::set(&forge::test::Op::b, number),
        gen::set(&forge::test::Op::c, number), gen::set(&forge::test::Op::d, number));
  }
};

}  // namespace rc

namespace forge::test {

std::string broken_by(const Script& script) {
  EngineWorld world({.sequences = 3,
                     .blocks = 16,
                     .window = script.size() % 3 * 5,
                     .state_slots = script.size() % 2 == 0 ? 0 : 3 + script.size() / 2 % 4,
                     .chooses = script.size() % 2 == 0});
  try {
    for (const auto& op : script) world.apply(op);
    world.finish();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

Found search_scripts() {
  Found found;
  const auto property = [&](const Script& script) {
    const auto what = broken_by(script);
    if (what.empty()) return;
    found = {.failed = true,
             .smallest = script,
             .what = what};  // RapidCheck shrinks on failure, so the last failing script is the smallest
    RC_FAIL(what);
  };
  rc::detail::TestParams params;
  params.seed = 20'26;
  params.maxSuccess = 2000;
  params.maxSize = 150;
  const auto result = rc::detail::checkTestable(property, rc::detail::TestMetadata{}, params);
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  found.report = text.str();
  REQUIRE(found.failed == !result.is<rc::detail::SuccessResult>());
  return found;
}

}  // namespace forge::test
