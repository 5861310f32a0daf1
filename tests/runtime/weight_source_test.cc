#include "runtime/weight_source.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <vector>

#include "support/error.h"

namespace forge {
namespace {

using runtime::SpanWeightSource;

TEST_CASE("ranges are read, and what lies outside is refused") {
  const std::vector<std::byte> bytes{std::byte{1}, std::byte{2}, std::byte{3}};
  const SpanWeightSource source("model.gguf", bytes, SpanWeightSource::Backing::kHeap);
  CHECK((source.bytes() == 3 && source.data().data() == bytes.data()));
  std::vector<std::byte> out(2);
  source.read(1, out);
  CHECK((out[0] == std::byte{2} && out[1] == std::byte{3}));
  source.read(3, {});
  CHECK_THROWS_WITH(source.read(2, out), Catch::Contains("model.gguf") && Catch::Contains("2 bytes at 2"));
  CHECK_THROWS_AS(source.read(~std::uint64_t{0}, out), Error);
  source.release(0, 3);
  source.release(100, ~std::uint64_t{0});
  CHECK(bytes[0] == std::byte{1});
}

TEST_CASE("released pages of a file leave memory and come back on use") {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  char name[] = "/tmp/forge-weights-XXXXXX";
  const int fd = ::mkstemp(name);
  REQUIRE(fd >= 0);
  ::unlink(name);
  const std::vector<char> content(8 * page, 'w');
  REQUIRE(::write(fd, content.data(), content.size()) == static_cast<ssize_t>(content.size()));
  void* mapped = ::mmap(nullptr, content.size(), PROT_READ, MAP_PRIVATE, fd, 0);
  ::close(fd);
  REQUIRE(mapped != MAP_FAILED);
  const std::span data(static_cast<const std::byte*>(mapped), content.size());
  const SpanWeightSource source("file", data, SpanWeightSource::Backing::kFile);
  source.prefetch(page + 5, 2 * page);
  std::vector<std::byte> out(content.size());
  source.read(0, out);
  source.release(page / 2, 3 * page);  // pages 1 and 2 lie inside
  source.release(7 * page, ~std::uint64_t{0});
  source.read(0, out);
  CHECK(std::all_of(out.begin(), out.end(), [](std::byte b) { return b == std::byte{'w'}; }));
  ::munmap(mapped, content.size());
}

}  // namespace
}  // namespace forge
