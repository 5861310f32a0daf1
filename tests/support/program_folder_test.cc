// find_beside_program: helper programs are looked up in folders relative to the running program.
#include "support/os/program_folder.h"

#include <catch2/catch.hpp>
#include <filesystem>

namespace forge {

TEST_CASE("a helper program is found in the first of its places relative to the running one") {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  const auto name = self.filename().native();
  const auto folder = self.parent_path().filename().native();
  CHECK(find_beside_program(name, {"nowhere", "."}) == self);
  CHECK(find_beside_program(name, {("../" + folder).c_str()}) == self);
  CHECK(find_beside_program(name, {"nowhere"}).empty());
  CHECK(find_beside_program("no-such-program", {".", ".."}).empty());
}

}  // namespace forge
