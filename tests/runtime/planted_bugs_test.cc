// Proves that the simulation finds bugs: this program is linked with a scheduler that has planted bugs (plant_bugs.py).
// The search must find each of them and reduce its script to at most 10 operations.

#include "tests/runtime/planted_bugs.h"

#include <catch2/catch.hpp>

#include "tests/runtime/script_search.h"

namespace forge::test {

TEST_CASE("planted bugs are found, and the failing script is made small") {
  struct Plant {
    PlantedBug bug;
    const char* what;
  };
  for (const auto& [bug, what] :
       {Plant{PlantedBug::kLeakOnCancel, "KV-007"}, Plant{PlantedBug::kDoubleReleaseOnPreemption, "KV-0"},
        Plant{PlantedBug::kStarvingPriority, "SIM-001"}, Plant{PlantedBug::kSnapshotNotCopied, "SIM-002"},
        Plant{PlantedBug::kStateReleasedTwice, "KV-04"}, Plant{PlantedBug::kStaleSnapshotReused, "SIM-002"}}) {
    planted = bug;
    const auto found = search_scripts();
    planted = PlantedBug::kNone;
    INFO("bug " << static_cast<int>(bug) << ": " << found.what << ", shown by " << found.smallest.size()
                << " operations\n"
                << found.report);
    REQUIRE(found.failed);
    CHECK(found.what.find(what) != std::string::npos);
    CHECK(found.smallest.size() <= 10);
    CHECK(broken_by(found.smallest).empty());  // without the planted bug the script passes
  }
}

}  // namespace forge::test
