// The simulation finds bugs, and makes the script that shows one small: this program's scheduler has some
// (plant_bugs.py).

#include "tests/runtime/planted_bugs.h"

#include <catch2/catch.hpp>

#include "tests/runtime/script_search.h"

namespace forge::test {

TEST_CASE("planted bugs are found, and the script that shows one is made small") {
  struct Plant {
    PlantedBug bug;
    const char* what;
  };
  for (const auto& [bug, what] :
       {Plant{PlantedBug::kLeakOnCancel, "KV-007"}, Plant{PlantedBug::kDoubleReleaseOnPreemption, "KV-0"},
        Plant{PlantedBug::kStarvingPriority, "SIM-001"}}) {
    planted = bug;
    const auto found = search_scripts();
    planted = PlantedBug::kNone;
    INFO("bug " << static_cast<int>(bug) << ": " << found.what << ", shown by " << found.smallest.size()
                << " operations\n"
                << found.report);
    REQUIRE(found.failed);
    CHECK(found.what.find(what) != std::string::npos);
    CHECK(found.smallest.size() <= 10);
    CHECK(broken_by(found.smallest).empty());  // it is the bug that breaks it
  }
}

}  // namespace forge::test
